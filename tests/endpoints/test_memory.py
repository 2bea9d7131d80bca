"""What a response takes in memory, counted by Python itself: in ASCII three times its own bytes at most, however it comes.

From issue 12, line 13: 64 MiB took half a gigabyte. One character outside of the basic plane makes Python keep all of a text with
four bytes for each character, and a decoder may hold a second copy for a while. So such responses are bounded by three times
the limit on a response's bytes instead, and less of them is kept.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

import pytest

from peak_memory import (
    FAMILIES,
    PART_BYTES,
    READ_BYTES,
    START_BYTES,
    TIMES,
    Counted,
    KiB,
    MiB,
    call_events,
    end_events,
    event,
    reads,
    taken,
    text_event,
)
from turnwise.assembly.response_reading import ResponseReader
from turnwise.endpoints.exchange import MOST_BYTES
from turnwise.vocab import FaultKind, Text
from turnwise.wire.family import family
from turnwise.wire.profiles import Limits, builtin_profiles

pytestmark = pytest.mark.wide


def texts(name: str, *, piece: str, size: int, last: str = "") -> Iterator[bytes]:
    said = text_event(name, piece)
    yield from [said] * (size // len(said))
    if last:
        yield text_event(name, last)
    yield from end_events(name)


def calls(name: str, *, piece: str, pieces: int, size: int) -> Iterator[bytes]:
    done = number = 0
    while done < size:
        for said in call_events(name, number, ['{"a":"', *[piece] * pieces, '"}']):
            done += len(said)
            yield said
        number += 1
    yield from end_events(name)


def broken(name: str, *, piece: str, size: int) -> Iterator[bytes]:
    """Every other event lacks its end."""
    said = text_event(name, piece)
    for _ in range(size // (2 * len(said))):
        yield said
        yield said[:-4] + b"\n\n"
    yield from end_events(name)


def lines(name: str, *, line: bytes, size: int) -> Iterator[bytes]:
    yield text_event(name, "a")
    yield from [line] * (size // len(line))
    yield from end_events(name)


SHAPES: dict[str, Callable[[str], Iterator[bytes]]] = {
    "text in words": partial(texts, piece="word", size=MiB // 4),
    "text in pages": partial(texts, piece="x" * 4096, size=4 * MiB),
    "text in one line": partial(texts, piece="x" * (4 * MiB), size=5 * MiB),
    "text of escapes": partial(texts, piece='"\n' * 2048, size=4 * MiB),
    "one call in words": partial(calls, piece="word", pieces=1024, size=MiB // 8),
    "long calls": partial(calls, piece="x" * 4096, pieces=256, size=4 * MiB),
    "small calls": partial(calls, piece="abc", pieces=1, size=MiB // 8),
    "broken events": partial(broken, piece="word", size=MiB // 8),
    "long broken events": partial(broken, piece="x" * (32 * KiB), size=2 * MiB),
    "comments": partial(lines, line=b": " + b"x" * 8192 + b"\n\n", size=4 * MiB),
    "no events": partial(lines, line=b"<p>" + b"x" * 8192, size=4 * MiB),
}


@pytest.mark.promise("assembly:bounded", "safe:bounded")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FAMILIES)
def test_streamed_response_takes_three_times_its_bytes_at_most(name: str, shape: str) -> None:
    """Its finish counted as well; what was read is gone by then."""
    chunks = list(reads(SHAPES[shape](name)))
    size = sum(map(len, chunks))
    reader = ResponseReader(family(name), profile=builtin_profiles()[name])
    counted = Counted()
    for chunk in chunks:
        reader.feed(chunk)
    response = reader.finish()
    peak = counted.end()
    assert peak <= TIMES * size + START_BYTES + PART_BYTES * len(response.message.parts)


BODIES: dict[str, tuple[bytes, bytes]] = {
    "openai_chat": (b'{"choices":[{"index":0,"message":{"content":"', b'"},"finish_reason":"stop"}]}'),
    "openai_responses": (
        b'{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"',
        b'"}]}]}',
    ),
    "anthropic_messages": (b'{"type":"message","content":[{"type":"text","text":"', b'"}],"stop_reason":"end_turn"}'),
    "gemini": (b'{"candidates":[{"content":{"parts":[{"text":"', b'"}]},"finishReason":"STOP"}]}'),
}


def body(name: str, *, text: str, size: int, first: str = "") -> Iterator[bytes]:
    head, tail = BODIES[name]
    unit = text.encode() * 256
    yield head + first.encode()
    for _ in range(size // len(unit)):
        yield unit
    yield tail


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("name", FAMILIES)
async def test_body_is_not_held_twice_while_it_is_decoded(name: str) -> None:
    """Its pieces are joined, and let go of before the text is made."""
    peak, size, fault = await taken(name, body(name, text="x", size=4 * MiB), stream=False)
    assert fault is None and peak <= 2 * size + START_BYTES


LIMITS = Limits(response_bytes=MiB)
# The most that is kept of a text with four bytes for each character, of others.
SIZES = [
    MiB // 2 - 32 * KiB,
    MiB - 32 * KiB,
]
# A text's unit, and what stands before it: narrow, then the widths that Python has for a character, alone and mixed.
WRITINGS = {
    "ASCII": ("x", ""),
    "Latin": ("é", ""),
    "Chinese": ("中", ""),
    "emoji": ("😀", ""),
    "one Chinese": ("x", "中"),
    "one emoji": ("x", "😀"),
}


@pytest.mark.promise("assembly:bounded", "safe:bounded")
@pytest.mark.parametrize("writing", WRITINGS)
@pytest.mark.parametrize("name", FAMILIES)
async def test_no_response_takes_more_than_three_times_the_limit(name: str, writing: str) -> None:
    """Whole or streamed, up to the limit: what would take more is refused by name, and before it is taken."""
    unit, first = WRITINGS[writing]
    most = TIMES * LIMITS.response_bytes + START_BYTES
    for size in SIZES:
        bodies = body(name, text=unit, size=size, first=first)
        peak, _, fault = await taken(name, bodies, stream=False, limits=LIMITS)
        assert peak <= most and (fault is None or fault is FaultKind.TOO_LARGE)
        assert fault is None or size > MiB // 2
        piece = unit * (4000 // len(unit.encode()))
        for begin, last in ((first, ""), ("", first)):
            streamed = [*([text_event(name, begin)] if begin else []), *texts(name, piece=piece, size=size, last=last)]
            peak, _, fault = await taken(name, streamed, stream=True, limits=LIMITS)
            assert peak <= most and (fault is None or fault is FaultKind.TOO_LARGE)
            assert fault is None or size > MiB // 2


VALUES = {
    "lists in a list": ("[1],", "[1]"),
    "objects in a list": ("{},", "{}"),
    "numbers in a list": ("1,", "1"),
    "line breaks between": ("[\n1\n],", "[1]"),
}


def whole_body(name: str, arguments: str) -> bytes:
    """A body with one call."""
    said, text = arguments.encode(), json.dumps(arguments).encode()
    match name:
        case "openai_chat":
            call = b'{"id":"c","type":"function","function":{"name":"put","arguments":%s}}' % text
            return b'{"choices":[{"index":0,"message":{"tool_calls":[%s]},"finish_reason":"tool_calls"}]}' % call
        case "openai_responses":
            call = b'{"type":"function_call","id":"f","call_id":"c","name":"put","arguments":%s}' % text
            return b'{"object":"response","status":"completed","output":[%s]}' % call
        case "anthropic_messages":
            call = b'{"type":"tool_use","id":"c","name":"put","input":%s}' % said
            return b'{"type":"message","content":[%s],"stop_reason":"tool_use"}' % call
        case _:
            call = b'{"functionCall":{"name":"put","args":%s}}' % said
            return b'{"candidates":[{"content":{"parts":[%s]},"finishReason":"STOP"}]}' % call


def slices(body: bytes) -> list[bytes]:
    """What the test holds before memory is counted."""
    return [body[at : at + READ_BYTES] for at in range(0, len(body), READ_BYTES)]


def values(unit: str, last: str, *, size: int) -> str:
    return '{"z":[' + unit * (size // len(unit)) + last + "]}"


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("shape", VALUES)
@pytest.mark.parametrize("name", FAMILIES)
async def test_small_values_in_arguments_are_not_built_while_they_are_decoded(name: str, shape: str) -> None:
    """In a body and in a stream. From a tester: `[[1],[1],...]` took 30 times its bytes."""
    arguments = values(*VALUES[shape], size=MiB // 8)
    peak, came, fault = await taken(name, slices(whole_body(name, arguments)), stream=False)
    assert fault is None and peak <= TIMES * came + START_BYTES
    events = [*call_events(name, 0, [arguments]), *end_events(name)]
    peak, came, fault = await taken(name, events, stream=True)
    assert fault is None and peak <= TIMES * came + START_BYTES


ARGUMENTS = {
    "values": values("[1],", "[1]", size=MiB),
    "ASCII": '{"z":"%s"}' % ("x" * MiB),
    "escapes": '{"z":"%s"}' % ('\\n\\"ab' * (MiB // 6)),
    "Latin": '{"z":"%s"}' % ("é" * (MiB // 2)),
    "one emoji": '{"z":"%s😀"}' % ("x" * MiB),
}


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize(("call_bytes", "tells"), [(MiB // 2, True), (100 * KiB, False), (100 * KiB, True)])
@pytest.mark.parametrize("written", ARGUMENTS)
@pytest.mark.parametrize("name", FAMILIES)
async def test_call_past_its_limit_is_refused_before_it_is_built(
    name: str, written: str, call_bytes: int, tells: bool
) -> None:
    """In a body, in one event and in pieces. From a tester: 60 MiB in one call took 1.7 GB before the limit was looked at.
    `tells`: the call is told as such in place of the response's fault, at no more memory."""
    limits, arguments = Limits(call_bytes=call_bytes, tells_long_calls=tells), ARGUMENTS[written]
    kind = None if tells else FaultKind.TOO_LARGE
    pieces = [arguments[at : at + 4096] for at in range(0, len(arguments), 4096)]
    for said in ([arguments], pieces)[: 1 if written == "values" else 2]:
        events = b"".join([*call_events(name, 0, said), *end_events(name)])
        peak, came, fault = await taken(name, slices(events), stream=True, limits=limits)
        assert fault is kind and peak <= TIMES * came + MOST_BYTES  # reading ends within one portion
    peak, came, fault = await taken(name, slices(whole_body(name, arguments)), stream=False, limits=limits)
    assert fault is kind and peak <= TIMES * came + tells * KiB


