"""Finds secrets in texts, however they are written there, and puts stand-ins in their place.

Looked for are: each key as it stands; its beginning and long pieces of it, as a result that was cut shows them; its base64 and
hex; the same where characters are escaped as JSON, URLs or HTML do, one escape in another; what has a key's shape, also if
only its base64 or hex is there; and private keys, line by line.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from urllib.parse import quote

import msgspec

from turnwise.endpoints.key_hiding import (
    SHORTEST_IN_WORDS,
    SHORTEST_KEY,
    TELLTALE,
    may_escape,
    paired_forms,
    plain,
    plain_spans,
)

# Stand-ins for secrets: as long, in bytes and in characters, and written with the same kinds of characters.
#
# A character gives way to another of its kind (a lower-case letter to one, a digit to one), and which one depends on what stands
# before it in the secret, and on a random key that nobody keeps. So a secret has one stand-in wherever it stands, two secrets
# have two, and what is cut off a secret's end has the beginning of its stand-in. What JSON escapes, white space and marks stay:
# text that could be parsed can be parsed still, and a number stays a number.


BLOCK = 64  # code points: all of them take as many bytes, in UTF-8 and in JSON's escapes
_DIGITS = "123456789"  # 0 stays: a number does not begin with it
# The whole of it: where each character of an escape is escaped again, the last one is a digit of it and not the character.
_UNICODE = re.compile(r"\A(?:\\+u005[cC]|\\)*u([0-9a-fA-F]{4})\Z")
_HEX_ESCAPE = re.compile(r"(?:x|%(?:25)*|#[xX]0*)([0-9a-fA-F]{2});?\Z")
FILLER = "x"


class StandIns:
    """`key` is random bytes: who has it can tell which secrets were replaced. Without a key, all letters of a kind have one
    stand-in, and so have all digits: the same in every process, and nothing can be worked out of it."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    @lru_cache(maxsize=4096)  # noqa: B019 (lives as long as one export)
    def of(self, secret: str) -> str:
        """The stand-in; the same text if no character of it can be replaced."""
        if self._key is None:
            return "".join([_plainest(_alphabet(character)) for character in secret])
        digest = hmac.new(self._key, digestmod=hashlib.blake2s)
        changed: list[str] = []
        for character in secret:
            alphabet = _alphabet(character)
            if len(alphabet) > 1:
                shift = 1 + int.from_bytes(digest.copy().digest()[:8], "big") % (len(alphabet) - 1)
                changed.append(alphabet[(alphabet.index(character) + shift) % len(alphabet)])
            else:
                changed.append(character)
            digest.update(character.encode("utf-8", "surrogatepass"))
        return "".join(changed)


def _plainest(alphabet: str) -> str:
    return alphabet[max(0, len(alphabet) - 3)]  # `x`, `X` and `7`


def can_be_replaced(text: str, *, least: int) -> bool:
    """Whether at least so many of its characters have others of their kind."""
    return sum([len(_alphabet(character)) > 1 for character in text]) >= least


@lru_cache(maxsize=4096)
def _alphabet(character: str) -> str:
    """The characters that may stand for it, itself among them."""
    code = ord(character)
    if code >= 0x80:
        first = code // BLOCK * BLOCK
        return "".join([chr(one) for one in range(first, first + BLOCK) if _is_alike(chr(one), character)])
    if character.isdigit():
        return _DIGITS if character != "0" else "0"
    first = "a" if character.islower() else "A"
    return "".join([chr(ord(first) + place) for place in range(26)]) if character.isalpha() else character


def _is_alike(one: str, other: str) -> bool:
    return one == other or (one.isalpha() and other.isalpha() and one.islower() == other.islower())


def spelled_alike(new: str, *, old: str) -> str:
    """The character `new` as `old`, a spelling of another one with escapes, spells it: as long. What cannot be spelled so is
    filled up."""
    for pattern, digits in ((_UNICODE, 4), (_HEX_ESCAPE, 2)):
        if (found := pattern.search(old)) is not None and ord(new) < 16**digits:
            code = f"{ord(new):0{digits}x}"
            written = code.upper() if found[1].isupper() else code
            return old[: found.start(1)] + written + old[found.end(1) :]
    return FILLER * len(old)


