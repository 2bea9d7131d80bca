"""A call past its limit is found before a text of it is built, and no other call is."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.vocab import FaultKind
from turnwise.wire.family import family
from turnwise.wire.long_events import call_too_long
from turnwise.wire.profiles import SLICE_BYTES, Limits, builtin_profiles

LIMIT = 400
TEXTS = st.text(st.sampled_from('x"\\\n\t é中😀\x00'), max_size=LIMIT)


@given(st.text() | TEXTS, st.integers(0, LIMIT), st.booleans())
def test_call_is_found_only_if_its_text_is_longer(text: str, limit: int, escaped: bool) -> None:
    """Each text that is longer is found, unless escapes of six bytes hide how long it is."""
    body = json.dumps({"function_call": {"name": "put", "arguments": text}}, ensure_ascii=escaped).encode(
        "utf-8", "replace"
    )
    found = call_too_long(body, limit_bytes=limit) is not None
    longer = len(text.encode("utf-8", "replace")) > limit
    assert found <= longer
    if b"\\u" not in body:
        assert found == longer


@given(
    st.recursive(st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)),
    st.integers(0, 200),
)
def test_object_is_counted_without_its_white_space(value: object, limit: int) -> None:
    """That is how the families hand it on."""
    text = json.dumps({"input": {"z": value}}, indent=3, ensure_ascii=False).encode()
    arguments = json.dumps({"z": value}, separators=(",", ":"), ensure_ascii=False).encode()
    assert (call_too_long(text, limit_bytes=limit) is not None) == (len(arguments) > limit)


@each("shift", range(13))
def test_escapes_are_counted_where_two_slices_meet(shift: int) -> None:
    """A slice never ends within an escape."""
    text = "x" * (SLICE_BYTES - shift) + '\\"\\\\\\n"' * 5
    body = json.dumps({"arguments": text}).encode()
    assert call_too_long(body, limit_bytes=len(text)) is None
    assert call_too_long(body, limit_bytes=len(text) - 1) is not None


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "content": [{"type": "output_text", "text": "x" * LIMIT}]},
        {"type": "mcp_call", "name": "find", "arguments": "x" * LIMIT},
        {"type": "server_tool_use", "name": "find", "input": {"q": "x" * LIMIT}},
        {"type": "response.output_text.delta", "delta": "x" * LIMIT},
        {"type": "new", "config": {"arguments": "x" * LIMIT}},
    ],
)
def test_what_is_no_call_of_ours_may_be_longer(item: object) -> None:
    """The limit on the whole response holds for it."""
    assert call_too_long(msgspec.json.encode({"output": [item]}), limit_bytes=LIMIT) is None
    assert call_too_long(msgspec.json.encode(item), limit_bytes=LIMIT) is None


def test_text_before_a_call_past_its_limit_is_kept() -> None:
    """The events before it are read, and the fault names the call."""
    limits = Limits(call_bytes=SLICE_BYTES)
    decoder = family("openai_chat").stream_decoder(builtin_profiles()["openai_chat"], limits)
    call = {"index": 0, "id": "c", "function": {"name": "put", "arguments": "x" * 2 * SLICE_BYTES}}
    said = [{"content": "Now."}, {"tool_calls": [call]}, {"content": "Then."}]
    frames = decoder.feed(
        b"".join([b'data: {"id":"r","choices":[{"delta":%s}]}\r\n\r\n' % msgspec.json.encode(delta) for delta in said])
    )
    texts = [getattr(frame, "text", "") for frame in frames]
    assert "Now." in texts and "Then." not in texts
    fault = getattr(frames[-1], "fault", None)
    assert fault is not None and fault.kind is FaultKind.TOO_LARGE and "`put`" in fault.message


@pytest.mark.parametrize("framed", [b"data: %s", b"[%s", b"data: %s\n\n"])
def test_call_past_its_limit_is_refused_where_its_stream_ends_without_a_line_break(framed: bytes) -> None:
    """In Gemini's two framings: at the end of a stream it was an exception."""
    decoder = family("gemini").stream_decoder(builtin_profiles()["gemini"], Limits(call_bytes=SLICE_BYTES))
    call = {"functionCall": {"name": "put", "args": {"z": "x" * 2 * SLICE_BYTES}}}
    chunk = msgspec.json.encode({"candidates": [{"content": {"parts": [call]}}]})
    frames = decoder.feed(framed % chunk) + decoder.finish()
    fault = getattr(frames[-1], "fault", None)
    assert fault is not None and fault.kind is FaultKind.TOO_LARGE and "`put`" in fault.message
