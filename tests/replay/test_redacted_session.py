"""A session with stand-ins: no key that was used is in it, and it replays to the same commands with the same stand-ins."""

import base64
import json
import random
import re
from collections.abc import Sequence
from itertools import islice

import msgspec
import pytest

from journal.journalled import journalled, led_by_lab
from replay.test_replay import SAMPLE, kept_in, played
from terminal.running import script
from turn.kept_lab import scripts_of_lab
from turn.kept_parts import RECORDINGS, STAND_INS, part_names
from turnwise.endpoints.key_hiding import plain
from turnwise.errors import CallerError
from turnwise.journal.turn_writer import RequestSent
from turnwise.lab import builtin_scripts
from turnwise.replay.redacted_session import Hidden, TextChange, texts_in, with_texts, without_secrets
from turnwise.replay.secret_finder import SecretFinder, StandIns
from turnwise.replay.session_file import RecordedSession
from turnwise.turn.events import Command, Event, ResponseReceived, RunTools, TurnStarted
from turnwise.turn.machine import fold_session
from turnwise.vocab import calls_of, text_of

KEY = "sk-proj-AbC123dEf456-gHi789jKl_xyz"
RANDOM = b"the same for each run of the tests"
ESCAPED = "".join([f"\\u{ord(one):04x}" for one in KEY])
SPELLINGS = (KEY, f"a {KEY} b", ESCAPED, json.dumps(KEY)[1:-1], json.dumps(ESCAPED)[1:-1])
_WORD = re.compile(r"[A-Za-z]{5,}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
TAKEN = 40
QUOTED = 4  # characters of a key
EACH = 5  # one of so many in the wide lane
CUT = "writer-file"
HELD_BACK = 32  # characters that a continuation has to say again


def hidden_of(session: RecordedSession) -> Hidden:
    return without_secrets(session, env={"OPENAI_API_KEY": KEY}, key=RANDOM)


def normal(command: Command, *, change: TextChange) -> Command:
    """With stand-ins, and without the digests of what a person was shown: these are of the texts with stand-ins."""
    same = TextChange(lambda text: "digest" if _DIGEST.fullmatch(text) else text, lambda content: content)
    return with_texts(with_texts(command, change), same)


def with_keys(turns: Sequence[Sequence[Event]], *, seed: int) -> list[list[Event]]:
    """These turns with the key, in some spelling, in place of some words that were said in them."""
    draw = random.Random(seed)
    said = sorted(
        {word for events in turns for event in events for text in texts_in(event) for word in _WORD.findall(text)}
    )
    names = {
        offer.spec.name
        for events in turns
        for event in events
        for offer in getattr(getattr(event, "config", None), "tools", ())
    }
    words = draw.sample([word for word in said if word not in names and word[0].isupper()] or ["Nothing"], k=1)
    spelling = draw.choice(SPELLINGS)

    def put(text: str) -> str:
        return re.sub(rf"\b(?:{'|'.join(words)})\b", lambda _: spelling, text)

    change = TextChange(put, lambda content: content)
    return [[with_texts(event, change) for event in events] for events in turns]


def assert_hidden_alike(session: RecordedSession, *, name: str) -> int:
    """How many secrets were replaced. What the machine quotes of a cut text may end early in a key: there a few characters of the
    recorded turn's are its stand-in's in the export."""
    hidden = hidden_of(session)
    finder = SecretFinder(StandIns(RANDOM), keys=[KEY], piece=QUOTED)
    change, nothing = TextChange(finder.hidden, finder.hidden_bytes), TextChange(str, bytes)
    old, _ = played(session)
    new, player = played(hidden.session)
    assert hidden.replays_alike, name
    for one, other in zip(old, new, strict=True):
        assert [normal(command, change=change) for command in one] == [
            normal(command, change=nothing) for command in other
        ], name
    assert [one.kind for one in player.differences] == [one.kind for one in played(session)[1].differences], name
    everything = msgspec.json.encode(hidden.session).decode()
    assert KEY not in everything and KEY not in plain(everything)
    return hidden.secrets


@pytest.mark.costly
@pytest.mark.promise("keep:replay")
def test_sessions_with_keys_in_them_replay_alike_with_stand_ins() -> None:
    """Proves: of sessions of every kind with a key in any spelling in them, each command with stand-ins is the command of the
    session with stand-ins, to the last byte, and the key is gone."""
    replaced = 0
    for seed, kept in zip(range(TAKEN), kept_in(SAMPLE), strict=False):
        replaced += assert_hidden_alike(journalled(with_keys(kept.turns, seed=seed)), name=kept.name)
    assert replaced >= TAKEN // 2


@pytest.mark.wide
@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("part", [part for part in part_names() if part not in (RECORDINGS, STAND_INS)])
def test_kept_sessions_of_every_part_replay_alike_with_stand_ins(part: str) -> None:
    """Proves: the same of a fifth of all that the suite keeps: each is played five times for it."""
    for seed, kept in enumerate(islice(kept_in(part), None, None, EACH)):
        assert_hidden_alike(journalled(with_keys(kept.turns, seed=seed)), name=kept.name)


TALKS = script(
    "talks-of-keys",
    f"""
[[steps]]
text = "I will write {KEY} down."

[[steps.calls]]
name = "note"
arguments = {{ text = "key {KEY}" }}

[[steps.calls]]
name = "bash"
arguments = {{ command = "echo '{{\\"k\\":\\"{KEY}\\"}}'" }}

[[steps]]
text = "It said: {{result}}"
""",
)


@pytest.mark.promise("keep:replay")
def test_no_key_is_in_an_export_and_the_bodies_are_those_with_stand_ins() -> None:
    """Proves: the bytes of an export hold the key in no encoding; each request's hash is that of the body with stand-ins, so the
    export compares bodies as the journal does."""
    session = led_by_lab(TALKS, family="openai_chat", stream=True, said=(f"Use {KEY}.", "Again."))
    assert KEY in msgspec.json.encode(session).decode()
    hidden = hidden_of(session)
    content = msgspec.json.encode(hidden.session)
    for form in (
        KEY.encode(),
        base64.b64encode(KEY.encode())[:-4],
        KEY.encode().hex().encode(),
        KEY[:12].encode(),
        KEY[-12:].encode(),
    ):
        assert form not in content
    _, player = played(hidden.session)
    sent = [one for turn in hidden.session.turns for one in turn.entries if isinstance(one.record, RequestSent)]
    assert player.differences == [] and sum([turn.bodies_compared for turn in player.played]) == len(sent) == 4
    hashes = [one.record.body_sha256 for one in sent if isinstance(one.record, RequestSent)]
    before = [
        one.record.body_sha256 for turn in session.turns for one in turn.entries if isinstance(one.record, RequestSent)
    ]
    assert set(hashes).isdisjoint(before)


def test_the_hash_of_an_unknown_body_is_not_in_an_export() -> None:
    """Proves: with a hash, who knows the rest could try out what a short text was."""
    session = led_by_lab(TALKS, family="openai_chat", stream=True, said=("Go.",))
    (turn,) = session.turns
    entries = [
        msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, body_sha256="ab" * 32))
        if isinstance(one.record, RequestSent)
        else one
        for one in turn.entries
    ]
    strange = msgspec.structs.replace(session, turns=(msgspec.structs.replace(turn, entries=tuple(entries)),))
    hidden = hidden_of(strange)
    assert {
        one.record.body_sha256 for one in hidden.session.turns[0].entries if isinstance(one.record, RequestSent)
    } == {""}


