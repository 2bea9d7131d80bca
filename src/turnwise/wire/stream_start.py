"""How a stream begins, kept until its first event: it may be a body, or no response at all."""

import re

from turnwise.wire.limits import SLICE_BYTES, Limits

HEAD_BYTES = SLICE_BYTES
"""What is kept to say what arrived, if it was neither a stream nor a body."""
_FIELD = re.compile(rb"[\r\n](?:data|event):")
_FIELD_BYTES = len(b"\nevent:")


class StreamBeginning:
    """Give it what arrives and parse what it returns. It holds back what may be a body, which is then not there twice: a text
    that begins with a brace, as long as no line in it is a field of an event stream and none is longer than a line may be."""

    __slots__ = ("_first", "_held", "_line_bytes", "_line_limit", "_size", "_size_limit", "is_held")

    def __init__(self, *, limits: Limits) -> None:
        self.is_held = False
        self._first = b""  # the first byte that is no space
        self._held: list[bytes] = []
        self._size = 0
        self._size_limit = limits.response_bytes
        self._line_bytes = 0  # of the last line
        self._line_limit = limits.line_bytes

    @property
    def is_too_large(self) -> bool:
        return self._size > self._size_limit

    @property
    def breaks_off(self) -> bool:
        """Whether what is held ends within a line."""
        return self.is_held and not self._held[-1].rstrip(b" \t").endswith((b"\n", b"\r"))

    def take(self, chunk: bytes) -> bytes:
        """What the parser should read now."""
        if not self._first and (first := chunk.lstrip()[:1]):
            self._first = first
            self.is_held = first == b"{"
        if not self.is_held:
            if self._size < HEAD_BYTES:
                self._held.append(chunk[: HEAD_BYTES - self._size])
                self._size += len(self._held[-1])
            return chunk
        around = self._held[-1][-_FIELD_BYTES:] + chunk if self._held else chunk
        self._held.append(chunk)
        self._size += len(chunk)
        ended = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
        self._line_bytes = len(chunk) - ended - 1 if ended >= 0 else self._line_bytes + len(chunk)
        if self._line_bytes <= self._line_limit and _FIELD.search(around) is None:
            return b""
        self.is_held = False
        return self.whole()

    def whole(self) -> bytes:
        """All that is kept; it is let go of."""
        whole = b"".join(self._held)
        self._held.clear()
        return whole