CHAT = '{"choices":[{"index":0,"delta":{"content":"a",%s}}]}'
OUTPUT = '{"object":"response","status":"completed","output":[%s]}'
MESSAGE = '{"type":"message","stop_reason":"end_turn","content":[%s]}'
CANDIDATE = '{"candidates":[{"content":{"parts":[{"text":"a"}]},%s}]}'
LISTS = {
    "openai_chat": [
        '{"choices":[%s]}',
        '{"choices":[{"index":0,"message":{"content":[%s]}}]}',
        CHAT % '"tool_calls":[%s]',
        CHAT % '"annotations":[%s]',
        CHAT % '"reasoning_details":[%s]',
        '{"choices":[{"index":0,"delta":{"content":"a"}}],"citations":[%s]}',
    ],
    "openai_responses": [
        OUTPUT,
        OUTPUT % '{"type":"message","content":[%s]}',
        OUTPUT % '{"type":"message","content":[{"type":"output_text","text":"a","annotations":[%s]}]}',
        OUTPUT % '{"type":"reasoning","summary":[%s]}',
        '{"type":"response.completed","response":{"status":"completed","output":[%s]}}',
        '{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[%s]}}',
    ],
    "anthropic_messages": [
        MESSAGE,
        MESSAGE % '{"type":"text","text":"a","citations":[%s]}',
        '{"type":"message_start","message":{"type":"message","content":[%s]}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a","citations":[%s]}}',
    ],
    "gemini": [
        '{"candidates":[%s]}',
        '{"candidates":[{"content":{"parts":[%s]}}]}',
        '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x","partialArgs":[%s]}}]}}]}',
        CANDIDATE % '"groundingMetadata":{"groundingChunks":[%s]}',
        CANDIDATE % '"citationMetadata":{"citationSources":[%s]}',
        "[%s]",
    ],
}
"""Lists that the decoders read."""


