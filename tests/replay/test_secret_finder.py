"""Secrets in texts: found however they are written, and replaced by stand-ins that are as long and read alike."""

import base64
import json
import re
import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tables import each
from turnwise.endpoints.key_hiding import plain
from turnwise.replay.secret_finder import SecretFinder, StandIns, can_be_replaced, keys_in, spelled_alike

KEY = "sk-proj-AbC123dEf456-gHi789jKl_xyz"
RANDOM = b"the same for each run of the tests"
keys = st.text(alphabet=string.ascii_letters + string.digits + "-_.+/=", min_size=12, max_size=60)
words = st.text(alphabet='abc XYZ09"\\\n\té€😀/%&', max_size=30)


def finder(*keys: str, texts: tuple[str, ...] = ()) -> SecretFinder:
    return SecretFinder(StandIns(RANDOM), keys=keys, texts=texts)


def stand_in(secret: str) -> str:
    return StandIns(RANDOM).of(secret)


@given(st.text(min_size=1, max_size=40))
def test_a_stand_in_is_as_long_in_every_spelling(secret: str) -> None:
    """Proves: characters, UTF-8 bytes, and bytes as JSON with and without ASCII are the same number; what JSON escapes stays."""
    assume(not any("\ud800" <= one <= "\udfff" for one in secret))
    other = stand_in(secret)
    for spell in (
        str,
        json.dumps,
        lambda text: json.dumps(json.dumps(text)),
        lambda text: json.dumps(text, ensure_ascii=False),
    ):
        assert len(spell(other).encode()) == len(spell(secret).encode())
    assert [one for one in other if one in '"\\\n\t /'] == [one for one in secret if one in '"\\\n\t /']
    changed = [one for one, new in zip(secret, other, strict=True) if one != new]
    assert bool(changed) == can_be_replaced(secret, least=1)


@given(st.lists(keys, min_size=2, max_size=2, unique=True), st.integers(1, 11))
def test_two_secrets_have_two_stand_ins_and_a_beginning_has_the_beginning(secrets: list[str], length: int) -> None:
    """Proves: nothing that was different becomes equal, and what was cut off a secret is cut off its stand-in alike."""
    one, other = secrets
    assert stand_in(one) != stand_in(other) and stand_in(one[:length]) == stand_in(one)[:length]
    assert StandIns(b"another key").of(one * 2) != stand_in(one * 2) or not can_be_replaced(one, least=8)


def test_a_number_stays_a_number() -> None:
    """Proves: what was JSON is JSON."""
    assert json.loads(finder(texts=("470011",)).hidden('{"id":470011}'))["id"] != 470011


