"""The Responses event stream -> frames.

A block is an item: `open_response.py` keeps them, `items.py` tells which one an event belongs to. Every event is read one level
deep. `numbering.py` tells which events are missing, doubled or late.
"""

import hashlib
import re

from turnwise.vocab import Fault, Faulted, FaultKind, Frame, Mended, Repair
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.healing import PINGS, has_controls, is_ping, skipped
from turnwise.wire.json_fields import UNREADABLE, Fields, read_fields
from turnwise.wire.limits import Limits
from turnwise.wire.long_texts import LONG_BYTES
from turnwise.wire.openai_responses.body import read_body
from turnwise.wire.openai_responses.deltas import DELTAS
from turnwise.wire.openai_responses.fast import FastDeltas
from turnwise.wire.openai_responses.fields import count_at, text_at
from turnwise.wire.openai_responses.healing import Healed, check_text, heal
from turnwise.wire.openai_responses.items import TooManyItems
from turnwise.wire.openai_responses.numbering import Numbering, Place
from turnwise.wire.openai_responses.open_response import (
    CONTENT,
    CREATED,
    REPLACED,
    OpenResponse,
)
from turnwise.wire.profiles import Profile
from turnwise.wire.sse import LineTooLong, SseParser
from turnwise.wire.stream_start import StreamBeginning

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
            return [*frames, *self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))]
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
            return [*frames, *self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))]
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
        return [*frames, *self._give_up(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))]

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
    """Whether an event of this type may hold a piece. Nobody knows it of a type that is damaged itself."""
    return not kind or REPLACED in kind or kind in CONTENT or not kind.isprintable()
