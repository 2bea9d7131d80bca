"""Server-sent events: bytes in any pieces <-> events. Source: WHATWG HTML, "Server-sent events", section 9.2.6."""

import msgspec

from turnwise.wire.json_fields import one_line
from turnwise.wire.limits import DEFAULT_LIMITS, Limits

BOM = b"\xef\xbb\xbf"

LINE_OVERHEAD = 40
"""What one more line of an event costs beside its bytes: an object and its place in a list. Counted, so that lines of one
character cannot take many times what the limit says."""

SLICE_BYTES = 64 * 1024
"""A chunk is taken apart in slices of this size, so that no more of its lines exist at once; sockets give no more anyway."""


class SseEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: the value of its last `event:` line ("" if none) and its `data:` lines joined by a newline."""

    data: bytes
    name: str = ""


class LineTooLong(ValueError):
    """A line or an event grew past its limit. The family's decoder turns it into a `Faulted` frame.

    `events` are those that the same chunk completed before it, so that nothing depends on where the network cut.
    """

    def __init__(self, what: str, *, limit_bytes: int, events: "list[SseEvent]") -> None:
        super().__init__(f"{what} of the stream is longer than {limit_bytes} bytes")
        self.events = events


class SseParser:
    """Feed bytes in any pieces; each call returns the events that became whole. `finish()` returns an event that the
    stream left without its blank line (some providers do). Comments and unknown fields are passed over."""

    __slots__ = (
        "_after_cr",
        "_data",
        "_data_bytes",
        "_limit",
        "_name",
        "_started",
        "_tail",
        "_tail_bytes",
        "_usual",
        "_usual_end",
        "_usual_name",
    )

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._tail: list[bytes] = []  # pieces of the line at hand, joined once when it ends
        self._tail_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self._started = False
        self._after_cr = False
        self._limit = limits.line_bytes
        # How the last event began and ended, if it came as a chunk of its own and no other line is waiting: servers write
        # all events alike, so the next one is most likely the same but for its value. Empty: not known.
        self._usual = b""
        self._usual_end = b""
        self._usual_name = ""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Raises LineTooLong past the limit; the parser is of no use afterwards."""
        usual = self._usual
        if usual and chunk.startswith(usual) and chunk.endswith(self._usual_end) and len(chunk) <= self._limit:
            value = chunk[len(usual) : -len(self._usual_end)]
            if b"\n" not in value and b"\r" not in value:
                return [SseEvent(value, self._usual_name)]
        self._usual = b""
        begins = self._started and self._is_between_events()
        events = self._read_chunk(chunk) if len(chunk) <= SLICE_BYTES else self._read_slices(chunk)
        if begins and len(events) == 1 and self._is_between_events():
            self._learn(chunk, events[0])
        return events

    def _is_between_events(self) -> bool:
        return not (self._tail or self._data or self._name or self._after_cr)

    def _learn(self, chunk: bytes, event: SseEvent) -> None:
        end = b"\r\n\r\n" if chunk.endswith(b"\r\n\r\n") else b"\n\n"
        usual = chunk.removesuffix(event.data + end)
        if usual != chunk and usual.endswith(b"data: "):
            self._usual, self._usual_end, self._usual_name = usual, end, event.name

    def _read_slices(self, chunk: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        for start in range(0, len(chunk), SLICE_BYTES):
            try:
                events += self._read_chunk(chunk[start : start + SLICE_BYTES])
            except LineTooLong as error:
                error.events[:0] = events
                raise
        return events

    def _read_chunk(self, chunk: bytes) -> list[SseEvent]:
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == b"\n":
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._after_cr = chunk[-1:] == b"\r"
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[SseEvent] = []
        if lines:
            if self._tail:
                self._keep(lines[0], events)
                lines[0] = b"".join(self._tail)
                self._tail.clear()
                self._tail_bytes = 0
            self._read_lines(lines, events)
        if rest:
            self._keep(rest, events)
        return events

    def finish(self) -> list[SseEvent]:
        """End of the stream: what stands there unfinished is taken as it is."""
        events: list[SseEvent] = []
        lines = [b"".join(self._tail), b""]
        self._tail.clear()
        self._tail_bytes = 0
        self._read_lines(lines, events)
        return events

    def _keep(self, piece: bytes, events: list[SseEvent]) -> None:
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        if self._tail_bytes > self._limit:
            raise LineTooLong("a line", limit_bytes=self._limit, events=events)

    def _read_lines(self, lines: list[bytes], events: list[SseEvent]) -> None:
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(BOM)
        limit, data = self._limit, self._data
        for line in lines:
            if not line:
                if data:
                    events.append(SseEvent(data[0] if len(data) == 1 else b"\n".join(data), self._name))
                    data.clear()
                    self._data_bytes = 0
                self._name = ""
                continue
            if len(line) > limit:
                raise LineTooLong("a line", limit_bytes=limit, events=events)
            if line.startswith(b"data:"):
                value = line[6:] if line.startswith(b"data: ") else line[5:]
            elif line == b"data":
                value = b""
            else:
                if line.startswith(b"event:"):
                    self._name = line[6:].strip().decode("utf-8", "replace")
                continue
            if data:
                self._data_bytes += len(value) + LINE_OVERHEAD
                if self._data_bytes > limit:
                    raise LineTooLong("an event", limit_bytes=limit, events=events)
            else:
                self._data_bytes = len(value)
            data.append(value)


def encode_event(data: bytes, *, name: str = "") -> bytes:
    """One event as bytes. `data` is JSON: its line breaks, if any, mean nothing and would end the event's line."""
    data = one_line(data)
    if name:
        return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
    return b"data: " + data + b"\n\n"
