"""A body in place of a stream is held once, and a stream whose first line is torn is a stream: `wire/sse.py`."""

import json

import pytest

from turnwise.testing import every_split
from turnwise.vocab import FaultKind, Response, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import Limits, builtin_profiles
from turnwise.wire.sse import StreamBeginning
from whole_streams import read_stream

BODIES = {
    "anthropic_messages": {
        "type": "message",
        "content": [{"type": "text", "text": "hi\ndata: x"}],
        "stop_reason": "end_turn",
    },
    "openai_responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi\ndata: x"}]}],
    },
}
STREAMS = {
    "anthropic_messages": (
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}\n\n'
        b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\ndata: {"type":"message_stop"}\n\n'
    ),
    "openai_responses": (
        b'data: {"type":"response.output_text.delta","output_index":0,"delta":"hi"}\n\n'
        b'data: {"type":"response.completed","response":{"status":"completed","output":[]}}\n\n'
    ),
}


def read(name: str, *chunks: bytes, limits: Limits | None = None) -> Response:
    profile = builtin_profiles()[name]
    return read_stream(chunks, family=family(name), profile=profile, limits=limits or Limits())


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", BODIES)
def test_body_in_place_of_a_stream_is_read_wherever_it_is_cut(name: str, indent: int | None) -> None:
    """On one line and on many, a text in it that looks like a line of a stream included."""
    body = b" \n" + json.dumps(BODIES[name], indent=indent).encode()
    whole = read(name, body)
    assert text_of(whole.message) == "hi\ndata: x" and whole.fault is None
    for chunks in every_split(body):
        assert read(name, *chunks) == whole


@pytest.mark.promise("assembly:split-anywhere", "assembly:lost-piece")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("name", STREAMS)
def test_stream_whose_first_line_begins_with_a_brace_is_a_stream(name: str, line_end: bytes) -> None:
    """The rest of a torn event stands before the first field, and is told as a loss; wherever the network cuts."""
    stream = (b'{"type":"response.crea\n' + STREAMS[name]).replace(b"\n", line_end)
    whole = read(name, stream)
    assert text_of(whole.message) == "hi" and whole.repairs
    for chunks in every_split(stream):
        assert read(name, *chunks) == whole


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("name", BODIES)
def test_line_that_begins_with_a_brace_and_does_not_end_is_too_large(name: str) -> None:
    """It is held no longer than any other line, and a body of many lines no longer than a response."""
    limits = Limits(line_bytes=1000, response_bytes=4000)
    endless = read(name, *[b'{"a":"' + b"x" * 94] * 11, limits=limits)
    assert endless.fault is not None and endless.fault.kind is FaultKind.TOO_LARGE
    lines = read(name, *[b"{" + b"x" * 98 + b"\n"] * 50, limits=limits)
    assert lines.fault is not None and lines.fault.kind is FaultKind.TOO_LARGE


def test_what_may_be_a_body_is_held_back_until_a_field_comes() -> None:
    """Then all of it is given to the parser, and what follows as it comes."""
    beginning = StreamBeginning(limits=Limits())
    assert [beginning.take(chunk) for chunk in (b"\n", b"{", b"\r", b"\ndat")] == [b"\n", b"", b"", b""]
    assert beginning.breaks_off
    assert beginning.take(b"a: 1") == b"\n{\r\ndata: 1"
    assert beginning.take(b"2\n") == b"2\n" and not beginning.breaks_off
