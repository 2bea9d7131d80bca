"""The events of a Messages stream as typed values."""

from collections.abc import Callable
from typing import Generic, Literal, TypeVar

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


# One kind of delta each, with the other fields of `Delta` whose type it would look at: what it refuses, these do.
class TextPiece(msgspec.Struct, gc=False):
    type: Literal["text_delta"]
    piece: str = msgspec.field(name="text")
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class InputPiece(msgspec.Struct, gc=False):
    type: Literal["input_json_delta"]
    piece: str = msgspec.field(name="partial_json")
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class ThinkingPiece(msgspec.Struct, gc=False):
    type: Literal["thinking_delta"]
    piece: str = msgspec.field(name="thinking")
    text: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


Kind = TypeVar("Kind", TextPiece, InputPiece, ThinkingPiece)


class More(msgspec.Struct, Generic[Kind], gc=False):
    """An event that brings more of a block, and nothing else. Its types are fields and no tags: msgspec asks for no tag where
    there is no union."""

    type: Literal["content_block_delta"]
    index: int
    delta: Kind


DECODE_MORE: dict[
    str | None,
    Callable[[bytes], list[tuple[More[TextPiece]]] | list[tuple[More[InputPiece]]] | list[tuple[More[ThinkingPiece]]]],
] = {
    "text_delta": msgspec.json.Decoder(list[tuple[More[TextPiece]]]).decode,
    "input_json_delta": msgspec.json.Decoder(list[tuple[More[InputPiece]]]).decode,
    "thinking_delta": msgspec.json.Decoder(list[tuple[More[ThinkingPiece]]]).decode,
}
decode_event = msgspec.json.Decoder(Event).decode
"""The fast path, for events of usual length."""
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
