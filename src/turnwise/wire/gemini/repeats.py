"""Chunks after the finish reason: late ones count, a stream that a proxy sent twice does not.

Gemini has no end mark, and pieces do arrive after a finish reason (recorded: code that runs on the server). So a chunk there
counts, unless the chunks from it on repeat the response from its beginning, byte for byte.
"""

from array import array
from collections.abc import Iterable


class Repeats:
    """Keeps a mark of each chunk, and holds back those that repeat the response until that is refuted. A mark is 8 bytes."""

    __slots__ = ("_held", "_marks")

    def __init__(self) -> None:
        self._marks = array("q")
        self._held: list[bytes] = []

    def note(self, text: bytes) -> None:
        """The chunk is part of the response."""
        self._marks.append(hash(text))

    def note_all(self, texts: Iterable[bytes]) -> None:
        self._marks.extend(map(hash, texts))

    def hold(self, text: bytes) -> bool:
        """Whether the chunk repeats the response, together with those that are held; it is held then too."""
        held, marks = self._held, self._marks
        if len(held) == len(marks) or hash(text) != marks[len(held)]:
            return False
        held.append(text)
        if len(held) == len(marks):
            held.clear()  # all of it was repeated; a third time may follow
        return True

    def release(self) -> list[bytes]:
        """What was held and turned out not to be a repetition."""
        held, self._held = self._held, []
        return held
