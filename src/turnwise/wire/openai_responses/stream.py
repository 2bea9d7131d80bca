"""The Responses event stream -> frames.

A block is an item: `open_response.py` keeps them, `items.py` tells which one an event belongs to. Every event is read one level
deep. `Numbering` tells which events are missing, doubled or late.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from types import GenericAlias
from typing import cast
from zlib import crc32

import msgspec

from turnwise.vocab import (
    Fault,
    Faulted,
    Frame,
    Mended,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    TextDelta,
    ToolCallDelta,
)
from turnwise.wire.faults import no_response, past_limit, too_large
from turnwise.wire.json_fields import (
    LONG_BYTES,
    PINGS,
    UNREADABLE,
    Fields,
    each_alone,
    has_controls,
    is_ping,
    is_sound,
    read_fields,
    skipped,
)
from turnwise.wire.openai_responses.body import Healed, check_text, heal, read_body
from turnwise.wire.openai_responses.items import DELTAS, NONE, Delta, Item, TooManyItems
from turnwise.wire.openai_responses.open_response import (
    CONTENT,
    CREATED,
    REPLACED,
    OpenResponse,
)
from turnwise.wire.openai_responses.parts import count_at, text_at
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import LineTooLong, SseParser, StreamBeginning

# Where an event stands in its stream, by its `sequence_number`.
#
# The API numbers the events of a response 0, 1, 2 ... without a gap. Numbers that run so tell what the bytes cannot: that an
# event is missing, came twice, or came late. Gateways that leave the numbers out, or write others, lose nothing by it.


class Place(Enum):
    """Where an event stands among those that came."""

    NEXT = auto()  # where it belongs, as far as its number tells
    BEHIND_GAP = auto()  # events before it did not arrive
    AGAIN = auto()  # it came before
    LATE = auto()  # events that belong behind it came before
    ASTRAY = auto()  # the numbers went back: from here on they tell nothing


class Numbering:
    """The numbers of one response. `next` is the one that the next event bears, None where the numbers tell nothing."""

    __slots__ = ("_first", "_gap", "_replayed", "_sums", "_tells", "_unread", "next")

    def __init__(self) -> None:
        self.next: int | None = None
        self._first = 0
        self._gap = range(0)  # numbers of the events that were missing last
        self._unread = 0  # events since the last number that could not be read, so their numbers are not missing
        self._tells = True
        self._sums: dict[int, int] = {}  # of events that are no pieces, by their number
        self._replayed: int | None = None  # the number behind the last event that came again

    @property
    def waits(self) -> bool:
        """Whether no number has come yet: the first one says where they begin."""
        return self.next is None and self._tells

    def leave_unread(self) -> None:
        """An event came whose number cannot be read."""
        self._unread += 1

    def advance(self, number: int) -> None:
        """Events came in order up to this number, which the next one bears."""
        self.next = number
        self._unread = 0

    def place(self, number: int | None, value: bytes, *, is_same: bool, is_piece: bool) -> Place:
        """Take one event's number. `is_same`: its bytes, `value`, are those of the event before it."""
        found = self._place(number, value, is_same=is_same, is_piece=is_piece)
        if number is not None and not is_piece and found in (Place.NEXT, Place.BEHIND_GAP):
            self._sums[number] = crc32(value)
        return found

    def _place(self, number: int | None, value: bytes, *, is_same: bool, is_piece: bool) -> Place:
        expected = self.next
        if number is None or not self._tells:
            return Place.NEXT
        if expected is None or number == expected:
            self._first = number if expected is None else self._first
            self.advance(number + 1)
            return Place.NEXT
        if number > expected:
            is_read = number - expected > self._unread
            self._gap = range(expected, number)
            self.advance(number + 1)
            return Place.BEHIND_GAP if is_read else Place.NEXT
        if is_same:
            return Place.AGAIN
        if number in self._gap or number < self._first:
            return Place.LATE
        # A stretch that is sent again begins, as far as anyone can tell, with an event that is no piece.
        if number == self._replayed or (not is_piece and self._sums.get(number) == crc32(value)):
            self._replayed = number + 1
            return Place.AGAIN
        self._tells = False
        self.next = None
        # Another event with the number of the one before: its writer does not count events.
        return Place.NEXT if number == expected - 1 else Place.ASTRAY


