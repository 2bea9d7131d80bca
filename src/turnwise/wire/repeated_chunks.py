"""Chunks that are the one before, byte for byte, but for one string: what streams of text and of arguments consist of.

Nearly all servers write a response's id, model and the like into each chunk and change nothing but the piece. Once one chunk
was decoded, and decoded again with another string in the piece's place to prove that it is the piece's, only that string is
decoded in those that begin and end the same: JSON means the same around it, whatever the string is.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

import msgspec

from turnwise.wire.json_fields import UNREADABLE

Rest = TypeVar("Rest")

PROBE = "~another~"
CREDIT, MOST = 16, 64  # of what may be spent on learning: four tries; those who changed once may be tried again
LEARNING = 4  # what a try costs, where a chunk that is alike gains one

# For readers that take usual chunks by a type of their own, and learn from them:
MISS_COST = 4  # a chunk that is not usual costs about what four usual ones save
START = MISS_COST * 2  # chunks that count as usual from the first: looking for them has to pay
LEARN_FROM = START + 4  # a response that is over after a few chunks is not worth learning how they are written

decode_string = msgspec.json.Decoder(str).decode
"""One JSON string with its quotes. Raises one of UNREADABLE."""


class Alike(Generic[Rest]):
    """`strings` gives the pieces of the chunks that are like the one that was learned; `rest` is what else that one said, None
    where none was. Streams whose chunks differ (counts that grow, padding) are given up after a
    few tries."""

    __slots__ = ("_credit", "_end", "_head", "_start", "_tail", "rest")

    def __init__(self) -> None:
        self.rest: Rest | None = None
        self._credit = CREDIT
        self._head = self._tail = b""  # with the quotes of the string
        self._start = self._end = 0  # of the string with its quotes

    @property
    def may_learn(self) -> bool:
        return self._credit > 0

    @property
    def around(self) -> tuple[bytes, bytes]:
        """What stands before and behind the string, with its quotes."""
        return self._head, self._tail

    def strings(self, texts: Sequence[bytes], *, start: int) -> list[str]:
        """Those of the chunks from `start` on, as long as they are alike and no piece is empty."""
        head, tail, begin, end = self._head, self._tail, self._start, self._end
        found: list[str] = []
        try:
            for text in islice(texts, start, None) if start else texts:
                if not (text.startswith(head) and text.endswith(tail)):
                    break
                # Where head and tail share bytes, or one string has become two, this is no string.
                if not (string := decode_string(text[begin:end])):
                    break
                found.append(string)
        except UNREADABLE:
            pass  # the reader of the whole chunk says what is wrong with it
        self._credit = min(MOST, self._credit + len(found))
        return found

    def string(self, text: bytes) -> str:
        """That of one chunk; empty where it is not alike, or says nothing."""
        if text.startswith(self._head) and text.endswith(self._tail):
            try:
                return decode_string(text[self._start : self._end])
            except UNREADABLE:
                pass
        return ""

    def learn(self, text: bytes, string: str, *, rest: Rest, read: Callable[[bytes], str | None]) -> None:
        """`text` brought the piece `string`, which is what `read` gives for such a chunk (or raises one of UNREADABLE)."""
        self._credit -= LEARNING
        self.rest = None
        literal = msgspec.json.encode(string)
        at = text.find(literal)
        if at < 0:
            return  # written with other escapes
        head, tail = text[: at + 1], text[at + len(literal) - 1 :]
        try:
            is_piece = read(head + PROBE.encode() + tail) == PROBE
        except UNREADABLE:
            return
        if is_piece:
            self.rest = rest
            self._head, self._tail = head, tail
            self._start, self._end = at, 1 - len(tail)