SPELLINGS = {
    "plain": lambda text: text,
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "JSON in JSON in JSON": lambda text: json.dumps(json.dumps(json.dumps(text))),
    "each character escaped": lambda text: "".join([f"\\u{ord(one):04x}" for one in text]),
    "escaped in JSON in JSON": lambda text: json.dumps(json.dumps("".join([f"\\u{ord(one):04X}" for one in text]))),
    "some escaped": lambda text: "".join([f"\\u{ord(one):04x}" if n % 3 else one for n, one in enumerate(text)]),
    "URL": lambda text: quote(text, safe=""),
    "each character in percent": lambda text: "".join([f"%{ord(one):02X}" for one in text]),
    "percent in percent": lambda text: "".join([f"%25{ord(one):02x}" for one in text]),
    "HTML": lambda text: "".join([f"&#{ord(one)};" for one in text]),
    "hex": lambda text: text.encode().hex(),
    **{
        f"base64 behind {before} bytes": lambda text, before=before: base64.b64encode(
            b"u" * before + text.encode() + b"?"
        ).decode()
        for before in range(3)
    },
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.promise("keep:replay")
@each("spelling", SPELLINGS)
def test_a_key_is_found_in_every_spelling(spelling: str) -> None:
    """Proves: nothing of the key is left, and the text is as long as it was."""
    written = f"before {SPELLINGS[spelling](KEY)} behind"
    hidden = finder(KEY).hidden(written)
    assert len(hidden) == len(written) and hidden.startswith("before ") and hidden.endswith(" behind")
    assert KEY not in hidden and KEY not in plain(hidden)
    if spelling == "HTML":  # numbers of other length: filled up, as no JSON is read from them
        return
    if spelling == "hex" or spelling.startswith("base64"):
        inner = SPELLINGS[spelling](stand_in(KEY))
        kept = len(inner) - 6 if "base64" in spelling else len(inner)  # the edges hold bits of what stands around
        assert inner[3:kept] in hidden
        return
    assert stand_in(KEY) in plain(hidden)


@pytest.mark.promise("keep:replay")
@given(keys, words, words, st.integers(0, 3), st.booleans())
def test_hiding_and_reading_json_may_change_places(
    key: str, before: str, behind: str, levels: int, ascii_only: bool
) -> None:
    """Proves: a text with a key in it, as JSON in JSON at any depth, holds when it is read what hiding in the read text gives: so
    the machine reads from an export what it read from the journal, with stand-ins."""
    assume(can_be_replaced(key, least=6))
    text = f"{before} {key} {behind}"
    written = text
    for _ in range(levels):
        written = json.dumps(written, ensure_ascii=ascii_only)
    hidden = finder(key).hidden(written)
    assert len(hidden.encode()) == len(written.encode())
    for _ in range(levels):
        hidden = json.loads(hidden)
    assert hidden == finder(key).hidden(text)


def test_pieces_of_a_key_get_the_pieces_of_its_stand_in() -> None:
    """Proves: a result that was cut in the middle of a key shows neither its beginning nor its end."""
    other = stand_in(KEY)
    assert finder(KEY).hidden(f"it is {KEY[:14]}") == f"it is {other[:14]}"
    assert finder(KEY).hidden(f"{KEY[10:]} it was") == f"{other[10:]} it was"
    assert finder(KEY).hidden(f"it is {KEY[:6]}") == f"it is {KEY[:6]}"


def test_a_key_that_is_split_over_texts_is_found() -> None:
    """Proves: a response that was cut in a key, and those that go on with it, are replaced together, also where what was held
    back comes twice."""
    other = stand_in(KEY)
    for texts, wanted in (
        ([f'{{"key":"{KEY[:5]}', f'{KEY[5:]}"}}'], [f'{{"key":"{other[:5]}', f'{other[5:]}"}}']),
        ([f"a {KEY[:20]}", f"{KEY[12:]} b"], [f"a {other[:20]}", f"{other[12:]} b"]),
        ([f"a {KEY[:3]}", KEY[3:9], f"{KEY[9:]} b"], [f"a {other[:3]}", other[3:9], f"{other[9:]} b"]),
    ):
        found = finder(KEY)
        found.learn_chain(texts)
        assert [found.hidden(text) for text in texts] == wanted
    unlike = finder(KEY)
    unlike.learn_chain([f"a {KEY[:5]}", "something else"])
    assert unlike.hidden(f"a {KEY[:5]}") == f"a {KEY[:5]}"


EXAMPLES = (
    "sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "gsk_abcdefghijklmnopqrstuvwxyz",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github_pat_11ABCDEFG0abcdefghijkl_" + "mnopQRSTuvwx01234567" * 2 + "yzABCDEFGHIJKLMNOPQ",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-1234567890123-abcdefghij",
    "tw-" + "a1B2-" * 8 + "xyz",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "7aB8Q~abcdefghijklmnopqrstuvwxyz01234567",
    "123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
    "key-0123456789abcdef0123456789abcdef",
    "SK0123456789abcdef0123456789abcdef",
    "0123456789abcdef0123456789abcdef-01234567-89abcdef",
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" + "QPZRY9X8GF2TVDW0S3JN54KHCE",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA1234567890abcdefghijklmnopqrstuvwxyz",
)


@each("key", EXAMPLES)
def test_what_has_the_shape_of_a_key_is_replaced(key: str) -> None:
    """Proves: nobody has to name it, in JSON text neither; and what was replaced has no such shape any more."""
    for written in (f"key={key}", json.dumps(f"a\n{key}"), json.dumps(json.dumps(f"a\n{key}"))):
        hidden = finder().hidden(written)
        assert key not in plain(hidden) and hidden != written and len(hidden) == len(written)


SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzz1234abcd"
NAMED = {
    "hunter2xyz": (
        "postgres://app:{}@db.example/x",
        "redis://:{}@cache:6379",
        "amqp+ssl://u:{}@[::1]/",
        "DB_URL=mysql://root:{}@h",
    ),
    SECRET: (
        "aws_secret_access_key = {}",
        "AWS_SECRET_ACCESS_KEY={}",
        '"SecretAccessKey": "{}"',
        "secretAccessKey: {}",
        "export AWS_SECRET_KEY='{}'",
    ),
    "T0000AB00/B00000CD0/abcdefghijklmnop12345678": ("https://hooks.slack.com/services/{}",),
    "abcdefghij1234567890xyz": (
        "Authorization: Bearer {}",
        "authorization: bearer {}",
        "AUTHORIZATION: BEARER {}",
        '"authorization": "token {}"',
        "-H 'authorization:basic {}'",
    ),
    "123456789:AAabcdefghijklmnopqrstuvwxyz0123456": ("https://api.telegram.org/bot{}/getMe",),
    "0a1b2c3d" * 4: ("TWILIO_AUTH_TOKEN={}", 'authToken: "{}"'),
    "Ab1/" * 21 + "Zz==": ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};",),
}


