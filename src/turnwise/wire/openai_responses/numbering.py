"""Where an event stands in its stream, by its `sequence_number`.

The API numbers the events of a response 0, 1, 2 ... without a gap. Numbers that run so tell what the bytes cannot: that an
event is missing, came twice, or came late. Gateways that leave the numbers out, or write others, lose nothing by it.
"""

from enum import Enum, auto
from zlib import crc32


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
        # Another event with the number of the one before: whoever wrote it does not count events.
        return Place.NEXT if number == expected - 1 else Place.ASTRAY