# What keys look like: the rules of gitleaks (`gitleaks.toml`, written by scripts/key_rules.py), and those that it lacks.
#
# A rule is tried where one of its words stands. A text is searched in parts of bounded length, so the time grows with its length,
# whatever the patterns do within a part.


PART = 16_384  # characters that are searched at once
OVERLAP = 4_096  # longer than a key with the name before it
_URL = "[A-Za-z0-9_-]"  # base64url, and what joins its pieces
_BASE64_LETTER = "[A-Za-z0-9+/]"
_IS = r"[\"']{0,2}\s{0,8}(?:=>|:=|[:=])\s{0,8}[\"']{0,2}"  # what stands between a name and its value


class KeyRule(msgspec.Struct, frozen=True):
    """`keywords` are in small letters. The key is the pattern's group that matched, else all of it."""

    keywords: tuple[str, ...]
    pattern: str


# Sources: the providers' own pages on their keys, and GitHub's "Supported secret scanning patterns".
OWN_RULES = (
    # of models
    KeyRule(("sk-",), rf"sk-{_URL}{{16,}}"),
    KeyRule(("aiza",), rf"AIza{_URL}{{30,}}"),
    KeyRule(("gsk_", "xai-"), "(?:gsk_|xai-)[A-Za-z0-9]{20,}"),
    KeyRule(("hf_", "fw_", "r8_", "pplx-", "csk-"), "(?:hf_|fw_|r8_|pplx-|csk-)[A-Za-z0-9]{22,}"),
    KeyRule(("nvapi-", "tgp_v1_"), rf"(?:nvapi-|tgp_v1_){_URL}{{32,}}"),
    KeyRule(("tvly-", "tw-"), rf"tvly-{_URL}{{20,}}|tw-{_URL}{{43}}"),  # Tavily, turnwise's gateway
    # of clouds, code and shops; some as gitleaks has them, with more that may stand behind the beginning
    KeyRule(("akia", "asia", "abia", "acca"), "(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    KeyRule(("absk",), "ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    KeyRule(
        ("secret", "session"),
        rf"(?i:(?:aws_)?secret_?(?:access_?)?key){_IS}({_BASE64_LETTER}{{40}})(?![A-Za-z0-9+/=])"
        rf"|(?i:(?:aws_)?session_?token){_IS}({_BASE64_LETTER}{{100,2048}}={{0,2}})",
    ),
    KeyRule(
        ("accountkey=", "sharedaccesskey=", "sig="),
        rf"(?:AccountKey|SharedAccessKey)=({_BASE64_LETTER}{{43,86}}={{1,2}})|sig=([A-Za-z0-9%+/]{{40,}})",
    ),
    KeyRule(("ya29.", "gocspx-"), rf"(?:ya29\.|GOCSPX-){_URL}{{20,}}"),
    KeyRule(("pypi-", "dckr_"), rf"pypi-{_URL}{{50,}}|dckr_(?:pat|oat)_{_URL}{{20,}}"),
    KeyRule(
        ("hooks.slack.com/", "/api/webhooks/"),
        rf"hooks\.slack\.com/\w+/([A-Za-z0-9/_-]{{20,}})|discord(?:app)?\.com/api/webhooks/[0-9]{{16,20}}/({_URL}{{60,}})",
    ),
    KeyRule((":aa",), rf"(?:bot)?([0-9]{{8,10}}:AA{_URL}{{33}})"),  # Telegram
    KeyRule(("key-",), "key-[0-9a-f]{32}(?![0-9a-f])"),  # Mailgun, and its newer ones
    KeyRule(
        ("-us", *[f"-{digit}" for digit in "0123456789abcdef"]),
        r"[0-9a-f]{32}-(?:[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])|us[0-9]{1,2}\b)",
    ),
    KeyRule(("auth",), rf"(?i:(?:twilio_)?auth_?token){_IS}([0-9a-f]{{32}})(?![0-9a-f])"),
    KeyRule(("whsec_", "lin_api_"), "whsec_[A-Za-z0-9+/=]{24,}|lin_api_[A-Za-z0-9]{32,}"),
    KeyRule(("pat", "sbp_"), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|sbp_[a-f0-9]{40}"),  # Airtable, Supabase
    KeyRule(("figd_", "sq0csp-"), rf"(?:figd_|sq0csp-){_URL}{{40,}}"),  # Figma, Square
    KeyRule(("nrak-", "atbb"), "NRAK-[A-Z0-9]{27}|ATBB[A-Za-z0-9]{32}"),  # New Relic, Bitbucket
    KeyRule(("curl",), r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]{1,3}[\"']?[^\s:\"']{1,64}:([^\s\"']{3,128})"),
    KeyRule(('"auth"',), rf"\"auth\"\s{{0,4}}:\s{{0,4}}\"({_BASE64_LETTER}{{16,}}={{0,2}})\""),  # Docker's logins
    KeyRule(("eyj",), rf"eyJ{_URL}{{8,}}\.eyJ{_URL}{{8,}}\.{_URL}{{8,}}"),
)


@cache
def key_rules() -> tuple[KeyRule, ...]:
    text = (Path(__file__).parent / "gitleaks.toml").read_text(encoding="utf-8")
    return (*msgspec.convert(tomllib.loads(text), dict[str, KeyRule]).values(), *OWN_RULES)


def keys_in(text: str, *, seams: tuple[int, ...] = ()) -> Iterator[tuple[int, str]]:
    """Where each of them begins in a text, and the key. No letter or digit stands before it, except at `seams`: something that
    is not shown stood there."""
    for start in range(0, max(1, len(text) - OVERLAP), PART):
        last = start + PART + OVERLAP >= len(text)
        for began, at, key in _found_in(text[start : start + PART + OVERLAP]):
            if last or began < PART:
                yield start + at, key
    for seam in seams:
        if seam and text[seam - 1].isalnum():
            yield from [(seam, key) for _, at, key in _found_in(text[seam : seam + OVERLAP]) if at == 0]


def _found_in(part: str) -> Iterator[tuple[int, int, str]]:
    """Where each match and its key begin, and the key."""
    for pattern in _patterns_for(part.lower()):
        for found in _compiled(pattern).finditer(part):
            group = found.lastindex or 0
            yield found.start(), found.start(group), found[group]


def _patterns_for(small: str) -> list[str]:
    """Those with a word in the text. Most texts have the first two letters of few words: the others are not looked for."""
    by_beginning = _patterns_by_word()
    beginnings = by_beginning.keys() & set(map(str.__add__, small, small[1:]))
    return sorted({pattern for two in beginnings for word, pattern in by_beginning[two] if word in small})


@cache
def _patterns_by_word() -> dict[str, list[tuple[str, str]]]:
    """Each word with its pattern, by its first two characters."""
    found: dict[str, list[tuple[str, str]]] = {}
    for rule in key_rules():
        for word in rule.keywords:
            found.setdefault(word[:2], []).append((word, rule.pattern))
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(f"(?<![A-Za-z0-9])(?:{pattern})", re.ASCII)


# Keys that stand in a text only encoded: in base64 (a Kubernetes Secret, the login in Docker's config) or in hex.
#
# Each run is decoded once. A base64 run may begin with letters that belong to the word before it, so it is read from each of its
# first four characters on.
LONGEST_RUN = 65_536  # characters; of a longer one, as of a picture, only its beginning is looked at
_LINES = r"(?:\r?\n[ \t]{0,16}[A-Za-z0-9+/]{4,})*"  # `base64` breaks lines after 76 characters
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{20,}}{_LINES}={{0,2}}")
_HEX = re.compile(r"[0-9a-fA-F]{20,}")
_SPACE = re.compile(r"\s+")
_FOR_URLS = str.maketrans("-_", "+/")


def encoded_keys_in(text: str, *, known: Container[str] = ()) -> list[str]:
    """The runs that decode to something with a key in it that is not `known`, without white space."""
    found: list[str] = []
    for pattern, read in ((_HEX, _from_hex), (_BASE64, _from_base64)):
        for run in pattern.finditer(text):
            written = _SPACE.sub("", run[0][:LONGEST_RUN])
            if any(
                private_keys_in(one) or any(key not in known for _, key in _secrets_in(one)) for one in read(written)
            ):
                found.append(written)
    return found


def _from_hex(run: str) -> Iterator[str]:
    for start in (0, 1):
        whole = run[start:]
        yield bytes.fromhex(whole[: len(whole) // 2 * 2]).decode("latin-1")


def _from_base64(run: str) -> Iterator[str]:
    plain = run.rstrip("=").translate(_FOR_URLS)
    for start in range(4):
        whole = plain[start:]
        whole = whole[: len(whole) - (len(whole) % 4 == 1)]  # one character alone holds no byte
        try:
            yield base64.b64decode(whole + "=" * (-len(whole) % 4)).decode("latin-1")
        except binascii.Error:
            continue


# Text as a terminal shows it: without the sequences that set colours, erase lines or name links, also where a tool spells them.
#
# Sources: ECMA-48, 5.4 (control sequences); xterm's "Control Sequences" (OSC); `cat -v` for `^[`.
_BEGINS = re.compile(r"[\x1b\x9b]|\^\[|\\e|\\0?33")
_SEQUENCE = re.compile(
    r"""
    (?: \x1b | \^\[ | \\e | \\0?33 )
    (?: \[ [0-?]{0,48} [ -/]{0,4} [@-~]
      | \] [^\x07\x1b\\\^\n]{0,1024} (?: \x07 | \^G | (?: \x1b | \^\[ | \\e | \\0?33 ) \\ )
      | [()*+] [0-9A-Za-z]
      | [=>78] )
    | \x9b [0-?]{0,48} [ -/]{0,4} [@-~]
    """,
    re.VERBOSE,
)


class ShownText(msgspec.Struct, frozen=True):
    """`text` without sequences. Character `n` of it is `places[n]` of the original; `seams` are where sequences stood."""

    text: str
    places: list[int]
    seams: tuple[int, ...] = ()


def may_drive_terminal(text: str) -> bool:
    return _BEGINS.search(text) is not None


def as_shown(text: str) -> ShownText:
    pieces: list[str] = []
    places: list[int] = []
    seams: list[int] = []
    at = 0
    for found in _SEQUENCE.finditer(text):
        pieces.append(text[at : found.start()])
        places += range(at, found.start())
        at = found.end()
        seams.append(len(places))
    pieces.append(text[at:])
    places += range(at, len(text))
    return ShownText("".join(pieces), places, tuple(seams))


# Long secrets of base64 or hex, found again by any twelve of their characters that stand together.
#
# One look at each place of a text is enough, however many secrets there are: so their number does not count.
LONG_RUN_WINDOW = 12  # characters that are no accident
_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{12,}")


class FoundRun(msgspec.Struct, frozen=True):
    """From `start` on a text holds `old`, a part of `secret`, for which `new` stands."""

    start: int
    old: str
    new: str
    secret: str


class LongRuns:
    """What two secrets have in common gets the stand-in that it has in the first of them."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins
        self._windows: dict[str, tuple[str, int]] = {}

    def add(self, run: str) -> bool:
        """Whether it was new."""
        before = len(self._windows)
        for place in range(len(run) - LONG_RUN_WINDOW + 1):
            self._windows.setdefault(run[place : place + LONG_RUN_WINDOW], (run, place))
        return len(self._windows) > before

    def found_in(self, text: str) -> Iterator[FoundRun]:
        for token in _TOKEN.finditer(text) if self._windows else ():
            start, end = token.span()
            while start <= end - LONG_RUN_WINDOW:
                known = self._windows.get(text[start : start + LONG_RUN_WINDOW])
                if known is None:
                    start += 1
                    continue
                run, place = known
                length = LONG_RUN_WINDOW
                while start + length < end and run[place + length : place + length + 1] == text[start + length]:
                    length += 1
                new = self._stand_ins.of(run)[place : place + length]
                yield FoundRun(start, text[start : start + length], new, run)
                start += length


PIECE = TELLTALE  # characters of a key that are no accident, wherever they stand in it
WINDOW = (
    PIECE // 2
)  # a key is cut into these for the search: every piece of it that has PIECE characters holds one whole
JSON_LEVELS = 3  # JSON text in JSON text in JSON text
SHORTEST_PASSWORD = 10  # sought elsewhere, too: `postgres` is a password in many an address, and a word
# By the name before it a value is a secret, however short it is and whatever it is made of.
_SECRET_NAME = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|credentials?"
    r"|(?:api|(?:shared[_-]?)?access|private|account|secret|encryption|signing)[_-]?key"
    r"|(?:(?:auth|access|refresh|session|bearer|api|id)[_-]?)?token)"
)
_NAMED = re.compile(
    rf"""(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:(?:pg|db|my)?{_SECRET_NAME})
    (?:["']\s{{0,4}}:\s{{0,4}}|\s{{0,4}}(?:=>|:=|=)\s{{0,4}}|:\s{{1,4}}|(?<=--password)\s)
    (?:(?P<quote>["'`])(?P<quoted>(?:(?!(?P=quote)).){{2,200}})(?P=quote)
        |(?P<bare>[^\s"'`,;&<>(){{}}\[\]\\](?:[^\s"'`,;&<>\\]|\\(?!\\*[nrt])){{2,199}}))
    | (?i:authorization["']?\s{{0,4}}[:=]\s{{0,4}}["']?(?:bearer|basic|token)|(?-i:Bearer))\s{{1,4}}
        (?P<header>[A-Za-z0-9._~+/=-]{{4,}})
    | (?<=://)[^\s:/@"'`\\<>]{{0,64}}:(?!\d{{1,5}}/)
        (?P<userinfo>[^\s"'`<>]{{2,128}}?)(?=@[A-Za-z0-9\[][^\s"'`<>@]{{0,999}}(?:[\s"'`<>]|$))
    """,
    re.VERBOSE,
)
# What stands behind such a name and is not a secret: a type, a word of a language, a call, a variable, what was hidden already.
_NO_SECRET = re.compile(
    r"(?i:none|null|nil|true|false|str|string|int|bytes|bool|any|optional|required|undefined|self|token|password|secret|key)[^A-Za-z0-9]*\Z"
    r"|[$%<]|[A-Za-z_][\w.]*[(\[]|[*.x]+[)\]}]*\Z|(?:os|self|args|config|settings|request|env)\."
)
NewCharacters = dict[int, str]
"""Characters of a text by their place, and what is put there."""


class SecretFinder:
    """`keys` are sought in pieces, too, `texts` only whole. `learn` adds the keys of a text that have a key's shape,
    `learn_chain` what is split over several texts; without `shapes` nothing is known by its shape. `replaced` are the secrets
    that have been replaced by now."""

    def __init__(
        self,
        stand_ins: StandIns,
        *,
        keys: Iterable[str] = (),
        texts: Iterable[str] = (),
        piece: int = PIECE,
        shapes: bool = True,
    ) -> None:
        self._shapes = shapes
        self._stand_ins = stand_ins
        self._piece = piece
        self._keys: dict[str, str] = {}  # each with its stand-in
        self._forms: dict[str, tuple[str, str]] = {}  # a form of a secret -> what stands for it, and the secret
        self._pieces: dict[
            str, NewCharacters
        ] = {}  # a text -> the part of a secret in it that only its neighbour completes
        self._runs = LongRuns(stand_ins)
        self._learned: set[str] = set()
        self._done: dict[str, str] = {}
        self._shortest = SHORTEST_KEY
        self.replaced: set[str] = set()
        for text in texts:
            self._add_forms(text)
        self._named = frozenset(keys)  # their base64 is replaced by that of their stand-ins
        for key in sorted(self._named):
            self._add_key(key)

    def learn(self, text: str) -> None:
        if text in self._learned or not self._shapes:
            return
        self._learned.add(text)
        read = text
        for view in _views(text):
            for _, key in _secrets_in(view.text, seams=view.seams, everywhere=True):
                if len(key) >= SHORTEST_IN_WORDS or (len(key) >= SHORTEST_PASSWORD and any(map(str.isdigit, key))):
                    self._add_key(key)
            read = view.text
        # Only as it reads: in JSON text the `n` of a line break would be the beginning of a line.
        for run in (*private_keys_in(read), *encoded_keys_in(read, known=self._named)):
            if self._runs.add(run):
                self._done.clear()

    def learn_chain(self, texts: Sequence[str]) -> None:
        """Each of these texts goes on where the one before was cut, or a little before that."""
        for form, (stand_in, secret) in self._forms.items():
            for place, text in enumerate(texts[:-1]):
                for length in range(min(len(form) - 1, len(text)), 0, -1):
                    if not text.endswith(form[:length]):
                        continue
                    if (rest := _rest_of(form, texts=texts[place + 1 :], known=length)) is not None:
                        for where, at, first, last in ((text, len(text) - length, 0, length), *rest):
                            places = self._pieces.setdefault(where, {})
                            places |= {at + n: stand_in[first + n] for n in range(last - first)}
                        self.replaced.add(secret)
                        self._done.clear()
                        break

    def hidden(self, text: str) -> str:
        """The text with stand-ins: as long, in bytes and in characters. The very same one if there is no secret in it."""
        if len(text) < self._shortest and text not in self._pieces:
            return text
        done = self._done.get(text)
        if done is None:
            done = self._done[text] = self._hidden(text)
        return done

    def hidden_bytes(self, content: bytes) -> bytes:
        """The same of what may be text: else each byte counts as a character."""
        try:
            return self.hidden(content.decode()).encode()
        except UnicodeDecodeError:
            return self.hidden(content.decode("latin-1")).encode("latin-1")

    def _hidden(self, text: str) -> str:
        self.learn(text)
        spelled: dict[int, tuple[int, str]] = {}
        places = self._pieces.get(text, {}) | self._places(_View(text))
        for view in _views(text)[1:]:
            seen = self._places(view)
            starts, ends = _spans(view, text=text) if seen else ([], [])
            for place, new in seen.items():
                start, end = starts[place], ends[place]
                if end - start == 1:
                    places.setdefault(start, new)
                else:
                    spelled[start] = (end, spelled_alike(new, old=text[start:end]))
        if not places and not spelled:
            return text
        inside = {place for start, (end, _) in spelled.items() for place in range(start, end)}
        spelled |= {place: (place + 1, new) for place, new in places.items() if place not in inside}
        pieces: list[str] = []
        at = 0
        for start in sorted(spelled):
            end, new = spelled[start]
            pieces += (text[at:start], new)
            at = end
        return "".join([*pieces, text[at:]])

    def _places(self, view: "_View") -> NewCharacters:
        """The characters of secrets in a text, as they stand."""
        text = view.text
        places: NewCharacters = {}
        for run in self._runs.found_in(text):
            self.replaced.add(run.secret)
            # All of them: no other form of a secret has a say in it.
            places |= dict(enumerate(run.new, start=run.start))
        for form, (stand_in, secret) in self._forms.items():
            for start in _found(form, text=text):
                self._put(places, start=start, old=form, new=stand_in, secret=secret)
        for key, stand_in in self._keys.items():
            for first, start, length in _pieces_of(key, text=text, piece=self._piece):
                self._put(
                    places,
                    start=start,
                    old=key[first : first + length],
                    new=stand_in[first : first + length],
                    secret=key,
                )
        for start, key in _secrets_in(text, seams=view.seams) if self._shapes else ():
            self._put(places, start=start, old=key, new=self._stand_ins.of(key), secret=key)
        return places

    def _put(self, places: NewCharacters, *, start: int, old: str, new: str, secret: str) -> None:
        self.replaced.add(secret)
        for place, (before, character) in enumerate(zip(old, new, strict=True), start=start):
            if before != character:
                places.setdefault(place, character)

    def _add_key(self, key: str) -> None:
        if key not in self._keys and len(key) >= SHORTEST_KEY and can_be_replaced(key, least=1):
            self._keys[key] = self._stand_ins.of(key)
            self._add_forms(key)

    def _add_forms(self, secret: str) -> None:
        stand_in = self._stand_ins.of(secret)
        pairs = [(secret, stand_in), (quote(secret, safe=""), quote(stand_in, safe=""))]
        for ascii_only in (False, True):
            one, other = secret, stand_in
            for _ in range(JSON_LEVELS):
                one, other = _in_json(one, ascii_only=ascii_only), _in_json(other, ascii_only=ascii_only)
                pairs.append((one, other))
        for form, new in (*pairs, *paired_forms(secret, stand_in)):
            if len(form) == len(new):
                self._forms.setdefault(form, (new, secret))
        self._forms = dict(sorted(self._forms.items(), key=lambda pair: -len(pair[0])))
        self._shortest = min(self._shortest, len(secret))
        self._done.clear()


def _secrets_in(text: str, *, seams: tuple[int, ...] = (), everywhere: bool = False) -> Iterator[tuple[int, str]]:
    """Where each secret begins, and the secret: by its shape, and by the name before it. `everywhere`: only those that are sought
    wherever else they stand, which the value of a name need not be."""
    yield from keys_in(text, seams=seams)
    for found in _NAMED.finditer(text):
        group = found.lastgroup or ""
        value = found[group]
        if group in ("header", "userinfo") or not (everywhere or (group == "bare" and _NO_SECRET.match(value))):
            yield found.start(group), value


class _View(msgspec.Struct, frozen=True):
    """A way to read a text: with its escapes read, as a terminal shows it, or both."""

    text: str
    seams: tuple[int, ...] = ()
    is_plain: bool = False


def _views(text: str) -> list[_View]:
    """The text as it stands, and then what else it can be read as: the last with nothing around its words."""
    views = [_View(text)]
    if may_escape(text) and (read := plain(text)) != text:
        views.append(_View(read, is_plain=True))
    for view in views[:]:
        if may_drive_terminal(view.text) and (shown := as_shown(view.text)).seams:
            views.append(_View(shown.text, seams=shown.seams, is_plain=view.is_plain))
    return views


def _spans(view: _View, *, text: str) -> tuple[list[int], list[int]]:
    """Where in the text each character of the view begins and ends."""
    read, places = plain_spans(text) if view.is_plain else (text, list(range(len(text) + 1)))
    kept = as_shown(read).places if view.seams else list(range(len(read)))
    return [places[one] for one in kept], [places[one + 1] for one in kept]


def _in_json(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _found(piece: str, *, text: str) -> Iterator[int]:
    start = text.find(piece)
    while start >= 0:
        yield start
        start = text.find(piece, start + 1)


def _pieces_of(key: str, *, text: str, piece: int) -> Iterator[tuple[int, int, int]]:
    """Where pieces of at least `piece` characters of the key stand: the place in the key, that in the text, and their length."""
    least = min(piece, len(key))
    window = min(least, WINDOW)
    seen: set[tuple[int, int]] = set()
    for first in range(0, len(key) - window + 1, window):
        for start in _found(key[first : first + window], text=text):
            back = 0
            while back < min(first, start) and key[first - back - 1] == text[start - back - 1]:
                back += 1
            at = (first - back, start - back)
            if at in seen:
                continue
            seen.add(at)
            if (length := _alike(key, text=text, first=at[0], start=at[1])) >= least:
                yield *at, length


def _alike(key: str, *, text: str, first: int, start: int) -> int:
    """How many characters the key from `first` on and the text from `start` on have in common."""
    length = 0
    for one, other in zip(key[first:], text[start : start + len(key) - first], strict=False):
        if one != other:
            break
        length += 1
    return length


_Piece = tuple[str, int, int, int]
"""A text, where the piece begins in it, and the part of the secret that it is."""


def _rest_of(form: str, *, texts: Sequence[str], known: int) -> list[_Piece] | None:
    """How the next texts go on with a form of which `known` characters came; None where they do not."""
    text = texts[0] if texts else ""
    for first in range(known, 0, -1) if text else ():
        left = form[first:]
        if left and text.startswith(left):
            return [(text, 0, first, len(form))]
        if left.startswith(text):
            rest = _rest_of(form, texts=texts[1:], known=first + len(text))
            if rest is not None:
                return [(text, 0, first, first + len(text)), *rest]
    return None


# Private keys in texts, whatever stands before and behind each of their lines: file names, marks, quotes, `$`.
#
# From the line that begins a key to the line that ends it, each long run of base64 is the key's. What stands in front of all
# lines comes twice, a line of a key does not. Source: RFC 7468.
LONGEST_KEY = 16_384  # characters from its first line to its last; a key of 16,384 bits has 13,000
SHORTEST_KEY_BODY = 40  # characters; an Ed25519 key has 64
WIDE = 40  # characters of a line that is not the last: RFC 7468 has 64, OpenSSH 70, PGP 76
HEADERS = 4  # lines of a key that are not base64: `Proc-Type`, `DEK-Info`, an empty one
LONGEST_PREFIX = 512

_EDGE = re.compile(r"-----(?P<edge>BEGIN|END) [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?\b")
_RUN = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
_KINDS = tuple([re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")])


def private_keys_in(text: str) -> list[str]:
    """The base64 of each private key in the text, its lines joined. One may lack its first or its last line."""
    edges = list(_EDGE.finditer(text))
    found: list[str] = []
    for place, edge in enumerate(edges):
        before = edges[place - 1] if place else None
        behind = edges[place + 1] if place + 1 < len(edges) else None
        if edge["edge"] == "BEGIN":
            last = min(edge.end() + LONGEST_KEY, len(text) if behind is None else behind.end())
            if behind is not None and behind["edge"] == "END" and last == behind.end():
                found.append(_runs_of(text[_line_start(text, edge.start()) : last]))
            else:
                found.append(_runs_of(_begun(text[edge.end() : last])))
        elif before is None or before["edge"] == "END" or edge.start() - before.end() > LONGEST_KEY:
            first = max(edge.start() - LONGEST_KEY, 0 if before is None else before.end())
            found.append(_runs_of(_ended(text[first : edge.start()])))
    return [one for one in found if len(one) >= SHORTEST_KEY_BODY]


def _line_start(text: str, place: int) -> int:
    return max(text.rfind("\n", 0, place) + 1, place - LONGEST_PREFIX)


def _begun(text: str) -> str:
    """The lines of a key that has no last one: as long as they are wide, and the line where the text is cut."""
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines[: HEADERS + 1]) if _is_wide(line)), len(lines))
    last = next((place for place in range(first, len(lines)) if not _is_wide(lines[place])), len(lines))
    return "\n".join(lines[first : last + 1])


def _ended(text: str) -> str:
    """The lines of a key that has no first one; the last two are the prefix of the END line, and one that may be short."""
    lines = text.split("\n")
    first = max(0, len(lines) - 2)
    while first > 0 and _is_wide(lines[first - 1]):
        first -= 1
    return "\n".join(lines[first:])


def _is_wide(line: str) -> bool:
    return any(len(run) >= WIDE and _is_mixed(run) for run in _RUN.findall(line))


def _is_mixed(run: str) -> bool:
    """Base64 of anything has capitals, small letters and digits; paths and words rarely have all of them."""
    return all(kind.search(run) for kind in _KINDS)


def _runs_of(region: str) -> str:
    runs = _RUN.findall(region)
    times = Counter(runs)
    if sum([len(run) for run in runs if _is_mixed(run)]) < SHORTEST_KEY_BODY:
        return ""
    return "".join([run for run in runs if times[run] == 1 and not run.islower()])