@pytest.mark.promise("keep:replay")
@each(("key", "written"), [(key, text) for key, texts in NAMED.items() for text in texts])
def test_a_key_that_only_its_name_tells_is_replaced_and_the_name_stays(key: str, written: str) -> None:
    """Proves: passwords in addresses, secrets of clouds and headers in any case are found by what stands before them."""
    text = f"x {written.format(key)} y"
    for levels in range(3):
        hidden = finder().hidden(text)
        before, _, behind = text.partition(json.dumps(key)[1:-1])
        assert key not in plain(hidden) and hidden.startswith(before) and hidden.endswith(behind), levels
        text = json.dumps(text)


def test_a_password_that_is_a_word_is_replaced_in_its_address_only() -> None:
    """Proves: `postgres` as a password does not change what else is called so; one that is no word goes everywhere."""
    hidden = finder().hidden("postgres://postgres:postgres@db/postgres in postgres")
    assert hidden.startswith("postgres://postgres:") and hidden.endswith("@db/postgres in postgres")
    assert "postgres@db" not in hidden
    assert "correct9horse" not in finder().hidden("postgres://u:correct9horse@db and PW=correct9horse")


COLOURS = (
    "\x1b[32m",
    "\x1b[K",
    "\x1b[01;31m\x1b[K",
    "\x1b]8;;http://x\x07",
    "\x1b(B",
    "^[[0m",
    "\\e[1m",
    "\\033[38;5;12m",
)


@pytest.mark.promise("keep:replay")
@given(
    st.sampled_from(COLOURS),
    st.sampled_from(COLOURS),
    st.integers(0, 39),
    st.sampled_from(["", "x", " ", "9"]),
    st.integers(0, 3),
)
def test_a_key_beside_or_around_a_colour_is_replaced(one: str, other: str, cut: int, before: str, levels: int) -> None:
    """Proves: a sequence that drives a terminal ends a word, and one in a key hides no half of it; also spelled by `repr`, JSON
    or `cat -v`. JSON text of it reads as the text with stand-ins."""
    key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    text = f"{before}{one}{key[:cut]}{other}{key[cut:]}{one} behind"
    for written in (text, repr(text)):
        found = finder()
        hidden = found.hidden(written)
        read = hidden.encode().decode("unicode_escape") if written != text else hidden
        left = read.replace(one, "").replace(other, "")
        assert key[:12] not in left and key[-12:] not in left and len(found.replaced) >= 1
        assert len(hidden) == len(written) and hidden.count(" behind") == 1
    hidden = written = text
    for _ in range(levels):
        written = json.dumps(written)
    hidden, read = finder().hidden(text), finder().hidden(written)
    for _ in range(levels):
        read = json.loads(read)
    assert read == hidden