def tiny_items(size: int) -> dict[str, str]:
    fields = ",".join([f'"{number:05x}":1' for number in range(size // 10)])
    return {
        "numbers": "1," * (size // 2) + "1",
        "objects": "{}," * (size // 3) + "{}",
        "fields": "{" + fields + "}",
    }


async def taken_both_ways(name: str, json: str) -> AsyncIterator[tuple[int, int, FaultKind | None]]:
    """As a body, and as one event."""
    yield await taken(name, slices(json.encode()), stream=False)
    streamed = b"data: " + json.encode() + b"\n\n" + b"".join(end_events(name))
    yield await taken(name, slices(streamed), stream=True)


ITEMS = tiny_items(384 * KiB)
FEW_ITEMS = tiny_items(60 * KiB)


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("name", FAMILIES)
async def test_tiny_items_of_a_response_are_refused_before_they_are_built(name: str, items: str) -> None:
    """In each list that is read. From a tester: `[1,1,1,...]` in `content` took 20 to 50 times its bytes."""
    for shape in LISTS[name]:
        async for peak, came, fault in taken_both_ways(name, shape % ITEMS[items]):
            assert fault is FaultKind.TOO_LARGE and peak <= TIMES * came + START_BYTES


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("items", FEW_ITEMS)
@pytest.mark.parametrize("name", FAMILIES)
async def test_tiny_items_in_a_response_of_usual_length_take_a_few_mebibytes(name: str, items: str) -> None:
    """What is too short to be counted costs little, whatever it holds."""
    for shape in LISTS[name]:
        async for peak, _, _ in taken_both_ways(name, shape % FEW_ITEMS[items]):
            assert peak <= 12 * MiB


LOGPROB = '{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[{"token":"x","logprob":-0.5,"bytes":[120]}]}'
PASSED_OVER = {
    "openai_chat": [
        '{"choices":[{"index":0,"logprobs":{"content":[%s]},"message":{"content":"a"},"finish_reason":"stop"}]}',
        '{"prompt_logprobs":[%s],"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}',
    ],
    "openai_responses": [OUTPUT % '{"type":"message","content":[{"type":"output_text","text":"a","logprobs":[%s]}]}'],
    "anthropic_messages": [MESSAGE[:-1] % '{"type":"text","text":"a"}' + ',"logprobs":[%s]}'],
    "gemini": [CANDIDATE % '"finishReason":"STOP","logprobsResult":{"chosenCandidates":[%s]}'],
}


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("unit", [LOGPROB, "1234"])
@pytest.mark.parametrize("name", FAMILIES)
async def test_long_lists_that_no_decoder_reads_are_passed_over(name: str, unit: str) -> None:
    """The probabilities and the ids of tokens are no parts of a response, however many there are."""
    for shape in PASSED_OVER[name]:
        body = shape % ",".join([unit] * (MiB // len(unit)))
        peak, came, fault = await taken(name, slices(body.encode()), stream=False)
        assert fault is None and peak <= TIMES * came + START_BYTES


MENDING_BYTES = 8 * MiB  # what mending takes at most, whatever came
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a control character": lambda json: json[:-1] + b',"note":"a\x01b"}',
    "no UTF-8": lambda json: json[:-1] + b',"note":"a\xffb"}',
    "half a character": lambda json: json[:-1] + b',"note":"a\\ud800"}',
    "another behind it": lambda json: json + b"{}",
    "its end missing": lambda json: json[:-1],
}


def keyed_values(size: int) -> str:
    """What takes Python the most for its bytes: small objects, no two of them with the same key."""
    return '{"z":[' + "".join([f'{{"k{number:07x}":{number + 1000}}},' for number in range(size // 17)]) + "{}]}"


MENDED: dict[str, str] = {
    "the most values": keyed_values(130 * KiB),
    "more values": keyed_values(250 * KiB),
    "the longest of these": '{"z":"%s😀"}' % ("x" * 255 * KiB),
    "the longest": '{"z":"%s"}' % ("x" * 511 * KiB),
    "the longest, with replacements": '{"z":"%s中"}' % ("x" * 511 * KiB),
    "longer": '{"z":"%s😀"}' % ("x" * 511 * KiB),
}


def damaged(name: str, arguments: str, damage: Callable[[bytes], bytes], *, streamed: bool) -> bytes:
    if not streamed:
        return damage(whole_body(name, arguments))
    events: list[bytes] = []
    for said in call_events(name, 0, [arguments]):
        is_long = len(said) > len(arguments) // 2
        events.append(b"data: " + damage(said[6:-2]) + b"\n\n" if is_long else said)
    return b"".join([*events, *end_events(name)])


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("written", MENDED)
@pytest.mark.parametrize("name", FAMILIES)
async def test_broken_json_takes_no_more_than_a_few_mebibytes_to_mend(name: str, written: str) -> None:
    """Mending builds what it reads, several times: it is bounded by what it takes, whatever came. It took 25 MiB."""
    for damage in DAMAGES.values():
        for streamed in (False, True):
            sent = damaged(name, MENDED[written], damage, streamed=streamed)
            peak, _, _ = await taken(name, slices(sent), stream=streamed)
            assert peak <= MENDING_BYTES


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("damage", ["a control character", "no UTF-8"])
@pytest.mark.parametrize("name", FAMILIES)
async def test_broken_json_that_is_too_long_to_be_mended_takes_three_times_its_bytes(name: str, damage: str) -> None:
    """It is lost, and asked for again like any other loss."""
    for arguments in (values("[1],", "[1]", size=4 * MiB), '{"z":"%s😀"}' % ("x" * 4 * MiB)):
        for streamed in (False, True):
            sent = damaged(name, arguments, DAMAGES[damage], streamed=streamed)
            peak, came, _ = await taken(name, slices(sent), stream=streamed)
            assert peak <= TIMES * came + START_BYTES


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("name", ["openai_chat", "gemini"])
def test_sources_past_any_answers_count_are_left_out_and_told(name: str) -> None:
    """A source of ten bytes takes some hundred: 64 MiB of them took two gigabytes."""
    frames: list[bytes] = [text_event(name, "a")]
    for start in range(0, 40_000, 4000):
        urls = [f"{number:06x}" for number in range(start, start + 4000)]
        if name == "openai_chat":
            frames.append(event({"choices": [{"index": 0, "delta": {"content": "a"}}], "citations": urls}))
        else:
            sources = {"citationSources": [{"uri": url} for url in urls]}
            frames.append(event({"candidates": [{"content": {"parts": [{"text": "a"}]}, "citationMetadata": sources}]}))
    frames += end_events(name)
    reader = ResponseReader(family(name), profile=builtin_profiles()[name])
    counted = Counted()
    for chunk in reads(frames):
        reader.feed(chunk)
    response = reader.finish()
    assert counted.end() <= 4 * MiB
    (part,) = response.message.parts
    assert isinstance(part, Text) and len(part.citations) == 4096
    assert [repair.kind for repair in response.repairs] == ["citations_left_out"]
