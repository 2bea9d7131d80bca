"""The fast ways through a stream of the Messages API. `stream.py` reads every event alone: read it first.

A fast way takes deltas that bring more of a text, of thinking or of a call that has begun, and leaves all other events to the
plain one. Both give the same frames of every stream (tests/wire/test_fast_ways.py).

| way | takes | skips |
|---|---|---|
| together | the deltas of one read, all of one kind and one block | decoding each for itself |
| single | one delta | the events of other types, the ends of blocks and the damage that it would not meet |
"""

from collections.abc import Callable, Mapping
from typing import Generic, Literal, TypeVar

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, TextDelta, ToolCallDelta
from turnwise.wire.anthropic_messages.events import decode_event
from turnwise.wire.anthropic_messages.open_block import OpenBlock
from turnwise.wire.healing import check_sound
from turnwise.wire.json_fields import UNREADABLE, each_alone
from turnwise.wire.long_texts import LONG_BYTES

TOGETHER = 4  # values of a run from which on it pays to decode them at once


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


_Runs = list[tuple[More[TextPiece]]] | list[tuple[More[InputPiece]]] | list[tuple[More[ThinkingPiece]]]
_DECODE_MORE: dict[str | None, Callable[[bytes], _Runs]] = {
    "text_delta": msgspec.json.Decoder(list[tuple[More[TextPiece]]]).decode,
    "input_json_delta": msgspec.json.Decoder(list[tuple[More[InputPiece]]]).decode,
    "thinking_delta": msgspec.json.Decoder(list[tuple[More[ThinkingPiece]]]).decode,
}


class FastDeltas:
    """Reads what it can of one message's deltas. `names` has the block that is open on each index, `open_blocks` those of them
    that are calls or items."""

    __slots__ = ("_names", "_open_blocks")

    def __init__(self, names: Mapping[int, str], open_blocks: Mapping[int, OpenBlock]) -> None:
        self._names = names
        self._open_blocks = open_blocks

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many events it took, from `start` on; 0 where the next one is for the plain way.

        `is_plain`: they are ASCII without control characters.
        """
        if not start and len(values) >= TOGETHER and self._read_together(values, frames, is_plain=is_plain):
            return len(values)
        value = values[start]
        if len(value) > LONG_BYTES:
            return 0
        try:
            if not is_plain:
                check_sound(value)
            event = decode_event(value)
        except UNREADABLE:
            return 0
        index, delta = event.index, event.delta
        if index is None or delta is None or event.type != "content_block_delta":
            return 0
        block = self._names.get(index)
        if block is None:
            return 0
        if delta.text and delta.type == "text_delta":
            frames.append(TextDelta(delta.text, block))
        elif delta.partial_json and delta.type == "input_json_delta":
            if self._open_blocks and (opened := self._open_blocks.get(index)) is not None:
                if opened.is_item:
                    return 0
                opened.take_deltas()
            frames.append(ToolCallDelta(block=block, arguments=delta.partial_json))
        elif delta.thinking and delta.type == "thinking_delta":
            frames.append(ReasoningDelta(delta.thinking, block))
        else:
            return 0
        return 1

    def _read_together(self, values: list[bytes], frames: list[Frame], *, is_plain: bool) -> bool:
        """Read events that all bring more of one block. False where one of them does not, and nothing was taken."""
        try:
            first = decode_event(values[0])
            decode = None if first.delta is None else _DECODE_MORE.get(first.delta.type)
            block = None if first.index is None else self._names.get(first.index)
            if decode is None or first.index is None or block is None:
                return False
            together = each_alone(values)
            if len(together) > LONG_BYTES and max(map(len, values)) > LONG_BYTES:
                return False
            if not is_plain:
                check_sound(together)
            events = decode(together)
        except UNREADABLE:
            return False
        index = first.index
        pieces = [event.delta.piece for (event,) in events if event.index == index]
        opened = self._open_blocks.get(index)
        if not len(pieces) == len(events) == len(values) or not all(pieces) or (opened is not None and opened.is_item):
            return False
        if decode is _DECODE_MORE["text_delta"]:
            frames += [TextDelta(piece, block) for piece in pieces]
        elif decode is _DECODE_MORE["thinking_delta"]:
            frames += [ReasoningDelta(piece, block) for piece in pieces]
        else:
            if opened is not None:
                opened.take_deltas()
            frames += [ToolCallDelta(block=block, arguments=piece) for piece in pieces]
        return True
