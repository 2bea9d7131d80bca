"""The fast ways of a family say what its plain way says, of every stream (promise assembly:split-anywhere).

Each family reads a stream alone with `fast=None`, and so does the assembler; a fast way only saves work. So every
stream is read twice, in several pieces: recorded ones, those of the lab, and sequences that hypothesis draws of usual and odd
events. tests/assembly/test_fast_runs.py does the same for frames that no family gives.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.asking import ask, body_of, path_of
from recordings import of_family, profile_of
from thoroughness import examples
from turnwise.assembly.response import Assembler, FastRuns
from turnwise.lab import builtin_scripts
from turnwise.testing.frames import random_splits
from turnwise.vocab import Frame, Response, ToolCallDelta, text_of
from turnwise.wire import anthropic_messages, gemini, openai_chat, openai_responses
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.family import Family, StreamDecoder
from turnwise.wire.gemini.stream import GeminiStreamDecoder
from turnwise.wire.openai_chat.stream import ChatStreamDecoder
from turnwise.wire.openai_responses.stream import ResponsesStreamDecoder
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile
from wire.gemini_streams import PROFILE
from wire.test_deltas_of_one_read import (
    BEGUN,
    ODD_ANTHROPIC,
    ODD_RESPONSES,
    OF_CALL,
    OF_ITEM,
    OF_TEXT,
    TEXT,
    responses,
)
from wire.test_deltas_of_one_read import (
    CREATED as RESPONSE_CREATED,
)
from wire.test_repeated_chunks import CHAT_DELTAS, GEMINI_PARTS, chat_chunk, gemini_chunk

LONGEST = 400_000  # bytes of a stream that is cut into many pieces
PLAIN: dict[str, Callable[[Profile, Limits], StreamDecoder]] = {
    "openai_chat": lambda profile, limits: ChatStreamDecoder(profile, limits, fast=None),
    "openai_responses": lambda profile, limits: ResponsesStreamDecoder(profile, limits, fast=None),
    "anthropic_messages": lambda profile, limits: MessagesStreamDecoder(profile, limits, fast=None),
    "gemini": lambda profile, limits: GeminiStreamDecoder(limits, fast=None),
}
FAMILIES = {
    family.name: family
    for family in (openai_chat.FAMILY, openai_responses.FAMILY, anthropic_messages.FAMILY, gemini.FAMILY)
}

each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())


def plainly(family: Family) -> Family:
    """The family, read by its plain way alone."""
    return msgspec.structs.replace(family, stream_decoder=PLAIN[family.name])


def read(
    family: Family, pieces: Iterable[bytes], *, profile: Profile, fast: type[FastRuns] | None = FastRuns
) -> tuple[list[Frame], bool, list[Frame], Response]:
    """The frames, whether more was expected, what those who watch see, and the whole. `fast` is the assembler's."""
    decoder, assembler = family.stream_decoder(profile, DEFAULT_LIMITS), Assembler(fast=fast)
    frames: list[Frame] = []
    healed: list[Frame] = []
    for piece in pieces:
        found = decoder.feed(piece)
        frames += found
        healed += assembler.receive_all(found)
    expects_more = decoder.expects_more()
    last = decoder.finish()
    return [*frames, *last], expects_more, [*healed, *assembler.receive_all(last)], assembler.finish()


def differs(family: Family, pieces: list[bytes], *, profile: Profile = PROFILE) -> str:
    """Where the two ways say different things of these pieces; empty where they agree."""
    quick = read(family, pieces, profile=profile)
    plain = read(plainly(family), pieces, profile=profile, fast=None)
    if quick == plain:
        return ""
    pairs = zip(quick[0], plain[0], strict=False)
    first = [f"{one!r:.300} in place of {other!r:.300}" for one, other in pairs if one != other]
    return first[0] if first else f"{quick!r:.900} in place of {plain!r:.900}"


def chunkings(stream: bytes, *, seed: int) -> Iterator[list[bytes]]:
    """Whole, in reads of a socket, an event at a time, and at random places."""
    yield [stream]
    yield [stream[at : at + 1500] for at in range(0, len(stream), 1500)]
    if len(stream) <= LONGEST:
        end = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
        yield [event + end for event in stream.split(end)]
        yield next(random_splits(stream, seed=seed, count=1))


