"""How a streamed response is cut into chunks: server-sent events, or one JSON array whose elements come one by one.

`streamGenerateContent?alt=sse` gives events with CRLF; without `alt=sse` the API writes a JSON array. Which one it is
shows in the first byte that is not blank. A body that begins with `{` (an error where a stream was expected) is read as
an array of one.
"""

import re
from collections.abc import Iterable

from turnwise.wire.limits import Limits
from turnwise.wire.many_items import COUNTED_BYTES
from turnwise.wire.sse import LineTooLong, SseEvent, SseParser, check_event, too_long

BETWEEN = b" \t\r\n,[]"  # all that may stand before, between and behind the elements
_BLANK = b" \t\r\n\xef\xbb\xbf"  # white space and the bytes of a byte order mark
HEAD_BYTES = 400  # enough for 80 characters of a message, whatever their encoding

# Everything up to the next bracket outside a string, whole strings included. Possessive, so that it never looks back.
_OUTSIDE = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class ArraySplitter:
    """Bytes of `[{...},{...}]` in any pieces -> the objects, each as soon as its last byte is there.

    Where a brace or a quote was lost, elements end too early or swallow the ones behind them. No byte of that is dropped: an
    element with it is no JSON, and what stands between two elements and belongs to neither comes out as a text of its own,
    after a comma, so that it is no JSON either (promise assembly:lost-piece).

    Every byte is looked at once or twice, whatever the pieces. Raises LineTooLong when one object grows past the limit.
    """

    __slots__ = (
        "_depth",
        "_escaped",
        "_gap",
        "_gap_bytes",
        "_held",
        "_held_bytes",
        "_in_string",
        "_is_open_array",
        "_limit",
        "_limits",
        "_looked_at",
        "has_long",
    )

    def __init__(self, *, limits: Limits) -> None:
        self._held: list[bytes] = []  # pieces of the object at hand
        self._held_bytes = 0
        self._gap: list[bytes] = []  # what stands between the elements and should not
        self._gap_bytes = 0
        self._depth = 0  # brackets open inside the object at hand; 0: between objects
        self._in_string = False
        self._escaped = False  # the piece ended right after a backslash
        self._is_open_array = False
        self.has_long = False  # see `SseParser`
        self._limits = limits
        self._limit = limits.line_bytes
        self._looked_at = min(limits.call_bytes, COUNTED_BYTES)

    def _note_brackets(self, between: bytes) -> None:
        """The array's own, before, between and behind its elements."""
        begun, ended = between.rfind(b"["), between.rfind(b"]")
        if begun != ended:
            self._is_open_array = begun > ended

    def feed(self, chunk: bytes) -> list[bytes]:
        found: list[bytes] = []
        start = at = 0
        end = len(chunk)
        while at < end:
            if not self._depth:
                start = chunk.find(b"{", at)
                self._note_brackets(chunk[at : end if start < 0 else start])
                if between := chunk[at : len(chunk) if start < 0 else start].translate(None, BETWEEN):
                    self._widen_gap(between, found)
                if start < 0:
                    return found
                found += self._take_gap()
                self._depth = 1
                at = start + 1
            at = self._advance(chunk, at)
            self._hold(chunk[start:at], found)
            start = at
            if not self._depth:
                self._end_element(found)
        return found

    def finish(self) -> list[bytes]:
        """The object that the stream left unfinished, if any."""
        rest = self._take_gap()
        if self._held:
            self._end_element(rest)
        return rest

    def _end_element(self, found: list[bytes]) -> None:
        element = b"".join(self._held)
        self._held.clear()
        if self._held_bytes > self._looked_at:
            self.has_long = True
            check_event(element, limits=self._limits, events=[SseEvent(text) for text in found])
        self._held_bytes = 0
        found.append(element)

    def breaks_off(self) -> bool:
        """Whether more was coming: within an element, or because an array has no end yet."""
        return bool(self._depth or self._gap) or self._is_open_array

    def _widen_gap(self, piece: bytes, found: list[bytes]) -> None:
        self._gap.append(piece)
        self._gap_bytes += len(piece)
        if self._gap_bytes > self._limit:
            raise _too_long("what stands between two elements", limits=self._limits, found=found)

    def _take_gap(self) -> list[bytes]:
        if not self._gap:
            return []
        gap = b"," + b"".join(self._gap)
        self._gap.clear()
        self._gap_bytes = 0
        return [gap]

    def _hold(self, piece: bytes, found: list[bytes]) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit:
            raise _too_long("an element", limits=self._limits, found=found, held=self._held)

    def _advance(self, chunk: bytes, at: int) -> int:
        """Read on inside an object until it ends or the piece does; return where."""
        end = len(chunk)
        while at < end:
            if self._in_string:
                at = self._leave_string(chunk, at)
                continue
            found = _OUTSIDE.match(chunk, at)
            at = end if found is None else found.end()
            if at == end:
                return at
            byte = chunk[at]
            at += 1
            if byte == 0x22:  # a string that does not end in this piece
                self._in_string = True
            elif byte in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if not self._depth:
                    return at
        return at

    def _leave_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            at += 1
        found = _INSIDE.match(chunk, at)
        at = at if found is None else found.end()
        if at >= len(chunk):
            return len(chunk)
        if chunk[at] == 0x22:
            self._in_string = False
        else:  # a backslash is the last byte of the piece
            self._escaped = True
        return at + 1


def _too_long(what: str, *, limits: Limits, found: list[bytes], held: Iterable[bytes] = ()) -> LineTooLong:
    return too_long(what, limits=limits, events=[SseEvent(text) for text in found], held=held)


class Framing:
    """Bytes in any pieces -> the JSON texts of the chunks. `head` is how the stream began. Raises LineTooLong."""

    __slots__ = ("_limits", "_splitter", "_sse", "has_long", "head")

    def __init__(self, *, limits: Limits) -> None:
        self.head = b""
        self.has_long = False  # see `SseParser`
        self._limits = limits
        self._sse: SseParser | None = None
        self._splitter: ArraySplitter | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        if not self.head:
            chunk = chunk.lstrip(_BLANK)
        if len(self.head) < HEAD_BYTES:
            self.head += chunk[: HEAD_BYTES - len(self.head)]
        if self._sse is not None:
            values = _values(self._sse, chunk)
            self.has_long = self._sse.has_long
            return values
        if self._splitter is not None:
            values = self._splitter.feed(chunk)
            self.has_long = self._splitter.has_long
            return values
        if not chunk:
            return []
        if chunk[0] in b"[{":
            self._splitter = ArraySplitter(limits=self._limits)
        else:
            self._sse = SseParser(limits=self._limits)
        return self.feed(chunk)

    def breaks_off(self) -> bool:
        """Whether what has come ends within a line, an event, an element or the array."""
        if self._sse is not None:
            return self._sse.breaks_off()
        return self._splitter is not None and self._splitter.breaks_off()

    def finish(self) -> list[bytes]:
        """What the stream left unfinished: an event without its blank line is still an event."""
        if self._sse is not None:
            return [event.data for event in self._sse.finish()]
        return self._splitter.finish() if self._splitter is not None else []


def _values(parser: SseParser, chunk: bytes) -> list[bytes]:
    runs = parser.feed_runs(chunk)
    return runs[0].values if len(runs) == 1 else [value for run in runs for value in run.values]
