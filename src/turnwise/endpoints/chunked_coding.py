"""Where the chunks of a body begin and end, read beside the HTTP parser.

A server that streams words sends each as one chunk. Such a chunk needs no parser if it comes whole: what it says is between
its length and its line end. A parser that has not seen it stands where it stood, between two chunks. Mostly each comes alone.
Where a reader falls behind, several come at once: they must cost less than alone then, or it never catches up.

RFC 9112, section 7.1. What is not written in the plainest way that it allows is the parser's alone from there on.
"""

import re
from collections.abc import Iterator

_LENGTH = re.compile(rb"[0-9a-fA-F]{1,8}\r\n")
_PLAIN = re.compile(rb"[1-9a-fA-F][0-9a-fA-F]{0,7}\r\n")  # without the zeros that it allows
_LONGEST = 10  # bytes of that
_END = b"\r\n"
MOST_AT_ONCE = (
    64  # chunks of one read: a server can send ten thousands of them in one, and other streams wait meanwhile
)
_SHORT = 4096  # bytes of a chunk with its framing: those of words are shorter
_Lines = tuple[tuple[bytes, ...], int]
_LINES: dict[
    int, _Lines
] = {}  # by the bytes of a single chunk: its first line, in lower and upper case, and how long that is


def single_chunk(data: bytes) -> bytes:
    """What the chunk says that these bytes are, if they begin where a chunk does; nothing where they are anything else, or longer
    than a word."""
    size = len(data)
    known = _LINES.get(size)
    if known is None:
        if size > _SHORT:
            return b""
        known = _LINES[size] = _lines_of(size)
    lines, at = known
    return data[at:-2] if data.startswith(lines) and data.endswith(_END) else b""


def leading_chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """What the whole chunks say that the bytes begin with, if they begin where a chunk does, and where each ends. It stops behind
    `MOST_AT_ONCE` of them, at the first one that is not written plainly, and at the last one of a body."""
    at = 0
    for _ in range(MOST_AT_ONCE):
        if (found := _PLAIN.match(data, at)) is None:
            return
        begin = found.end()
        end = begin + int(found[0], 16)
        if not data.startswith(_END, end):
            return
        at = end + len(_END)
        yield data[begin:end], at


def _lines_of(size: int) -> _Lines:
    """Without any line where no single chunk has that size: one digit more of its length makes it two bytes longer."""
    for digits in range(1, len(b"%x" % size) + 1):
        said = size - digits - 2 * len(_END)
        if said > 0 and len(b"%x" % said) == digits:
            line = b"%x\r\n" % said
            return tuple({line, line.upper()}), len(line)
    return (), 0


class ChunkedCoding:
    """Of one body. `follow` it from the first byte behind the head, without a gap but for the chunks that were taken alone."""

    __slots__ = ("_awaited", "_begun", "_left", "_lost")

    def __init__(self) -> None:
        self._left = 0  # bytes of what the chunk at hand says
        self._awaited = b""  # of its line end
        self._begun = b""  # of a length that has not come whole
        self._lost = False

    @property
    def is_between_chunks(self) -> bool:
        """Whether the next byte begins one, as far as can be told."""
        return not (self._left or self._awaited or self._lost or self._begun)

    def follow(self, data: bytes) -> None:
        """The parser reads these bytes."""
        at = 0
        while at < len(data) and not self._lost:
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            if self._awaited:
                end = data[at : at + len(self._awaited)]
                self._lost = not self._awaited.startswith(end)  # some parsers take a line feed alone
                self._awaited = self._awaited[len(end) :]
                at += len(end)
                continue
            begun = self._begun + data[at : at + _LONGEST]
            found = _LENGTH.match(begun)
            if found is None:
                self._lost = len(begun) >= _LONGEST or b"\n" in begun
                at, self._begun = len(data), begun
                continue
            at += found.end() - len(self._begun)
            self._begun = b""
            self._left, self._awaited = int(found[0], 16), _END
            self._lost = self._left == 0  # the last one: what follows is a trailer