@pytest.mark.promise("keep:replay")
@pytest.mark.parametrize("before", [1, 9, 25])
def test_a_secret_that_the_output_limit_cut_is_replaced_in_both_halves(before: int) -> None:
    """Proves: where a call was continued in the middle of a secret, no response holds it whole; its halves get the halves of the
    stand-in, and the joined call has it. It stands in JSON, with a line break in it from nine characters on."""
    session = led_by_lab(scripts_of_lab()[CUT], family="openai_chat", stream=True, said=("Go.",))
    cut = next(one.record for one in session.turns[0].entries if isinstance(one.record, ResponseReceived))
    seam = len(calls_of(cut.response.message)[0].arguments)
    joined = ran_with(session)
    written = joined[seam - HELD_BACK - before : seam + 3]
    said = [text for one in session.turns[0].entries for text in texts_in(one.record)]
    assert not any(written in text for text in said) and joined.count(written) == 1
    secret = json.loads(f'"{written}"')
    hidden = without_secrets(session, env={}, texts=(secret,), key=RANDOM)
    stand_in = json.dumps(StandIns(RANDOM).of(secret))[1:-1]
    assert hidden.replays_alike and hidden.secrets == 1 and stand_in != written
    assert ran_with(hidden.session) == joined.replace(written, stand_in)