# The fast ways through a Responses stream. `stream.py` and `open_response.py` read every event alone: read them first.
#
# A fast way takes pieces of items whose numbers are in order, and leaves all other events to the plain one. Both give the same
# frames of every stream (tests/wire/test_fast_ways.py).
#
# | way | takes | skips |
# |---|---|---|
# | typed | a piece of any item | reading its fields one at a time |
# | usual | a piece of the item and the content that the one before belonged to | finding out where it belongs |
# | together | the pieces of one read, all of them usual | decoding each for itself |


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
            or (piece.sequence_number != number and (number is not None or numbering.waits))
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
        """A piece that may go elsewhere than the one before. False if it is not a piece, or not the next event, and nothing was
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
        if self._numbering.waits and any(piece.sequence_number is not None for (piece,) in pieces):
            return False
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


# Events that hold no piece, whatever is wrong with them.
_IDLE = frozenset((CREATED, "response.queued", "response.in_progress", "ping", "keepalive", "keep-alive", "heartbeat"))
_OF_PIECES = (b".delta", b".done", b"output_item")  # in an idle event: another one is in it
_TYPE_FIRST = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_.-]+)"')

MISSING = "the numbers of the events show that some did not arrive"
AGAIN = "an event came twice and was taken once"
ASTRAY = "the numbers of the events went back: they may have come in another order"


class ResponsesStreamDecoder:
    """Bytes in any pieces -> frames. See `StreamDecoder`."""

    def __init__(self, profile: Profile, limits: Limits, *, fast: type[FastDeltas] | None = FastDeltas) -> None:
        """`fast` reads nearly all events of a usual stream; None where this module has to read them all."""
        self._parser = SseParser(limits=limits)
        self._limits = limits
        self._beginning = StreamBeginning(limits=limits)
        self._bytes_left = limits.stream_bytes
        self._has_said = False  # an event said something
        self._silent = False  # what follows cannot be read, or is no part of the response
        self._response = OpenResponse()
        self._numbering = Numbering()
        self._previous = b""  # the value of the event before; of a long one its digest
        self._profile = profile
        self._fast_ways = fast
        self._fast = None if fast is None else fast(self._response, self._numbering)
        self._is_plain = True  # all bytes so far are ASCII, and none is a control character

    # ---- bytes -> events

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._silent:
            return []
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            return self._give_up(too_large(self._limits.stream_bytes))
        if not self._has_said:
            chunk = self._beginning.take(chunk)
            if self._beginning.is_too_large:
                return self._give_up(too_large(self._limits.response_bytes))
        frames: list[Frame] = []
        if self._is_plain and (not chunk.isascii() or has_controls(chunk)):
            self._is_plain = False
        try:
            for run in self._parser.feed_runs(chunk):
                values, at = run.values, 0
                end = len(values)
                while at < end:
                    fast = None if self._silent else self._fast
                    if fast is not None and (count := fast.read(values, at, frames, self._is_plain)):
                        self._has_said = True
                        at += count
                        self._previous = values[at - 1]  # no long one
                    else:
                        self._read_next(values[at], run.name, frames)
                        at += 1
        except LineTooLong as error:
            return self._end_at(error)
        except TooManyItems as error:
            return [*frames, *self._give_up(past_limit(error))]
        return frames

    def expects_more(self) -> bool:
        return (not self._has_said and self._beginning.breaks_off) or self._parser.breaks_off()

    def finish(self) -> list[Frame]:
        if self._silent:
            return []
        frames: list[Frame] = []
        try:
            for event in self._parser.finish():
                self._read_next(event.data, event.name, frames)
        except LineTooLong as error:
            return self._end_at(error)
        except TooManyItems as error:
            return [*frames, *self._give_up(past_limit(error))]
        if not self._has_said:
            return [*frames, *self._read_no_stream()]
        if not self._silent:
            self._response.close(frames)
        return frames

    def _read_no_stream(self) -> list[Frame]:
        head = self._beginning.whole()
        if head.lstrip()[:1] == b"{":
            repair = Repair("body_for_stream", "response", "a plain JSON body where a stream was asked for was read")
            return [Mended(repair), *read_body(head, limits=self._limits)]
        return self._give_up(no_response(head, expected="an event stream of the Responses API"))

    def _end_at(self, error: LineTooLong) -> list[Frame]:
        frames: list[Frame] = []
        try:
            for event in error.events:
                self._read_next(event.data, event.name, frames)
            frames += error.begun()
        except TooManyItems:
            pass  # told by the first of both
        return [*frames, *self._give_up(past_limit(error))]

    def _give_up(self, fault: Fault) -> list[Frame]:
        self._silent = True
        return [Faulted(fault)]

    def _read_next(self, value: bytes, name: str, frames: list[Frame]) -> None:
        self._read(value, name, frames)
        self._previous = _mark_of(value)
        if self._fast is not None:
            self._fast.forget()

    # ---- events

    def _read(self, value: bytes, name: str, frames: list[Frame]) -> None:
        if self._silent or value.strip() == b"[DONE]":
            return
        try:
            check_text(value)
            fields = read_fields(value)
        except UNREADABLE:
            self._read_damaged(value, name, frames)
            return
        self._read_event(fields, value, name, frames)

    def _read_event(
        self, fields: Fields, value: bytes, name: str, frames: list[Frame], *, is_certain: bool = True
    ) -> None:
        kind = text_at(fields, "type") or name  # the event's name says what its data leaves out
        if self._response.is_another(fields, kind):
            self._response, self._numbering = OpenResponse(), Numbering()
            self._fast = None if self._fast_ways is None else self._fast_ways(self._response, self._numbering)
        before = len(frames)
        if self._is_in_place(fields, kind, value, frames):
            try:
                self._response.take(fields, kind, frames, is_certain=is_certain)
            except UNREADABLE as error:
                repair = Repair("event_left_out", name or "stream", f"not this API's shape: {error}")
                self._response.lose(repair, frames)
        self._has_said = self._has_said or len(frames) > before
        self._silent = self._response.is_over

    def _is_in_place(self, fields: Fields, kind: str, value: bytes, frames: list[Frame]) -> bool:
        """Take the event's number; false where the event has to be passed over."""
        number = count_at(fields, "sequence_number")
        is_same = _mark_of(value) == self._previous
        match self._numbering.place(number, value, is_same=is_same, is_piece=kind in DELTAS):
            case Place.NEXT:
                return True
            case Place.BEHIND_GAP:
                self._response.lose(Repair("event_missing", "stream", MISSING), frames)
                return True
            case Place.AGAIN:
                frames.append(Mended(Repair("event_repeated", "stream", AGAIN)))
                return False
            case Place.LATE:
                return kind not in DELTAS and self._response.may_come_late(fields, kind)
            case Place.ASTRAY:
                if self._response.items.open_blocks:
                    self._response.lose(Repair("event_missing", "stream", ASTRAY), frames)
                return True

    # ---- damage

    def _read_damaged(self, value: bytes, name: str, frames: list[Frame]) -> None:
        """What can be read of the event is taken. What cannot be read is a loss, unless it cannot have been a piece."""
        healed = heal(value)
        if not healed.objects:
            self._leave_out(value, name, healed, frames)
            return
        is_lost = healed.is_left_out
        for clean in healed.objects:
            fields = read_fields(clean)
            is_lost = is_lost or (healed.is_replaced and _may_be_piece(text_at(fields, "type") or name))
            self._read_event(fields, value, name, frames, is_certain=not healed.is_replaced)
        kind = healed.kind(lost="event_left_out", mended="damaged_event")
        if is_lost:
            self._response.lose(Repair(kind, name or "stream", healed.what), frames)
        else:
            kind = "noise_skipped" if healed.is_replaced else kind
            frames.append(Mended(Repair(kind, name or "stream", healed.what)))

    def _leave_out(self, value: bytes, name: str, healed: Healed, frames: list[Frame]) -> None:
        """Nothing in the event can be read; its name, or the type that it begins with, may tell that nothing is lost."""
        found = _TYPE_FIRST.match(value)
        kind = name or (found[1].decode() if found else "")
        is_idle = kind in _IDLE and not any(mark in value for mark in _OF_PIECES)
        is_idle = is_idle and (kind not in PINGS or is_ping(value, name=kind))
        if kind == CREATED and self._response.started is not None:
            is_idle = False  # another response may have begun
        if kind not in CONTENT and (is_idle or healed.is_bare or skipped("", value)):
            frames.append(Mended(Repair("noise_skipped", name or "stream", healed.what)))
        else:
            self._response.lose(Repair("event_left_out", name or "stream", healed.what), frames)
        if not skipped("", value):
            self._numbering.leave_unread()


def _mark_of(value: bytes) -> bytes:
    """What tells an event from others. A long one is not held for it."""
    return value if len(value) <= LONG_BYTES else hashlib.blake2b(value).digest()


def _may_be_piece(kind: str) -> bool:
    """Whether an event of this type may hold a piece. If the type itself is damaged, it may."""
    return not kind or REPLACED in kind or kind in CONTENT or not kind.isprintable()
