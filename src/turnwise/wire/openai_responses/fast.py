"""The fast ways through a Responses stream. `stream.py` and `open_response.py` read every event alone: read them first.

A fast way takes pieces of items whose numbers are in order, and leaves all other events to the plain one. Both give the same
frames of every stream (tests/wire/test_fast_ways.py).

| way | takes | skips |
|---|---|---|
| typed | a piece of any item | reading its fields one at a time |
| usual | a piece of the item and the content that the one before belonged to | finding out where it belongs |
| together | the pieces of one read, all of them usual | decoding each for itself |
"""

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import cast

import msgspec

from turnwise.vocab import Frame, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from turnwise.wire.healing import is_sound
from turnwise.wire.json_fields import UNREADABLE, each_alone
from turnwise.wire.long_texts import LONG_BYTES
from turnwise.wire.openai_responses.deltas import DELTAS, NONE, Delta
from turnwise.wire.openai_responses.items import Item
from turnwise.wire.openai_responses.numbering import Numbering
from turnwise.wire.openai_responses.open_response import OpenResponse

TOGETHER = 4  # values of a run from which on it pays to decode them at once


class Piece(msgspec.Struct, gc=False):
    """What an event of one type says: a piece, and where it belongs."""

    delta: str
    output_index: int = NONE
    content_index: int = 0
    item_id: str | None = None
    sequence_number: int | None = None


class Decoders(msgspec.Struct, frozen=True, gc=False):
    """Read events of one type: one, and several that each stand in an array of their own. Others raise one of UNREADABLE."""

    one: Callable[[bytes], Piece]
    several: Callable[[bytes], list[tuple[Piece]]]


def _decoders_of(kind: str) -> Decoders:
    """The type is compared while it is read: no text is made of it."""
    piece = cast(
        "type[Piece]", msgspec.defstruct("TypedPiece", [], bases=(Piece,), tag_field="type", tag=kind, gc=False)
    )
    return Decoders(
        msgspec.json.Decoder(piece).decode,
        msgspec.json.Decoder(cast("type[list[tuple[Piece]]]", GenericAlias(list, GenericAlias(tuple, piece)))).decode,
    )


DECODERS: Mapping[str, Decoders] = {kind: _decoders_of(kind) for kind in DELTAS}
decode_delta = msgspec.json.Decoder(Delta).decode


class Usual(msgspec.Struct, frozen=True, gc=False):
    """Where the last piece belonged, and what it became."""

    decoders: Decoders
    output_index: int
    content_index: int
    item_id: str | None
    named: Item | None  # the item that this id names
    block: str
    words: type[TextDelta | ReasoningDelta | RefusalDelta] | None  # None: a piece of a call
    free_form: bool


class FastDeltas:
    """Reads what it can of the pieces of one response. Tell it to `forget` after each event that it did not take."""

    __slots__ = ("_numbering", "_response", "_usual")

    def __init__(self, response: OpenResponse, numbering: Numbering) -> None:
        self._response = response
        self._numbering = numbering
        self._usual: Usual | None = None

    def forget(self) -> None:
        """Another event came, so the next piece may belong elsewhere."""
        self._usual = None

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many events it took, from `start` on; 0 where the next one is for the plain way. `is_plain`: they are ASCII without
        control characters."""
        usual, numbering = self._usual, self._numbering
        if usual is None:
            return int(self._take_first(values[start], frames, is_plain=is_plain))
        if len(values) >= TOGETHER and start <= 1:  # the first one may have told where the others go
            rest = values[1:] if start else values
            if self._take_together(rest, frames, usual=usual, is_plain=is_plain):
                return len(rest)
        value, number = values[start], numbering.next
        try:
            piece = usual.decoders.one(value) if len(value) <= LONG_BYTES else None
        except UNREADABLE:
            piece = None
        if (
            piece is None
            or piece.output_index != usual.output_index
            or piece.content_index != usual.content_index
            or (number is not None and piece.sequence_number != number)
            or (piece.item_id != usual.item_id and self._response.items.announced.get(piece.item_id) is not usual.named)
            or not (is_plain or is_sound(value))
        ):
            return int(self._take_first(value, frames, is_plain=is_plain))
        if number is not None:
            numbering.advance(number + 1)
        if (words := usual.words) is not None:
            frames.append(words(piece.delta, usual.block))
        else:
            frames.append(ToolCallDelta(block=usual.block, arguments=piece.delta, free_form=usual.free_form))
        return 1

    def _take_first(self, value: bytes, frames: list[Frame], *, is_plain: bool) -> bool:
        """A piece that may go elsewhere than the one before. False where it is none, or not the next event, and nothing was
        taken."""
        self._usual = None
        if len(value) > LONG_BYTES:
            return False
        try:
            delta = decode_delta(value)
        except UNREADABLE:
            return False
        number, expected = delta.sequence_number, self._numbering.next
        is_next = number is None or expected in (None, number)
        is_piece = delta.type in DELTAS and delta.output_index >= 0
        if not (is_next and is_piece and (is_plain or is_sound(value))):
            return False
        self._numbering.place(number, value, is_same=False, is_piece=True)
        before = len(frames)
        self._response.take_delta(delta, frames)
        if len(frames) == before + 1:
            self._usual = self._usual_of(delta, frames[-1])
        return True

    def _usual_of(self, delta: Delta, frame: Frame) -> Usual | None:
        """None where the piece became another frame than a piece."""
        match frame:
            case TextDelta(block=block) | ReasoningDelta(block=block) | RefusalDelta(block=block):
                words, free_form = type(frame), False
            case ToolCallDelta(block=str(block), free_form=free_form):
                words = None
            case _:
                return None
        return Usual(
            decoders=DECODERS[delta.type],
            output_index=delta.output_index,
            content_index=delta.content_index,
            item_id=delta.item_id,
            named=None if delta.item_id is None else self._response.items.announced.get(delta.item_id),
            block=block,
            words=words,
            free_form=free_form,
        )

    def _take_together(self, values: list[bytes], frames: list[Frame], *, usual: Usual, is_plain: bool) -> bool:
        """False where not all of them go where the one before went, and nothing was taken."""
        together = each_alone(values)
        if len(together) > LONG_BYTES and max(map(len, values)) > LONG_BYTES:
            return False
        try:
            pieces = usual.decoders.several(together)
        except UNREADABLE:
            return False
        if not (is_plain or is_sound(together)):  # the decoder passes over what is broken in other fields
            return False
        named, number = usual.named, self._numbering.next
        index, content_index, id = usual.output_index, usual.content_index, usual.item_id
        announced = self._response.items.announced
        expected = -1 if number is None else number - 1
        texts = [
            piece.delta
            for (piece,) in pieces
            if (number is None or piece.sequence_number == (expected := expected + 1))
            and piece.output_index == index
            and (piece.item_id == id or announced.get(piece.item_id) is named)
            and piece.content_index == content_index
        ]
        if not len(texts) == len(pieces) == len(values):
            return False
        if number is not None:
            self._numbering.advance(number + len(texts))
        block, words = usual.block, usual.words
        if words is not None:
            frames += [words(text, block) for text in texts]
        elif usual.free_form:
            frames += [ToolCallDelta(block=block, arguments=text, free_form=True) for text in texts]
        else:
            frames += [ToolCallDelta(block=block, arguments=text) for text in texts]
        return True
