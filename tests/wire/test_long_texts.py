"""A long text is read in slices, and is the same text: `wire/json_fields.py` and `wire/long_events.py`.

From issue 12, line 13: a response costs three times its bytes in memory. The judge is the JSON decoder itself, reading at once.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordings import FAMILIES, of_family
from turnwise.wire import json_fields as long_texts
from turnwise.wire.anthropic_messages.events import Event
from turnwise.wire.cohere_chat.answers import Event as CohereEvent
from turnwise.wire.gemini.chunks import Chunk as GeminiChunk
from turnwise.wire.gemini.chunks import PlainPart
from turnwise.wire.gemini.stream import Framing
from turnwise.wire.json_fields import UNREADABLE, compact
from turnwise.wire.long_events import read_long
from turnwise.wire.ollama_chat.answers import Chunk as OllamaChunk
from turnwise.wire.openai_chat.chunks import Chunk
from turnwise.wire.openai_responses.items import Delta
from turnwise.wire.profiles import Limits
from turnwise.wire.sse import SseParser

DECODERS: dict[str, list[Callable[[bytes], object]]] = {
    "openai_chat": [msgspec.json.Decoder(Chunk).decode],
    "openai_responses": [msgspec.json.Decoder(Delta).decode],
    "anthropic_messages": [msgspec.json.Decoder(Event).decode],
    "gemini": [
        msgspec.json.Decoder(GeminiChunk[PlainPart]).decode,
        msgspec.json.Decoder(GeminiChunk[msgspec.Raw]).decode,
    ],
    "ollama_chat": [msgspec.json.Decoder(OllamaChunk).decode],
    "cohere_chat": [msgspec.json.Decoder(CohereEvent).decode],
}
ALL = [decode for decoders in DECODERS.values() for decode in decoders]
TINY = 8  # bytes that are a long string in these tests
PIECE = 16

WHOLE = [
    "a",
    "word ",
    "é",
    "ж",
    "中",
    "😀",
    "\\n",
    '\\"',
    "\\\\",
    "\\/",
    "\\u0041",
    "\\u4e2d",
    "\\ud83d\\ude00",
    "\\u0031",
    "7" * 9,
]
BROKEN = ["\\q", "\\ud83d", "\\ude00", "\\u12g4", "\\u00", "\x01", "\n", '"', "\\"]
units = st.lists(st.sampled_from(WHOLE), max_size=40)
NO_UTF8 = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x80"]


@st.composite
def strings(draw: st.DrawFn, *, broken: bool) -> bytes:
    pieces = draw(units)
    if broken and draw(st.booleans()):
        pieces.insert(draw(st.integers(0, len(pieces))), draw(st.sampled_from(BROKEN)))
    said = f'"{"".join(pieces)}"'.encode()
    if broken and draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(1, len(said) - 1))
        said = said[:at] + draw(st.sampled_from(NO_UTF8)) + said[at:]
    return said


def outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except UNREADABLE as error:
        return type(error), str(error)


def outcome_kind(read: Callable[[], object]) -> object:
    try:
        return read()
    except UNREADABLE as error:
        return type(error)


@given(strings(broken=True))
def test_string_that_is_read_in_slices_is_what_the_decoder_reads_at_once(said: bytes) -> None:
    """With escapes, characters of all widths, and what is none of both, wherever the slices end."""
    at_once = outcome(lambda: msgspec.json.decode(said, type=str))
    for piece in (1, 7, 12, PIECE):
        assert outcome(lambda piece=piece: long_texts.read_long_string(said, piece_bytes=piece)) == at_once


@given(strings(broken=True))
def test_utf8_that_is_read_in_slices_is_what_python_reads_at_once(said: bytes) -> None:
    """Its errors by their kind: the place of the first byte is counted from the slice."""
    at_once = outcome_kind(lambda: str(said, "utf-8"))
    for piece in (1, 2, 7):
        assert outcome_kind(lambda piece=piece: long_texts.read_utf8(said, piece_bytes=piece)) == at_once


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values, st.sampled_from([None, 0, 2]), st.booleans())
def test_json_without_its_white_space_is_what_the_decoder_makes_of_it(
    value: object, indent: int | None, is_ascii: bool
) -> None:
    """Wherever the slices end; the white space in texts stays."""
    said = json.dumps(value, indent=indent, ensure_ascii=is_ascii).encode("utf-8", "replace")
    for piece in (1, 5, PIECE):
        assert long_texts.read_compact(memoryview(said), piece_bytes=piece) == compact(said).decode()


KEYS = [
    *("choices", "delta", "message", "content", "reasoning", "tool_calls", "function", "arguments", "finish_reason"),
    *("usage", "type", "text", "partial_json", "content_block", "output_index", "item_id", "candidates", "parts"),
    *(
        "functionCall",
        "args",
        "partialArgs",
        "stringValue",
        "thought",
        "a key that nobody knows",
        "t\\u0065xt",
        "7" * 9,
    ),
]
SHAPES = [
    '{"choices":[{"index":0,"delta":{"content":%s,"reasoning":%s}}],"usage":{"a":%s}}',
    '{"choices":[{"message":{"content":[{"type":"text","text":%s}],"annotations":[%s],"refusal":%s}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":%s,"function":{"name":%s,"arguments":%s}}]}}]}',
    '{"type":"response.output_text.delta","output_index":0,"delta":%s,"item_id":%s,"logprobs":[%s]}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s,"citation":{"a":[%s,%s]}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{%s:%s,"b": %s }}}',
    '{"candidates":[{"content":{"parts":[{"text":%s},{"functionCall":{"args":{"z": [%s]}},"thoughtSignature":%s}]}}]}',
    '{"candidates":[{"content":{"parts":[{"functionCall":{"partialArgs":[{"jsonPath":%s,"stringValue":%s}]}}]},"index":%s}]}',
    '{"type":%s,"type":%s,"delta":%s}',
    '{"content":1,"id":%s,"choices":[{"delta":{"content":5,"content":%s}}],"model":%s}',
]


def json_values(*, broken: bool) -> st.SearchStrategy[bytes]:
    said = strings(broken=broken)
    keys = st.sampled_from(KEYS).map(lambda key: f'"{key}"'.encode()) | said
    leaf = said | st.sampled_from([b"1", b"null", b"true", b"-1.5e3", b"{}", b"[]", b"nul"])
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=4).map(lambda items: b"[" + b" ,".join(items) + b"]")
            | st.lists(st.tuples(keys, inner), max_size=5).map(
                lambda pairs: b"{" + b",\n".join([key + b": " + value for key, value in pairs]) + b"}"
            )
        ),
        max_leaves=12,
    )


def shaped(*, broken: bool) -> st.SearchStrategy[bytes]:
    said = strings(broken=broken)
    filled = st.tuples(st.sampled_from(SHAPES), said, said, said | st.just(b"7"))
    return filled.map(lambda drawn: drawn[0].encode() % drawn[1:])


def check(text: bytes, decode: Callable[[bytes], object], *, long_bytes: int = TINY) -> None:
    """The same value, which is read from what is left without the strings; else the same error."""
    at_once = outcome(lambda: decode(text))
    read: list[bytes] = []

    def note(said: bytes) -> object:
        read.append(said)
        return decode(said)

    assert outcome(lambda: read_long(text, note, long_bytes=long_bytes)) == at_once
    if not (isinstance(at_once, tuple) and isinstance(at_once[0], type)):
        assert len(read) == 1


@given(shaped(broken=False) | shaped(broken=True) | json_values(broken=False) | json_values(broken=True), st.data())
def test_event_without_its_long_strings_is_read_like_the_whole(text: bytes, data: st.DataObject) -> None:
    """By all typed decoders: long keys, keys written with escapes, keys that come twice, broken and cut texts, fields of another
    kind, and strings of digits, which could be taken for the numbers that stand for strings."""
    if data.draw(st.integers(0, 4)) == 0:
        text = text[: data.draw(st.integers(0, len(text)))]
    for decode in ALL:
        check(text, decode)


@given(st.lists(st.text("0123456789\u0663", min_size=7, max_size=9), min_size=3, max_size=3), st.sampled_from(SHAPES))
def test_digits_are_not_taken_for_the_numbers_that_stand_for_strings(said: list[str], shape: str) -> None:
    """Written as they are and as escapes, in texts and in raw JSON, alone and within quotes of their own."""
    plain = [f'"{one}"' for one in said]
    escaped = ['"' + "".join([f"\\u{ord(digit):04x}" for digit in one]) + '"' for one in said]
    quoted = [f'"\\"{one}\\""' for one in said]
    for written in (plain, escaped, quoted, [plain[0], escaped[1], quoted[2]]):
        for decode in ALL:
            check((shape % tuple(written)).encode(), decode)


def events_of(family: str, stream: bytes) -> Iterator[bytes]:
    if family == "gemini":
        framing = Framing(limits=Limits())
        yield from [*framing.feed(stream), *framing.finish()]
    elif family == "ollama_chat":
        yield from stream.splitlines()
    else:
        parser = SseParser()
        yield from [event.data for event in [*parser.feed(stream), *parser.finish()]]


@pytest.mark.parametrize("family", sorted(set(FAMILIES.values())))
def test_recorded_events_without_their_long_strings_are_read_like_the_whole(family: str, corpus: Path) -> None:
    """The events of all recordings that have an escape or a character outside of ASCII, the first 20 of each stream."""
    seen = 0
    for row in of_family(corpus, family):
        stream = row.path.read_bytes()
        telling = [text for text in events_of(family, stream) if b"\\" in text or not text.isascii()]
        for text in telling[:20]:
            seen += 1
            for decode in DECODERS[family]:
                check(text, decode)
                check(text, decode, long_bytes=200)
    assert seen > 200 or family in ("ollama_chat", "cohere_chat")  # of which there are few recordings, and no stand-ins


@pytest.mark.costly
@given(st.lists(st.sampled_from(["x", "é", "中", "😀", "\\n", '\\"']), min_size=1, max_size=4), st.booleans())
def test_long_text_of_an_event_is_what_the_decoder_reads_at_once(pieces: list[str], is_cut: bool) -> None:
    """At its real length, whole and cut."""
    said = "".join(pieces) * (200_000 // len("".join(pieces).encode()))
    for shape in SHAPES[:8]:
        text = (shape % (f'"{said}"', '"a"', '"b"')).encode()
        for decode in ALL:
            check(text[: len(text) // 2] if is_cut else text, decode, long_bytes=long_texts.LONG_BYTES)
