"""How much of one stream is read before the event loop turns: everybody else is served in between.

A read may hold any number of events, and a socket that always has more is read without a pause. So a stream is cut into
portions by a count, and not by a clock. What is long and can only be read at once (an event, a body, the end of a long answer)
is read in a thread: the event loop goes on beside it.
"""

import re
from itertools import islice

from turnwise.base.threads import LONG_BYTES

MOST_EVENTS = 256
MOST_BYTES = LONG_BYTES

_LINE_END = re.compile(rb"\r\n?|\n")
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_ELEMENT_END = re.compile(rb"\}")
_WHOLE = (b"\n\n", b"\r\n\r\n")
_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n")


class Portions:
    """Of one stream. `left_events` and `left_bytes` may be read in the portion at hand; `begin` another once the loop has turned.

    What is no longer than a portion is not cut: it waits for the next one.
    """

    __slots__ = ("_is_array", "_open_bytes", "left_bytes", "left_events")

    def __init__(self) -> None:
        self._is_array: bool | None = None
        self._open_bytes = 0  # of the event at hand, at most
        self.begin()

    def begin(self) -> None:
        self.left_events, self.left_bytes = MOST_EVENTS, MOST_BYTES

    @property
    def is_over(self) -> bool:
        return self.left_events <= 0 or self.left_bytes <= 0

    def takes(self, chunk: bytes) -> bool:
        """Whether it is one whole event, as nearly every chunk is that comes alone, and may be read now; it is counted then. What
        it does not take is for `cut`."""
        size = len(chunk)
        end = chunk.find(b"\n")
        if end < size - 3:
            end = chunk.find(b"\n", end + 1)  # a name may stand before the data
        if end < size - 3 or self._open_bytes or self._is_array is not False or not chunk.endswith(_WHOLE):
            return False
        if size > self.left_bytes or self.left_events <= 0 or (13 in chunk and _LONE_RETURN.search(chunk)):
            return False
        self.left_events -= 1
        self.left_bytes -= size
        return True

    def cut(self, chunk: bytes) -> tuple[bytes, bytes]:
        """What of the chunk may be read now, and the rest, which waits for the next portion."""
        now, rest = chunk, b""
        if len(chunk) > self.left_bytes:
            now, rest = chunk[: self.left_bytes], chunk[self.left_bytes :]
        events = self._count(now)
        if rest or events > self.left_events:
            if self.left_events < MOST_EVENTS:
                self.left_events = 0
                return b"", chunk
            if events > self.left_events:
                events = self.left_events
                ends = _ELEMENT_END.finditer(now) if self._is_array else islice(_LINE_END.finditer(now), 1, None, 2)
                last = next(islice(ends, events - 1, None), None)
                if last is not None:
                    now, rest = now[: last.end()], now[last.end() :] + rest
        self.left_events -= events
        self.left_bytes -= len(now)
        return now, rest

    def _count(self, chunk: bytes) -> int:
        """How many events it holds, at most: each has a line and a blank one behind it. In a stream that is one JSON array each
        closing brace may end one."""
        if self._is_array is None and (begun := chunk.lstrip()):
            self._is_array = begun.startswith((b"[", b"{"))
        if self._is_array:
            return chunk.count(b"}")
        lines = chunk.count(b"\n")
        if 13 in chunk:
            lines += len(_LONE_RETURN.findall(chunk))
        return (lines + 1) // 2 or 1

    def may_end_long(self, now: bytes) -> bool:
        """Whether these bytes may end an event that is longer than a portion. Asked of all that is read, in order."""
        self._open_bytes += len(now)
        if self._open_bytes <= MOST_BYTES:
            if now.endswith(_BLANK_LINES):
                self._open_bytes = 0
            return False
        last = now.rfind(b"}") if self._is_array else max([now.rfind(end) for end in _BLANK_LINES])
        if last >= 0:
            self._open_bytes = len(now) - last
        return True
