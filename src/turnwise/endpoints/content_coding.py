"""Compressed bodies -> their bytes, piece by piece. Pure: bytes in, bytes out.

aiohttp (3.14) takes a gzip stream that breaks off for one that has ended. So turnwise asks servers for plain bodies, and undoes
itself what a server compresses all the same.
"""

import zlib
from typing import Protocol

PIECE_BYTES = 64 * 1024
"""What is given at once, and so all that a body of zeros takes at a time."""

STEP_BYTES = 4 * 1024
"""What is read at once. An empty gzip member has 20 bytes, and what stands behind a member is copied with each."""

MOST_GROWTH, GROWTH_FROM_BYTES = 100, 4 * 1024 * 1024
"""What grows by more is a bomb, unless it is short. JSON and events shrink to a fifth or a fiftieth; zlib's most is 1,032."""

_RAW, _ZLIB, _GZIP = -zlib.MAX_WBITS, zlib.MAX_WBITS, 16 + zlib.MAX_WBITS
_DEFLATE_METHOD = 8  # in the low half of zlib's first byte (RFC 1950)
_GZIPS = frozenset(("gzip", "x-gzip"))  # RFC 9110, section 8.4.1.3


class _Inflater(Protocol):
    """What `zlib.decompressobj` gives."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...
    def copy(self) -> "_Inflater": ...


class UnknownCoding(ValueError):
    """A content coding that turnwise does not undo."""


class Unpacker:
    """Feed a body's bytes; `take` gives what they hold, in pieces of a bounded size, until there is no more of it.

    `is_broken`: what follows can no longer be read, or is junk behind the end. All that came before it has been given, however
    the bytes were cut. `is_bomb`: it has grown by more than a body does.
    `has_ended`: the compressed stream said so, or nothing has come.
    """

    def __init__(self, coding: str) -> None:
        if coding not in _GZIPS and coding != "deflate":
            raise UnknownCoding(coding)
        self._is_gzip = coding in _GZIPS
        self._inflater: _Inflater | None = None  # None: a stream may begin here
        self._begun = False
        self._coming = b""
        self._step = STEP_BYTES
        self._fed_bytes = self._given_bytes = 0
        self.is_broken = False

    @property
    def has_ended(self) -> bool:
        return self._inflater is None and not self._coming and not self.is_broken

    def feed(self, chunk: bytes) -> None:
        if not self.is_broken:
            self._coming += chunk
            self._fed_bytes += len(chunk)

    @property
    def is_bomb(self) -> bool:
        read_bytes = self._fed_bytes - len(self._coming)
        return self._given_bytes > max(GROWTH_FROM_BYTES, MOST_GROWTH * read_bytes)

    def take(self) -> bytes:
        """The next piece; nothing once all that was fed has been taken."""
        found: list[bytes] = []
        room = PIECE_BYTES
        while room > 0 and not self.is_broken:
            if self._inflater is None:
                if not self._coming:
                    break
                self._begin()
                continue
            if not (piece := self._inflate(self._inflater, room)) and not self._coming:
                break
            found.append(piece)
            room -= len(piece)
        self._given_bytes += PIECE_BYTES - room
        return b"".join(found)

    def _begin(self) -> None:
        """A stream. Only gzip may have several (RFC 1952, section 2.2)."""
        if self._begun and not self._is_gzip:
            self._break()
            return
        self._begun = True
        is_bare = self._coming[0] & 0xF != _DEFLATE_METHOD  # some servers leave zlib's head out
        self._inflater = zlib.decompressobj(_GZIP if self._is_gzip else _RAW if is_bare else _ZLIB)

    def _inflate(self, inflater: _Inflater, room: int) -> bytes:
        """Read one step of what has come."""
        step, rest = self._coming[: self._step], self._coming[self._step :]
        before = inflater.copy() if len(step) > 1 else inflater
        try:
            piece = inflater.decompress(step, room)
        except zlib.error:
            if len(step) <= 1:
                self._break()
            else:  # byte by byte, so that what stands before the fault is not lost with it
                self._inflater, self._step = before, 1
            return b""
        self._coming = (inflater.unused_data if inflater.eof else inflater.unconsumed_tail) + rest
        if inflater.eof:
            self._inflater = None
        return piece

    def _break(self) -> None:
        self.is_broken = True
        self._coming = b""


def unpacker_for(codings: str) -> Unpacker | None:
    """For a `content-encoding` header; None if the body is plain. Raises UnknownCoding."""
    named = [name for one in codings.lower().split(",") if (name := one.strip()) not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1:
        raise UnknownCoding(", ".join(named))
    return Unpacker(named[0])
