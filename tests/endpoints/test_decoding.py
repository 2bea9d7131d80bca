"""One reader for live and recorded bytes: it bounds, counts and never raises."""

import pytest

from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.testing import byte_by_byte
from turnwise.vocab import FaultKind, FinishReason, Message, Text, TextDelta
from turnwise.wire.family import family
from turnwise.wire.profiles import Limits, builtin_profiles
from whole_streams import read_stream

CHAT, PROFILE = family("openai_chat"), builtin_profiles()["openai_chat"]
STREAM = (
    b": hello\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
BODY = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'


def test_stream_and_body_give_the_same_message() -> None:
    """Through the two convenience functions."""
    response = read_stream(byte_by_byte(STREAM), family=CHAT, profile=PROFILE)
    whole, frames = read_body(BODY, family=CHAT, profile=PROFILE)
    assert response.message == whole.message == Message("assistant", (Text("Hello"),))
    assert response.finish is whole.finish is FinishReason.STOP and frames


BODIES = {
    "openai_chat": BODY,
    "openai_responses": b'{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}',
    "anthropic_messages": b'{"type":"message","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}',
    "gemini": b'{"candidates":[{"content":{"parts":[{"text":"Hello"}]},"finishReason":"STOP"}]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_a_byte_order_mark_before_a_body_means_nothing(name: str) -> None:
    """As before a stream, in every family."""
    response, _ = read_body(b"\xef\xbb\xbf" + BODIES[name], family=family(name), profile=builtin_profiles()[name])
    assert response.message == Message("assistant", (Text("Hello"),))
    assert response.fault is None and not response.lost and not response.repairs


def test_frames_count_what_the_provider_said() -> None:
    """Keep-alives and halves of events count nothing; `finished` turns true with the finish reason."""
    reader = ResponseReader(CHAT, profile=PROFILE)
    seen = [(reader.feed(line + b"\n\n"), reader.heard, reader.finished) for line in STREAM.split(b"\n\n")]
    texts = [[frame.text for frame in frames if isinstance(frame, TextDelta)] for frames, _, _ in seen]
    assert texts == [[], ["Hel"], ["lo"], [], []]
    counts = [count for _, count, _ in seen]
    assert counts[0] == 0 < counts[1] < counts[2] and [finished for _, _, finished in seen[:3]] == [False, False, True]
    assert reader.flush() == [] and reader.finish().message == Message("assistant", (Text("Hello"),))


@pytest.mark.promise("assembly:bounded")
def test_response_past_its_limit_is_a_named_fault() -> None:
    """Streamed and whole: what fits is kept, the rest is not held, and the reader says that it has had enough."""
    limits = Limits(response_bytes=100, stream_bytes=100)
    reader = ResponseReader(CHAT, profile=PROFILE, limits=limits)
    for _ in range(50):
        reader.feed(b'data: {"choices":[{"index":0,"delta":{"content":"abc"}}]}\n\n')
    response = reader.finish()
    assert reader.faulted and response.message == Message("assistant", (Text("abc"),))
    whole, _ = read_body(BODY + b" " * 100, family=CHAT, profile=PROFILE, limits=limits)
    for fault in (response.fault, whole.fault):
        assert fault is not None and fault.kind is FaultKind.TOO_LARGE and "100 bytes" in fault.message


@pytest.mark.promise("assembly:bounded")
def test_what_events_say_around_their_pieces_does_not_count_as_kept() -> None:
    """Pieces of a few bytes come in events of some hundred: the stream's own limit is for these."""
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"abc"}}]}\n\n'
    response = read_stream([chunk] * 50, family=CHAT, profile=PROFILE, limits=Limits(response_bytes=150))
    assert response.fault is None and response.message == Message("assistant", (Text("abc" * 50),))
    response = read_stream([chunk] * 51, family=CHAT, profile=PROFILE, limits=Limits(response_bytes=150))
    assert response.fault is not None and response.fault.kind is FaultKind.TOO_LARGE


def test_stream_that_is_none_is_a_protocol_fault() -> None:
    """HTML, for one."""
    response = read_stream([b"<html><body>Log in"], family=CHAT, profile=PROFILE)
    assert response.fault is not None and response.fault.kind is FaultKind.PROTOCOL