ROOT = Path(__file__).parents[2]
ABOUT_KEYS = re.compile(
    r"key|secret|private|token|redact|credential|Bearer|password|://[^/\s]*:[^/\s]*@", re.IGNORECASE
)


@pytest.mark.costly
def test_the_source_text_of_this_repository_has_no_keys_but_where_it_is_about_them() -> None:
    """Proves: what is replaced in some hundred files of code stands in a line about keys."""
    searched = 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = path.read_text()
        searched += 1
        for start, key in keys_in(text):
            line = text[text.rfind("\n", 0, start) + 1 : text.find("\n", start)]
            assert ABOUT_KEYS.search(line), (path, key)
    assert searched > 100


def test_ordinary_text_has_no_shape_of_a_key() -> None:
    """Proves: words, names, hashes, ids and code stay as they are."""
    for text in (
        "sk-learn is a library; task-oriented; risk-free-investments-and-more-of-that-kind",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "call_01a218b9816f9cc038c18f2826 tw-0123456789abcdef01234567",
        "hf_hub_download(repo_id) and xoxo- and AIza",
        "def f(x): return x %2F 3 &amp; \\n",
    ):
        assert finder().hidden(text) is text


def test_a_spelling_that_has_no_equal_is_filled() -> None:
    """Proves: the length holds even there."""
    assert spelled_alike("b", old="\\u0061") == "\\u0062" and spelled_alike("B", old="%2541") == "%2542"
    assert spelled_alike("b", old="&#97;") == "xxxxx" and spelled_alike("b", old="&#x61;") == "&#x62;"


@each(
    ("text", "secret"),
    [
        ("DB_PASSWORD=hunter2!", "hunter2"),
        ("export PGPASSWORD=s3cr#t", "s3cr#t"),
        ('password: "p@ss/w{o}rd"', "p@ss/w{o}rd"),
        ("password='a$b|c'", "a$b|c"),
        ('{"password": "tiger", "user": "scott"}', "tiger"),
        (json.dumps(json.dumps({"db_passwd": "x1"})), "x1"),
        ("client_secret=abc-def", "abc-def"),
        ("api_key: letmein", "letmein"),
        ("psql --password hunter2", "hunter2"),
        ("mysql://root:p@ss:w/rd@db:3306/x", "p@ss:w/rd"),
        ("postgres://u:pw@h", "pw@"),
        ("Authorization: Bearer abcdefghijklmnopqrstuvwxyz", "abcdefghij"),
        ("authorization: bearer abcdefghijklmnop", "abcdefghij"),
        ("Authorization: Basic dTpw", "dTpw"),
        ('"access_token":"abcdefghijkl"', "abcdefghijkl"),
    ],
)
def test_by_the_name_before_it_a_value_is_a_secret(text: str, secret: str) -> None:
    """Proves: also with special characters, short, and without a digit, in an assignment, in JSON, in a header and in an address
    (issue 40)."""
    hidden = finder().hidden(text)
    assert secret not in hidden and len(hidden) == len(text)


@each(
    "text",
    [
        "password: str = ''",
        "password = get_password()",
        "connect(token=token, password=self.password)",
        "if password == other: the password is wrong",
        "max_tokens=400, token_count = 12, secret: None",
        "def login(password: str) -> None",
        "PASSWORD=$OTHER password=<yours> token=***",
        "compass = north, passed: 12 tests",
        "https://localhost:4873/@scope/package",
    ],
)
def test_code_that_names_a_secret_shows_none(text: str) -> None:
    """Proves: a type, a call, a variable and a placeholder stay, so recorded code is still code."""
    assert finder().hidden(text) == text
