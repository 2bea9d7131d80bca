"""The events of a Messages stream as typed values."""

import msgspec

from turnwise.wire.long_events import read_any


class Delta(msgspec.Struct, gc=False):
    """Every kind of delta in one: a union of structs decodes slower and breaks on a kind that it does not know."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: msgspec.Raw = msgspec.Raw(b"")
    content: msgspec.Raw = msgspec.Raw(b"")
    encrypted_content: msgspec.Raw = msgspec.Raw(b"")
    stop_reason: str | None = None
    stop_details: msgspec.Raw = msgspec.Raw(b"")


class Event(msgspec.Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"")
    message: msgspec.Raw = msgspec.Raw(b"")
    usage: msgspec.Raw = msgspec.Raw(b"")
    input_transformations: msgspec.Raw = msgspec.Raw(b"")


decode_event = msgspec.json.Decoder(Event).decode
"""For events of usual length."""
decode_leniently = msgspec.json.Decoder(Event, strict=False).decode


def read_any_event(text: bytes) -> Event:
    """`decode_event`, also for a long event."""
    return read_any(text, decode_event)


CONTENT_EVENTS = frozenset(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"]
)
"""The events that may carry a piece of the response, or say that one is over."""
HARMLESS_EVENTS = frozenset(["ping", "message_stop"])
"""The events that bring nothing."""
