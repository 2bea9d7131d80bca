"""Chunks that differ in one string only are read as the whole decoder reads them, or left to it."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.testing.wire_conformance import decode_stream
from turnwise.vocab import Frame, Mended
from turnwise.wire import gemini, openai_chat
from turnwise.wire.family import Family
from turnwise.wire.repeated_chunks import Alike
from wire.gemini_streams import PROFILE


class Said(msgspec.Struct):
    text: str
    other: str = ""


def read(text: bytes) -> str:
    return msgspec.json.decode(text, type=Said).text


def learned(text: bytes, string: str) -> Alike[str]:
    alike: Alike[str] = Alike()
    alike.learn(text, string, rest="said", read=read)
    return alike


@pytest.mark.parametrize(
    "text",
    [
        b'{"text":"a"}',
        b'{"other":"x", "text" : "a" , "unknown":[1]}',
        b'{"text":"first","text":"a"}',
        '{"text":"é"}'.encode(),
    ],
)
def test_the_string_of_a_chunk_like_the_last_is_found(text: bytes) -> None:
    """Whatever stands around it: blanks, other keys, the same key before."""
    string = read(text)
    alike = learned(text, string)
    others = ["b", 'a quote " and a \\', "line\nend", "\u00fc\U0001f600", '","other":"y', "text"]
    texts = [
        text.replace(json.dumps(string, ensure_ascii=False).encode(), json.dumps(other).encode()) for other in others
    ]
    assert (alike.rest, alike.strings(texts, start=0), alike.strings(texts, start=4)) == ("said", others, others[4:])


@pytest.mark.parametrize(
    ("text", "string"),
    [
        (b'{"other":"a","text":"a"}', "a"),  # the first one is not the piece
        (b'{"text":"text"}', "text"),  # a key, not the piece
        (b'{"text":":"}', ":"),  # between a key and its value
        (b'{"text":"\\u0061"}', "a"),  # written otherwise than we would
        (b'{"text":"a","text":"b"}', "a"),  # said again
    ],
)
def test_a_string_that_is_not_surely_the_piece_is_not_learned(text: bytes, string: str) -> None:
    """Another string in its place shows it."""
    assert learned(text, string).rest is None


@each(
    "text",
    [
        b'{"text":"b","other":"c"}',
        b'{"text":""}',
        b'{"text":"',
        b'{"text":"}',
        b'{"text":null}',
        b'{"text":"a\nb"}',
        b'{"text":"\xff"}',
        b'{"text":"\\ud800"}',
        b'{"text":"a""b"}',
        b'{"text":"a","text":"b"}',
        b' {"text":"b"}',
    ],
)
def test_what_is_not_one_whole_string_is_left_to_the_decoder(text: bytes) -> None:
    """Also where it begins and ends like the one before; what follows it waits, so that the order stays."""
    alike = learned(b'{"text":"a"}', "a")
    assert alike.strings([b'{"text":"b"}', text, b'{"text":"c"}'], start=0) == ["b"]


@given(st.binary(max_size=12), st.sampled_from([b'"', b""]))
def test_no_bytes_are_read_otherwise_than_by_the_decoder(middle: bytes, quote: bytes) -> None:
    """Whatever a stranger puts between the beginning and the end of a usual chunk."""
    text = b'{"text":' + quote + middle + quote + b',"other":"x"}'
    found = learned(b'{"text":"a","other":"x"}', "a").strings([text], start=0)
    assert not found or found == [read(text)]


def test_streams_whose_chunks_all_differ_are_given_up() -> None:
    """Learning costs more than a chunk: it has to pay."""
    alike: Alike[str] = Alike()
    tries = 0
    while alike.may_learn:
        alike.learn(b'{"n":%d,"text":"a"}' % tries, "a", rest="said", read=read)
        assert alike.strings([b'{"n":%d,"text":"a"}' % (tries + 1)], start=0) == []
        tries += 1
    assert tries == 4


def gemini_chunk(part: bytes, *, number: int | None) -> bytes:
    padding = b"" if number is None else b',"padding":%d' % number
    return (
        b'{"candidates":[{"content":{"parts":[' + part + b']}}],"usageMetadata":{"promptTokenCount":3}' + padding + b"}"
    )


def gemini_parts() -> list[bytes]:
    pieces = ["one", "two \\n", '\\"', "\\u00e9", "ü", "", "TokenCount", '","thought":"', "end"]
    more = '{"functionCall":{"partialArgs":[{"jsonPath":"$.%s","stringValue":"%s","willContinue":true}],"willContinue":true}}'
    parts = ['{"text":"' + piece + '"}' for piece in pieces]
    parts += ['{"text":"' + piece + '","thought":true}' for piece in pieces]
    parts += ['{"text":"back"}', '{"text":"again"}', '{"functionCall":{"name":"write","willContinue":true}}']
    parts += [more % (path, piece) for path in ("a", "b", "b") for piece in pieces]
    parts += [(more % ("b", "")).replace(',"willContinue":true}]', "}]"), '{"functionCall":{}}', more % ("b", "late")]
    return [part.encode() for part in parts]


GEMINI_PARTS = gemini_parts()


def chat_chunk(delta: bytes, *, number: int | None) -> bytes:
    padding = b"" if number is None else b',"padding":%d' % number
    return (
        b'{"id":"c-1","model":"m","choices":[{"index":0,"delta":' + delta + b',"finish_reason":null}]' + padding + b"}"
    )


def chat_deltas() -> list[bytes]:
    pieces = ["one", "two \\n", '\\"', "\\u00e9", "ü", "", "content", '","reasoning":"x', "end"]
    around = [
        '{"role":"assistant","content":null,"reasoning_content":"~"}',
        '{"reasoning":"~"}',  # the other source had it first
        '{"content":"~"}',
        '{"content":"~","reasoning_content":"more"}',
        '{"content":"~","tool_calls":[]}',
        '{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"write","arguments":"~"}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"~"}}]}',
        '{"tool_calls":[{"index":1,"id":"","function":{"arguments":"~"}}]}',
        '{"tool_calls":[{"index":0,"function":{"arguments":"~"}},{"index":1,"function":{"arguments":"~"}}]}',
        '{"reasoning":"~"}',
        '{"refusal":"~"}',
    ]
    return [delta.replace("~", piece).encode() for delta in around for piece in (*pieces, *pieces)]


CHAT_DELTAS = chat_deltas()


@pytest.mark.parametrize(
    ("family", "alike", "different"),
    [
        (
            gemini.FAMILY,
            [gemini_chunk(part, number=None) for part in GEMINI_PARTS],
            [gemini_chunk(part, number=number) for number, part in enumerate(GEMINI_PARTS)],
        ),
        (
            openai_chat.FAMILY,
            [chat_chunk(delta, number=None) for delta in CHAT_DELTAS],
            [chat_chunk(delta, number=number) for number, delta in enumerate(CHAT_DELTAS)],
        ),
    ],
    ids=["gemini", "chat"],
)
@pytest.mark.parametrize("together", [True, False], ids=["one-read", "a-read-each"])
def test_chunks_that_are_alike_say_what_others_do(
    family: Family, alike: list[bytes], different: list[bytes], together: bool
) -> None:
    """A field that nobody reads and that changes with each chunk keeps them from being alike: the frames are the same."""
    assert frames_of(family, alike, together=together) == frames_of(family, different, together=together)


def frames_of(family: Family, texts: list[bytes], *, together: bool) -> list[Frame]:
    events = [b"data: " + text + b"\n\n" for text in texts]
    frames = decode_stream(family, [b"".join(events)] if together else events, profile=PROFILE)
    return [frame for frame in frames if not isinstance(frame, Mended)]