def test_the_first_number_may_come_with_a_later_piece() -> None:
    """Proves: a piece of the usual way may bear the first number of its stream, and what comes out of order behind it is left
    out in both ways."""
    item = {"type": "function_call", "id": "fc", "call_id": "call_1", "name": "write", "arguments": ""}
    events = [
        {"type": "response.created", "response": {"id": "r", "model": "m"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *[
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": delta, **number}
            for delta, number in [
                ("{", {}),
                ('"a"', {"sequence_number": 6}),
                ("{", {"sequence_number": 0}),
                (":1}", {"sequence_number": 7}),
            ]
        ],
    ]
    written = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]
    family = openai_responses.FAMILY
    assert [differs(family, pieces) for pieces in (written, [b"".join(written)])] == ["", ""]
    frames = read(family, written, profile=PROFILE)[0]
    assert "".join([frame.arguments or "" for frame in frames if isinstance(frame, ToolCallDelta)]) == '{"a":1}'


@pytest.mark.wide
@pytest.mark.promise("assembly:split-anywhere")
@each_family
def test_recorded_streams_are_read_alike(corpus: Path, family: Family) -> None:
    """Proves: frames, what those who watch see, and the whole response are equal for every recorded stream."""
    wrong: list[str] = []
    rows = list(of_family(corpus, family.name))
    for seed, row in enumerate(rows):
        for pieces in chunkings(row.path.read_bytes(), seed=seed):
            if found := differs(family, pieces, profile=profile_of(row)):
                wrong.append(f"{row.file} in {len(pieces)} pieces: {found}")
    assert wrong == []
    assert len(rows) > 180, "the corpus holds at least 185 streams of each family"


def streams_of_lab(family: str) -> Iterator[tuple[str, list[bytes]]]:
    """What the lab sends for each step of each of its scripts, as the pieces in which it sends it."""
    for name, script in builtin_scripts().items():
        for number, step in enumerate(script.steps):
            alone = msgspec.structs.replace(script, steps=(msgspec.structs.replace(step, asked=""),))
            path, body = path_of(family, model=name, stream=True), body_of(family, model=name, stream=True)
            outgoing, _ = ask(path, body, scripts={name: alone})
            if outgoing.content_type.startswith("text/event-stream"):
                yield f"{name}, step {number}", list(outgoing.pieces)


@pytest.mark.costly
@pytest.mark.promise("assembly:split-anywhere")
@each_family
def test_streams_of_the_lab_are_read_alike(family: Family) -> None:
    """Proves: the same for each step of every script, those that send something odd included."""
    tried, wrong = 0, []
    for seed, (name, sent) in enumerate(streams_of_lab(family.name)):
        for pieces in (sent, *chunkings(b"".join(sent)[:LONGEST], seed=seed)):
            tried += 1
            if found := differs(family, pieces):
                wrong.append(f"{name} in {len(pieces)} pieces: {found}")
    assert wrong == []
    assert tried > 100


def chat_event(delta: bytes) -> bytes:
    return delta if not delta.startswith(b"{") or b'"choices"' in delta else chat_chunk(delta, number=None)


def finished(word: str) -> bytes:
    return b'{"id":"c-1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}' % word.encode()


ODD_CHAT = [
    finished("stop"),
    finished("length"),
    b"[DONE]",
    b"no json",
    b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}',
    b'{"error":{"message":"overloaded"}}',
    chat_chunk(b'{"content":"\xff"}', number=None),
    chat_chunk(b'{"content":"\\ud83d"}', number=None),
    chat_chunk(b'{"content":"\\ude00"}', number=None),
    chat_chunk(b'{"content":["a"]}', number=None),
    chat_chunk(b'{"content":"another"}', number=None).replace(b'"index":0', b'"index":1', 1),
    chat_chunk(b'{"content":"one"}', number=None) + chat_chunk(b'{"content":"two"}', number=None),
    b'{"id":"c-1","choices":[{"message":{"content":"all of it"},"finish_reason":"stop"}]}',
    chat_chunk(b'{"content":"' + b"long" * 40_000 + b'"}', number=None),
]
ODD_GEMINI = [
    b'{"candidates":[{"finishReason":"STOP"}]}',
    b'{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":9}}',
    b'{"error":{"code":500,"message":"no"}}',
    b'{"promptFeedback":{"blockReason":"SAFETY"}}',
    b"[DONE]",
    b"no json",
    gemini_chunk(b'{"text":"a"},{"text":"b"}', number=None),
    gemini_chunk(b'{"text":"\xff"}', number=None),
    gemini_chunk(b'{"text":"signed","thoughtSignature":"x"}', number=None),
    gemini_chunk(b'{"functionCall":{"name":"write","args":{"a":1}}}', number=None),
    gemini_chunk(b'{"text":"' + b"long" * 40_000 + b'"}', number=None),
]
STOP = [
    b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}',
    b'{"type":"message_stop"}',
    b'{"type":"content_block_stop","index":1}',
    b'{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_use","id":"s","input":{}}}',
    b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c2","name":"w","input":{"a":1}}}',
]
DONE_RESPONSE = b'{"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}'
MESSAGE = b'{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg","content":[]}}'
OF_MESSAGE = [responses(TEXT, 1, piece, number) for number, piece in enumerate(("one", "two", "", "\U0001f600"), 2)]
NO_DELTA = b'{"type":"response.function_call_arguments.delta","output_index":0}'
UNNUMBERED = [event.replace(b'"sequence_number"', b'"number"') for event in (*OF_ITEM, *OF_MESSAGE)]
EVENTS: dict[str, tuple[list[bytes], list[bytes], list[bytes]]] = {
    "openai_chat": (
        [chat_chunk(b'{"role":"assistant","content":""}', number=None)],
        [chat_chunk(delta, number=None) for delta in CHAT_DELTAS],
        ODD_CHAT,
    ),
    "gemini": (
        [gemini_chunk(b'{"text":"begun"}', number=None)],
        [gemini_chunk(part, number=None) for part in GEMINI_PARTS],
        ODD_GEMINI,
    ),
    "anthropic_messages": (BEGUN, [*OF_CALL, *OF_TEXT], [*ODD_ANTHROPIC, *STOP]),
    "openai_responses": (
        RESPONSE_CREATED,
        [*OF_ITEM, *OF_MESSAGE, *UNNUMBERED],
        [*ODD_RESPONSES, MESSAGE, NO_DELTA, DONE_RESPONSE],
    ),
}


