"""Anthropic's Messages, read strictly. Source: Anthropic's docs, "Streaming messages"."""

from typing import Literal

import msgspec

from turnwise.lab.readers.reader_result import StreamReading, ToldError, counted
from turnwise.lab.readers.strict_events import StrictEvent, arguments_object, events_of, rule, shaped

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "calls",
    "refusal": "refused",
    "pause_turn": "pause_turn",
}
_BLOCK_OF = {
    "text_delta": "text",
    "citations_delta": "text",
    "input_json_delta": "tool_use",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}


class StrictMessage(msgspec.Struct, frozen=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[object]
    usage: dict[str, object]


class StrictBlock(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    input: dict[str, object] | None = None


class StrictBlockDelta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class StrictMessageEvent(msgspec.Struct, frozen=True):
    type: str
    index: int | None = None
    message: StrictMessage | None = None
    content_block: StrictBlock | None = None
    delta: StrictBlockDelta = StrictBlockDelta()
    error: ToldError | None = None


def read_messages(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _MessagesAnswer()
    for event in events_of(body):
        answer.add(event)
    return answer.reading()


class _MessagesAnswer:
    """What has come of one message."""

    def __init__(self) -> None:
        self._blocks: list[tuple[StrictBlock, list[str]]] = []
        self._is_open = False
        self._has_begun = False
        self._is_over = False
        self._stop = ""
        self._error = ""

    def add(self, event: StrictEvent) -> None:
        rule(not self._is_over and not self._error, "something follows the end")
        one = shaped(event.data, as_type=StrictMessageEvent)
        rule(event.name == one.type, f"an event of type `{one.type}` is named `{event.name}`")
        match one.type:
            case "ping":
                return
            case "error":
                self._error = one.error.message if one.error is not None else "an error without words"
            case "message_start":
                rule(not self._has_begun, "the message begins twice")
                rule(one.message is not None and not one.message.content, "the message does not begin empty")
                self._has_begun = True
            case _:
                rule(self._has_begun, f"`{one.type}` comes before the message begins")
                self._add_within(one)

    def _add_within(self, one: StrictMessageEvent) -> None:
        match one.type:
            case "content_block_start":
                self._begin(one)
            case "content_block_delta":
                self._check_place(one)
                block, pieces = self._blocks[-1]
                wanted = _BLOCK_OF.get(one.delta.type, block.type)
                rule(block.type == wanted, f"a `{one.delta.type}` came for a block of type `{block.type}`")
                pieces.append(one.delta.partial_json or one.delta.text)
            case "content_block_stop":
                self._check_place(one)
                self._is_open = False
            case "message_delta":
                rule(not self._is_open, "the message ends with a block that has not ended")
                rule(not (self._stop and one.delta.stop_reason), "the message ends twice")
                self._stop = one.delta.stop_reason or self._stop
            case "message_stop":
                self._close()
            case _:
                pass

    def _begin(self, one: StrictMessageEvent) -> None:
        block = one.content_block
        rule(not self._is_open, "a block begins before the one before it has ended")
        rule(not self._stop, "a block begins after the stop reason")
        rule(one.index == len(self._blocks), f"a block has index {one.index}, and {len(self._blocks)} is the next")
        rule(block is not None, "a block begins without a type")
        assert block is not None
        if block.type == "tool_use":
            rule(bool(block.id), "a call begins without an id")
            rule(bool(block.name), "a call begins without a name")
            rule(block.input == {}, "a call does not begin with an empty input")
        self._blocks.append((block, [block.text]))
        self._is_open = True

    def _check_place(self, one: StrictMessageEvent) -> None:
        is_there = self._is_open and one.index == len(self._blocks) - 1
        rule(is_there, f"`{one.type}` came for a block that is not open")

    def _close(self) -> None:
        rule(bool(self._stop), "the message has no stop reason")
        rule(self._stop in _FINISH, f"there is no stop reason `{self._stop}`")
        calls = [call for call in self._blocks if call[0].type == "tool_use"]
        is_true = (self._stop == "tool_use") == bool(calls) or self._stop == "max_tokens"
        rule(is_true, f"the stop reason is `{self._stop}`, and the message has {counted(len(calls), 'call')}")
        for _, pieces in calls:
            arguments_object("".join(pieces) or "{}")
        rule(len({block.id for block, _ in calls}) == len(calls), "two calls have one id")
        self._is_over = True

    def reading(self) -> StreamReading:
        rule(self._is_over or bool(self._error), "the stream ends without `message_stop`")
        calls = [
            (block.id, block.name, "".join(pieces) or "{}")
            for block, pieces in self._blocks
            if block.type == "tool_use"
        ]
        text = "".join(["".join(pieces) for block, pieces in self._blocks if block.type == "text"])
        return StreamReading(text, calls, _FINISH[self._stop] if self._is_over else "", self._error)