def ran_with(session: RecordedSession) -> str:
    """The arguments of the first call that ran."""
    commands = [command for command in played(session)[0][0] if isinstance(command, RunTools)]
    return commands[0].calls[0].arguments


def test_texts_to_hide_are_replaced_and_short_ones_refused() -> None:
    """Proves: `--hide` takes any words, in titles and folders too; one of three letters would be in every word."""
    session = led_by_lab(builtin_scripts()["parallel-calls"], family="openai_chat", stream=True, said=("Jürgen asks.",))
    row = msgspec.structs.replace(session.row, title="Jürgen asks.", folder="/home/jürgen müller/x")
    session = msgspec.structs.replace(session, row=row)
    hidden = without_secrets(session, env={}, texts=("Jürgen", "jürgen müller"), key=RANDOM)
    assert "rgen" not in msgspec.json.encode(hidden.session).decode() and hidden.secrets == 2
    assert hidden.session.row.folder.startswith("/home/") and hidden.session.row.folder.endswith("/x")
    first = fold_session([turn.events for turn in hidden.session.turns]).messages[0]
    assert len(text_of(first).encode()) == len("Jürgen asks.".encode())
    for short in ("abc", "", "----", "0000", "a-b-c", "ü", "日"):
        with pytest.raises(CallerError, match="at least 4 bytes of letters"):
            without_secrets(session, env={}, texts=(short,))


def test_two_characters_outside_ascii_can_be_hidden_and_a_text_that_is_nowhere_is_counted() -> None:
    """Proves: a short name in another script goes, as long as it was, and who misspelled a text can see it."""
    session = led_by_lab(builtin_scripts()["parallel-calls"], family="openai_chat", stream=True, said=("日本 asks.",))
    hidden = without_secrets(session, env={}, texts=("日本", "nowhere at all"), key=RANDOM)
    assert "日本" not in msgspec.json.encode(hidden.session).decode() and hidden.replays_alike
    assert hidden.times[0] >= 1 and hidden.times[1] == 0 and hidden.secrets == 1


def test_what_the_environment_names_as_secret_is_replaced_where_it_looks_like_a_key() -> None:
    """Proves: keys of providers count from eight characters on; others if their variable's name says so and they look like keys;
    paths and words do not."""
    session = led_by_lab(
        builtin_scripts()["parallel-calls"],
        family="openai_chat",
        stream=True,
        said=("lm-studio hunter2hunter2hunter2 /home/me/keys/1234.json plain-words-only 1234567890123456789",),
    )
    env = {
        "OPENAI_API_KEY": "lm-studio",
        "DB_PASSWORD": "hunter2hunter2hunter2",
        "MY_CREDENTIALS": "/home/me/keys/1234.json",
        "MY_TOKEN": "plain-words-only",
        "NUMBER": "1234567890123456789",
    }
    hidden = without_secrets(session, env=env, key=RANDOM)
    said = text_of(fold_session([turn.events for turn in hidden.session.turns]).messages[0]).split()
    assert said[2:] == ["/home/me/keys/1234.json", "plain-words-only", "1234567890123456789"]
    assert said[0] != "lm-studio" and "hunter" not in said[1] and hidden.secrets == 2


@pytest.mark.promise("keep:replay")
def test_the_key_that_the_sessions_own_turns_took_is_replaced_whatever_its_variable_is_called() -> None:
    """Proves: the turn names the variable, so its value is a key, though neither name nor look say so."""
    used = "tplwqnzrkmvbxsdhgfjcyauoei"
    session = led_by_lab(
        builtin_scripts()["parallel-calls"], family="openai_chat", stream=True, said=(f"it is {used}",)
    )
    first, *others = session.turns
    started = first.entries[0].record
    assert isinstance(started, TurnStarted)
    config = msgspec.structs.replace(started.config, api_key_env="MYPROV")
    entry = msgspec.structs.replace(first.entries[0], record=msgspec.structs.replace(started, config=config))
    first = msgspec.structs.replace(first, entries=(entry, *first.entries[1:]))
    session = msgspec.structs.replace(session, turns=(first, *others))
    hidden = without_secrets(session, env={"MYPROV": used, "OTHER": "words"}, key=RANDOM)
    said = text_of(fold_session([turn.events for turn in hidden.session.turns]).messages[0])
    assert said.startswith("it is ") and used not in said and hidden.secrets == 1
