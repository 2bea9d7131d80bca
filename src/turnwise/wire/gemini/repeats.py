"""Chunks after the finish reason: late ones count, a stream that a proxy sent twice does not.

Gemini has no end mark, and pieces do arrive after a finish reason (recorded: code that runs on the server). So a chunk there
counts, unless the chunks from it on repeat the response from its beginning, byte for byte.
"""

from collections.abc import Sequence
from zlib import crc32

from turnwise.wire.json_fields import UNREADABLE, read_string

SUM_BYTES = 8
_RUN = bytes(SUM_BYTES)


class _Run:
    """Chunks that follow each other and are alike but for one string. `around` it stand the same bytes, with its quotes."""

    __slots__ = ("around", "count", "escapes", "sum")

    def __init__(self, around: tuple[bytes, bytes]) -> None:
        self.around = around
        self.count = 0
        self.sum = 0  # of the strings, one behind the other
        self.escapes = 0  # of the chunks that hold one, byte for byte: the same string may be written otherwise

    def add(self, strings: Sequence[str], texts: Sequence[bytes]) -> None:
        self.count += len(strings)
        if b"\\" in b"".join(texts):
            for text in texts:
                if b"\\" in text:
                    self.escapes = crc32(text, self.escapes)
        self.sum = crc32("\0".join([*strings, ""]).encode(), self.sum)

    def string_of(self, text: bytes) -> str | None:
        """The string of a chunk that is like those of the run; None where the text is none."""
        head, tail = self.around
        if not (text.startswith(head) and text.endswith(tail)):
            return None
        try:
            return read_string(text[len(head) - 1 : 1 - len(tail)])
        except UNREADABLE:
            return None

    def equals(self, other: "_Run") -> bool:
        return (self.sum, self.escapes) == (other.sum, other.escapes)


class Repeats:
    """Keeps the sums of the chunks in order, and holds back those that repeat the response until that is refuted.

    Chunks that are alike come fast, so a run of them has one sum: whether it was repeated is known at its end.
    """

    __slots__ = ("_count", "_held", "_place", "_repeated", "_runs", "_sums", "chunks")

    def __init__(self) -> None:
        self.chunks = 0  # of the response
        self._sums = bytearray()  # of single chunks, one behind the other; zeros stand for a run
        self._count = 0  # of sums
        self._runs: dict[int, _Run] = {}
        self._held: list[bytes] = []
        self._place = 0  # of the sum that the next chunk has to have ...
        self._repeated: _Run | None = None  # ... and what has come of it, if it is a run's

    def note(self, text: bytes) -> None:
        """The chunk is part of the response."""
        self.chunks += 1
        self._sums += _sum_of(text)
        self._count += 1

    def note_alike(self, strings: Sequence[str], texts: Sequence[bytes], *, around: tuple[bytes, bytes]) -> None:
        """So are these `texts`, which have the strings between the same two pieces."""
        self.chunks += len(strings)
        last = self._runs.get(self._count - 1)
        if last is None or last.around != around:
            last = self._runs[self._count] = _Run(around)
            self._sums += _RUN
            self._count += 1
        last.add(strings, texts)

    def hold(self, text: bytes) -> bool:
        """Whether the chunk repeats the response, together with those that are held; it is held then too."""
        if not self._count or not self._goes_on_with(text):
            return False
        self._held.append(text)
        if self._place == self._count:
            self.release()  # all of it was repeated; a third time may follow
        return True

    def release(self) -> list[bytes]:
        """What was held: it was no repetition."""
        held, self._held = self._held, []
        self._place, self._repeated = 0, None
        return held

    def _goes_on_with(self, text: bytes) -> bool:
        run = self._runs.get(self._place)
        if run is None:
            is_same = self._sums.startswith(_sum_of(text), self._place * SUM_BYTES)
            self._place += is_same
            return is_same
        string = run.string_of(text)
        if string is None:
            return False
        repeated = self._repeated = self._repeated or _Run(run.around)
        repeated.add([string], [text])
        if repeated.count == run.count:
            self._place, self._repeated = self._place + 1, None
            return repeated.equals(run)
        return True


def _sum_of(text: bytes) -> bytes:
    return (len(text) << 32 | crc32(text)).to_bytes(SUM_BYTES, "big")
