"""How much of one response is held, and how much may be."""

from turnwise.assembly.heal import is_wide


class ResponseSize:
    """Counts the bytes that are kept of one response. `is_full` turns true at a limit: nothing more is kept then."""

    __slots__ = ("_held_bytes", "_is_wide", "is_full", "limit_bytes")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_full = False
        self._held_bytes = 0
        self._is_wide = False  # a text came that takes four bytes for each character

    def grow(self, size: int) -> bool:
        """Count bytes that were kept; false once the response is past its limit."""
        held = self._held_bytes = self._held_bytes + size
        return held <= self.limit_bytes and not self.is_full

    def grow_if_it_fits(self, text: str, *, size: int) -> bool:
        """Count a text of so many bytes; false, and nothing is counted, where a part of it is past the limit."""
        limit = self.limit_bytes
        widens = size != len(text) and not self._is_wide and is_wide(text)
        if widens:
            limit //= 2
        if self.is_full or self._held_bytes + size > limit:
            return False
        self._is_wide, self.limit_bytes = self._is_wide or widens, limit
        self._held_bytes += size
        return True

    def fill(self) -> None:
        """A limit was passed."""
        self.is_full = True

    def see_width(self, text: str) -> None:
        """One character outside of the basic plane makes Python keep all of a text with four bytes for each: then half as
        many bytes are kept, so that no response takes more than three times its limit."""
        if not self._is_wide and is_wide(text):
            self._is_wide = True
            self.limit_bytes //= 2
