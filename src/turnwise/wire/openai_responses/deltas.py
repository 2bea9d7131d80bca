"""A piece of an item as the fast path reads it, and the frame that it becomes."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import msgspec

from turnwise.vocab import ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta

NONE = -1  # no `output_index`


class Piece(msgspec.Struct, gc=False):
    """What an event of one type says: a piece, and where it belongs."""

    delta: str = ""
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None


class Delta(msgspec.Struct, gc=False):
    """The same of an event of any type."""

    type: str
    delta: str = ""
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None

    @property
    def index(self) -> int | None:
        return self.output_index if self.output_index >= 0 else None


DeltaFrame = TextDelta | ReasoningDelta | RefusalDelta | ToolCallDelta

# Type of an event that brings a piece -> the kind of item that the piece belongs to.
DELTAS: Mapping[str, str] = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}


class Decoders(NamedTuple):
    """Read events of one type: one, and several that each stand in an array of their own. Others raise one of UNREADABLE."""

    one: Callable[[bytes], Piece]
    several: Callable[[bytes], list[tuple[Piece]]]


def _decoders_of(kind: str) -> Decoders:
    """The type is compared while it is read: no text is made of it."""
    piece = cast(
        "type[Piece]", msgspec.defstruct("TypedPiece", [], bases=(Piece,), tag_field="type", tag=kind, gc=False)
    )
    return Decoders(msgspec.json.Decoder(piece).decode, msgspec.json.Decoder(list[tuple[piece]]).decode)


DECODERS: Mapping[str, Decoders] = {kind: _decoders_of(kind) for kind in DELTAS}
decode_delta = msgspec.json.Decoder(Delta).decode
