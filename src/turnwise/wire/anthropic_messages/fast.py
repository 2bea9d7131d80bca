"""The fast ways through a stream of the Messages API. `stream.py` reads every event alone: read it first.

A fast way takes deltas that bring more of a text, of thinking or of a call that has begun, and leaves all other events to the
plain one. Both give the same frames of every stream (tests/wire/test_fast_ways.py).

| way | takes | skips |
|---|---|---|
| together | the deltas of one read, all of one kind and one block | decoding each for itself |
| single | one delta of the kind of the last one | the fields of other events and deltas |
"""

from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Generic, Literal, TypeVar, cast

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, TextDelta, ToolCallDelta
from turnwise.wire.anthropic_messages.events import decode_event
from turnwise.wire.anthropic_messages.open_block import OpenBlock
from turnwise.wire.healing import check_sound, is_sound
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


PieceKind = TypeVar("PieceKind", TextPiece, InputPiece, ThinkingPiece)


class More(msgspec.Struct, Generic[PieceKind], gc=False):
    """An event that brings more of a block, and nothing else. Its types are fields and no tags: msgspec asks for no tag where
    there is no union."""

    type: Literal["content_block_delta"]
    index: int
    delta: PieceKind


_Piece = More[TextPiece] | More[InputPiece] | More[ThinkingPiece]


class DeltaKind(msgspec.Struct, frozen=True, gc=False):
    """How deltas of one kind are read: one, and several that each stand in an array of their own. Others raise one of UNREADABLE.
    `frame` is what each becomes; None: a piece of a call."""

    one: Callable[[bytes], _Piece]
    several: Callable[[bytes], Sequence[tuple[_Piece]]]
    frame: type[TextDelta | ReasoningDelta] | None


_KINDS: Mapping[str | None, DeltaKind] = {
    kind: DeltaKind(
        msgspec.json.Decoder(piece).decode,
        msgspec.json.Decoder(cast("type[list[tuple[_Piece]]]", GenericAlias(list, GenericAlias(tuple, piece)))).decode,
        frame,
    )
    for kind, piece, frame in (
        ("text_delta", More[TextPiece], TextDelta),
        ("input_json_delta", More[InputPiece], None),
        ("thinking_delta", More[ThinkingPiece], ReasoningDelta),
    )
}


class FastDeltas:
    """Reads what it can of one message's deltas. `names` has the block that is open on each index, `open_blocks` those of them
    that are calls or items."""

    __slots__ = ("_kind", "_names", "_open_blocks")

    def __init__(self, names: Mapping[int, str], open_blocks: Mapping[int, OpenBlock]) -> None:
        self._names = names
        self._open_blocks = open_blocks
        self._kind: DeltaKind | None = None  # of the last delta

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many events it took, from `start` on; 0 where the next one is for the plain way.

        `is_plain`: they are ASCII without control characters.
        """
        value, kind = values[start], self._kind
        if len(value) > LONG_BYTES or not (is_plain or is_sound(value)):
            return 0
        try:
            event = None if kind is None else kind.one(value)
        except UNREADABLE:
            event = None
        if event is None or kind is None:
            kind = self._kind = _kind_of(value)
            if kind is None:
                return 0
            event = kind.one(value)
        if not start and len(values) >= TOGETHER and self._read_together(values, frames, kind=kind, is_plain=is_plain):
            return len(values)
        block, piece = self._names.get(event.index), event.delta.piece
        if block is None or not piece:
            return 0
        if (frame := kind.frame) is not None:
            frames.append(frame(piece, block))
            return 1
        if (opened := self._open_blocks.get(event.index)) is not None:
            if opened.is_item:
                return 0
            opened.take_deltas()
        frames.append(ToolCallDelta(block=block, arguments=piece))
        return 1

    def _read_together(self, values: list[bytes], frames: list[Frame], *, kind: DeltaKind, is_plain: bool) -> bool:
        """Read events that all bring more of one block. False where one of them does not, and nothing was taken."""
        together = each_alone(values)
        if len(together) > LONG_BYTES and max(map(len, values)) > LONG_BYTES:
            return False
        try:
            if not is_plain:
                check_sound(together)
            events = kind.several(together)
        except UNREADABLE:
            return False
        index = events[0][0].index
        block, opened = self._names.get(index), self._open_blocks.get(index)
        pieces = [event.delta.piece for (event,) in events if event.index == index]
        is_whole = len(pieces) == len(events) == len(values) and all(pieces)
        if block is None or not is_whole or (opened is not None and opened.is_item):
            return False
        if kind.frame is TextDelta:
            frames += [TextDelta(piece, block) for piece in pieces]
        elif kind.frame is ReasoningDelta:
            frames += [ReasoningDelta(piece, block) for piece in pieces]
        else:
            if opened is not None:
                opened.take_deltas()
            frames += [ToolCallDelta(block=block, arguments=piece) for piece in pieces]
        return True


def _kind_of(value: bytes) -> DeltaKind | None:
    """None where it is no delta that brings more."""
    try:
        delta = decode_event(value).delta
        kind = None if delta is None else _KINDS.get(delta.type)
        if kind is not None:
            kind.one(value)
    except UNREADABLE:
        return None
    return kind
