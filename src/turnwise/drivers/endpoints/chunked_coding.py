"""Where the chunks of a body begin and end, read beside the HTTP parser.

A server that streams words sends each as one chunk, and each comes alone. Such a chunk needs no parser: what it says is between
its length and its line end. A parser that has not seen it stands where it stood, between two chunks.

RFC 9112, section 7.1. What is not written in the plainest way that it allows is the parser's alone from there on.
"""

import re

_LENGTH = re.compile(rb"[0-9a-fA-F]{1,8}\r\n")
_LONGEST = 10  # bytes of that
_END = b"\r\n"
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