@st.composite
def drawn_streams(draw: st.DrawFn, name: str) -> list[bytes]:
    """Events of a response under way in runs, odd ones between them, a byte of it damaged now and then; cut anywhere."""
    begun, usual, odd = EVENTS[name]
    runs = draw(
        st.lists(
            st.tuples(st.integers(0, len(usual) - 1), st.integers(1, 24), st.sampled_from([*odd, b""])), max_size=8
        )
    )
    values = [*begun]
    for place, length, between in runs:
        values += [usual[(place + (at if length % 2 else 0)) % len(usual)] for at in range(length)]
        values += [between] if between else []
    named = draw(st.booleans()) and name in ("anthropic_messages", "openai_responses")
    stream = b"".join([_event(value, named=named) for value in values])
    if stream and draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(stream) - 1))
        stream = stream[:at] + draw(st.sampled_from([b"", b'"', b"\n", b"\xff", b"}"])) + stream[at + 1 :]
    size = draw(st.sampled_from([0, 7, 90, 400, 3000]))
    if not size:
        return [stream]
    chance = random.Random(draw(st.integers(0, 1000)))
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        step = chance.randint(1, 2 * size)
        pieces.append(stream[at : at + step])
        at += step
    return pieces


def _event(value: bytes, *, named: bool) -> bytes:
    try:
        kind = msgspec.json.decode(value, type=dict[str, Any]).get("type") if named else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        kind = None
    return (b"event: %s\n" % kind.encode() if isinstance(kind, str) else b"") + b"data: " + value + b"\n\n"


@pytest.mark.promise("assembly:split-anywhere", "assembly:lost-piece")
@each_family
@settings(max_examples=examples(150))
@given(data=st.data())
def test_drawn_streams_are_read_alike(family: Family, data: st.DataObject) -> None:
    """Proves: whatever follows whatever, in whatever pieces, the two ways say the same."""
    assert differs(family, data.draw(drawn_streams(family.name))) == ""


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("place", range(3))
def test_a_piece_of_an_item_without_its_text_is_told_as_lost(place: int) -> None:
    """The typed way took it for an empty piece, so an argument whose key a byte had left was lost without a word."""
    events = [*RESPONSE_CREATED, *OF_ITEM]
    events.insert(len(RESPONSE_CREATED) + place, NO_DELTA)
    stream = b"".join([_event(event, named=False) for event in events])
    assert read(openai_responses.FAMILY, [stream], profile=PROFILE)[3].lost


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("index", [b"1", b'"1"', b"null"])
@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_a_late_piece_of_an_item_is_passed_over_however_its_index_is_written(index: bytes, fast: bool) -> None:
    """A piece with an odd field goes the plain way: its number says that it comes late there, too."""
    late = responses(TEXT, 1, "late ", 3).replace(b'"output_index": 1', b'"output_index": ' + index)
    assert late.count(b'"output_index": ' + index) == 1
    pieces = [responses(TEXT, 1, piece, number) for number, piece in ((2, "one "), (4, "two "), (5, "three"))]
    stream = b"".join(
        [_event(event, named=False) for event in (*RESPONSE_CREATED, MESSAGE, *pieces[:2], late, pieces[2])]
    )
    family = openai_responses.FAMILY if fast else plainly(openai_responses.FAMILY)
    response = read(family, [stream], profile=PROFILE)[3]
    assert (text_of(response.message), response.lost) == ("one two three", True)
