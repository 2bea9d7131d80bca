"""A piece of an item."""

from collections.abc import Mapping

import msgspec

NONE = -1  # no `output_index`


class Delta(msgspec.Struct, gc=False):
    """What an event says that brings a piece, and where the piece belongs."""

    type: str
    delta: str
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None

    @property
    def index(self) -> int | None:
        return self.output_index if self.output_index >= 0 else None


# Type of an event that brings a piece -> the kind of item that the piece belongs to.
DELTAS: Mapping[str, str] = {
    "response.output_text.delta": "message",
    "response.refusal.delta": "message",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning.delta": "reasoning",  # the same in the Open Responses specification
    "response.function_call_arguments.delta": "function_call",
    "response.custom_tool_call_input.delta": "custom_tool_call",
}
