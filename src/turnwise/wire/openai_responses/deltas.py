"""A piece of an item as the fast path reads it, and the frame that it becomes."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta

NONE = -1  # no `output_index`


class Delta(msgspec.Struct, gc=False):
    """What the fast path reads of an event; of any other event, its type and where it belongs."""

    type: str
    delta: str = ""
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None

    @property
    def index(self) -> int | None:
        return self.output_index if self.output_index >= 0 else None


decode_delta = msgspec.json.Decoder(Delta).decode
decode_deltas = msgspec.json.Decoder(list[tuple[Delta]]).decode

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
