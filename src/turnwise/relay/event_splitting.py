"""A stream of server-sent events, cut into the bytes of single events, so that a healthy event can go on as it came."""

import re

from turnwise.wire.json_fields import is_json
from turnwise.wire.limits import Limits
from turnwise.wire.sse import BOM

_BLANK_LINE = re.compile(rb"\r\n\r\n|\n\r\n|\r\n\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_SEAM = 3  # bytes of a torn blank line: all but its last


class EventSplitter:
    """Feed bytes in any pieces; each call returns the events that became whole, each with its blank line.

    An event past `limits.line_bytes` is handed out in the pieces in which it came: the decoder refuses it. `has_torn`: there was
    one, so what comes from now on may be no event.
    """

    __slots__ = ("_limit_bytes", "_looked_at", "_tail", "_tail_bytes", "has_torn")

    def __init__(self, limits: Limits) -> None:
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._looked_at = b""  # the end of the tail: a blank line may be torn
        self._limit_bytes = limits.line_bytes
        self.has_torn = False

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
            self.has_torn = True
            return [self.rest()]
        self._looked_at = (self._looked_at + piece)[-_SEAM:]
        return []


def split_whole(events: bytes) -> list[bytes]:
    """The single events of bytes that end with one."""
    ends = [blank.end() for blank in _BLANK_LINE.finditer(events)]
    return [events[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def completed(rest: bytes) -> bytes | None:
    """What came behind the last whole event with its blank line, where nothing but that is missing: its data is a whole object or
    array, or the end mark, none of which could go on. None for a fragment, which no client may see."""
    lines = _LINE_END.split(rest.removeprefix(BOM))
    fields = [line for line in lines if line]
    values = [line[5:].strip() for line in fields if line.startswith(b"data:")]
    is_cut = lines[-1] and not lines[-1].startswith(b"data:")  # in the middle of a line that nothing shows to be whole
    if is_cut or not values or not all(line.startswith(_FIELDS) for line in fields):
        return None
    data = b"\n".join(values)
    is_whole = data == b"[DONE]" or (data.startswith((b"{", b"[")) and is_json(data))
    return rest.rstrip(b"\r\n") + b"\n\n" if is_whole else None
