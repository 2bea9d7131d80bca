"""What is held of one block until it is decided, and when it pays to read it once more.

A piece that ends nothing changes nothing. What was read in vain is bounded, so that the cost is linear.
"""

import re

from turnwise.assembly.heal import join_halves
from turnwise.assembly.text_calls.syntaxes import LONGEST_END

# What a block may be read in vain: so many times its length, and these characters besides.
READINGS = 8
FREE_CHARACTERS = 64 * 1024
MOST_READ_ANYWAY = 256  # characters of a block that is read with every piece


class HeldBlock:
    """One block, or what may be one. Another block is another value."""

    __slots__ = ("_edge", "_is_due", "_pieces", "_read_size", "_spent", "halves", "size")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.size = 0
        self.halves = ""  # the half of a character that it ends with
        self._spent = 0  # characters read so far
        self._read_size = 0  # its length when it was read last
        self._is_due = False  # it has to be read again, as soon as the readings so far allow it
        self._edge = ""  # its last characters, in which a mark may have begun

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def is_worth_reading(self, piece: str, *, closing: re.Pattern[str]) -> bool:
        """Whether to read it, now that this piece was added; `closing` are the marks by which it may end."""
        seen, self._edge = self._edge, (self._edge + piece)[-LONGEST_END:]
        self._is_due = (
            self._is_due
            or self.size <= MOST_READ_ANYWAY
            or self.size >= 2 * self._read_size
            or any(found.end() > len(seen) for found in closing.finditer(seen + piece))
        )
        return self._is_due and self._spent + self.size <= READINGS * self.size + FREE_CHARACTERS

    def text(self) -> str:
        """All of it, with halves of characters joined."""
        text = "".join(self._pieces)
        if not text.isascii():
            whole, self.halves = join_halves(text, pending="")
            self._pieces = [whole, self.halves] if self.halves else [whole]
            text = whole
        else:
            self._pieces = [text]
        return text

    def read(self) -> str:
        """The same, to be read once more."""
        text = self.text()
        self._spent += len(text)
        self._read_size, self._is_due, self._edge = len(text), False, text[-LONGEST_END:]
        return text

    def read_with_next(self) -> None:
        """It ends with whatever follows."""
        self._is_due = True

    def all(self) -> str:
        """Every character that came, as it came."""
        return "".join(self._pieces)
