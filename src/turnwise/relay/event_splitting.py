"""A stream of server-sent events, cut into the bytes of single events, so that a healthy event can go on as it came."""

import re

from turnwise.wire.limits import Limits

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\r\n|\r\n\n|\n\n|\r\r")
_SEAM = 3  # bytes of a torn blank line: all but its last


class EventSplitter:
    """Feed bytes in any pieces; each call returns the events that became whole, each with its blank line.

    An event past `limits.line_bytes` is handed out in the pieces in which it came: the decoder refuses it.
    """

    __slots__ = ("_limit_bytes", "_looked_at", "_tail", "_tail_bytes")

    def __init__(self, limits: Limits) -> None:
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._looked_at = b""  # the end of the tail: a blank line may be torn
        self._limit_bytes = limits.line_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self._tail:
            return self._cut(chunk)
        if _BLANK_LINE.search(self._looked_at + chunk) is None:
            return self._keep(chunk)
        return self._cut(self.rest() + chunk)

    def rest(self) -> bytes:
        """What came behind the last whole event."""
        rest, self._tail, self._tail_bytes, self._looked_at = b"".join(self._tail), [], 0, b""
        return rest

    def _cut(self, text: bytes) -> list[bytes]:
        if text.endswith(b"\n\n") and text.find(b"\n\n") == len(text) - 2 and b"\r" not in text:
            return [text]  # one event alone, told first because speed counts
        events: list[bytes] = []
        start = 0
        for blank in _BLANK_LINE.finditer(text):
            events.append(text[start : blank.end()])
            start = blank.end()
        return events if start == len(text) else [*events, *self._keep(text[start:])]

    def _keep(self, piece: bytes) -> list[bytes]:
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        if self._tail_bytes > self._limit_bytes:
            return [self.rest()]
        self._looked_at = (self._looked_at + piece)[-_SEAM:]
        return []
