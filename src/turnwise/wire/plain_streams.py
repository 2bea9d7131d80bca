"""What the families share whose streams need no fast ways: one decoder around a parser and a reader of single
chunks."""

from collections.abc import Sequence
from typing import Protocol

from turnwise.vocab import Fault, Faulted, Frame, Repair
from turnwise.wire.faults import no_response, past_limit, too_large
from turnwise.wire.json_fields import PINGS, UNREADABLE, check_sound, left_out
from turnwise.wire.long_events import COUNTED_BYTES, told_long_calls, too_much
from turnwise.wire.profiles import Limits
from turnwise.wire.sse import ALONE_BYTES, LineTooLong, SseEvent, check_event, too_long

HEAD_BYTES = 400  # enough for 80 characters of a message, whatever their encoding


class LineParser:
    """Bytes in any pieces -> lines, each as soon as its line break is there. Raises LineTooLong."""

    __slots__ = ("_held", "_held_bytes", "_limits")

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._held: list[bytes] = []  # pieces of the line that is not whole
        self._held_bytes = 0

    def feed(self, chunk: bytes) -> list[SseEvent]:
        *lines, rest = chunk.split(b"\n")
        found: list[SseEvent] = []
        for line in lines:
            if self._held or len(line) > ALONE_BYTES:
                self._hold(line, found)
                self._end(found)
            elif line and not line.isspace():
                found.append(SseEvent(line))
        if rest:
            self._hold(rest, found)
        return found

    def finish(self) -> list[SseEvent]:
        """The line that the stream left without its line break."""
        found: list[SseEvent] = []
        self._end(found)
        return found

    def breaks_off(self) -> bool:
        return bool(self._held)

    def _hold(self, piece: bytes, found: list[SseEvent]) -> None:
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._limits.line_bytes:
            raise too_long("a line", limits=self._limits, events=found, held=self._held)

    def _end(self, found: list[SseEvent]) -> None:
        line = b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        if len(line) > min(self._limits.call_bytes, COUNTED_BYTES):
            check_event(line, limits=self._limits, events=found)
        if line and not line.isspace():
            found.append(SseEvent(line))


class EventParser(Protocol):
    def feed(self, chunk: bytes, /) -> list[SseEvent]: ...
    def finish(self) -> list[SseEvent]: ...
    def breaks_off(self) -> bool: ...


class PlainReader(Protocol):
    """Reads the chunks of one response."""

    is_over: bool  # nothing that follows counts
    chunks: int  # that could be read

    def read(self, text: bytes, frames: list[Frame], /) -> None:
        """Raises one of UNREADABLE for what is no chunk, before it adds a frame."""
        ...

    def finish(self) -> list[Frame]: ...


def read_chunk(reader: PlainReader, text: bytes, frames: list[Frame]) -> None:
    """What cannot be read is told as lost, all of it: it may have been a piece of any block."""
    if reader.is_over:
        return
    try:
        check_sound(text)
        reader.read(text, frames)
    except UNREADABLE as error:
        what = f"passed over {len(text)} bytes that are no chunk of this API: {error}"
        frames.append(
            left_out(Repair("undecodable_chunk", f"chunk {reader.chunks + 1}", what), text, reaches_ended=True)
        )


class PlainDecoder:
    """See `StreamDecoder`. `expected` names the response for people."""

    __slots__ = ("_bytes_left", "_expected", "_head", "_is_dead", "_limits", "_parser", "_reader")

    def __init__(self, parser: EventParser, reader: PlainReader, *, limits: Limits, expected: str) -> None:
        self._parser = parser
        self._reader = reader
        self._limits = limits
        self._expected = expected
        self._bytes_left = limits.stream_bytes
        self._head = b""
        self._is_dead = False

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._is_dead:
            return []
        if len(self._head) < HEAD_BYTES:
            self._head += chunk[:HEAD_BYTES]
        is_past_limit = len(chunk) > self._bytes_left
        frames: list[Frame] = []
        try:
            self._read(self._parser.feed(chunk[: self._bytes_left] if is_past_limit else chunk), frames)
        except LineTooLong as error:
            return self._end_at(error, frames)
        self._bytes_left -= len(chunk)
        return self._die(too_large(self._limits.stream_bytes), frames) if is_past_limit else frames

    def expects_more(self) -> bool:
        return self._parser.breaks_off()

    def finish(self) -> list[Frame]:
        if self._is_dead:
            return []
        frames: list[Frame] = []
        try:
            self._read(self._parser.finish(), frames)
        except LineTooLong as error:
            return self._end_at(error, frames)
        if self._reader.chunks:
            return frames + self._reader.finish()
        return self._die(no_response(self._head, expected=self._expected), frames)

    def _read(self, events: Sequence[SseEvent], frames: list[Frame]) -> None:
        for event in events:
            # Where only an event's name has come, what it said is lost: a text that is no JSON stands for it.
            if event.data or (event.name and event.name not in PINGS):
                read_chunk(self._reader, event.data or b'"' + event.name.encode(), frames)

    def _end_at(self, error: LineTooLong, frames: list[Frame]) -> list[Frame]:
        self._read(error.events, frames)
        return self._die(past_limit(error), frames + error.begun())

    def _die(self, fault: Fault, frames: list[Frame]) -> list[Frame]:
        self._is_dead = True
        return [*frames, Faulted(fault)]


def read_body(body: bytes, reader: PlainReader, *, limits: Limits, expected: str) -> list[Frame]:
    """The frames of a whole body, which its reader takes as one chunk."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    frames: list[Frame] = []
    read_chunk(reader, body, frames)
    return frames + reader.finish() if reader.chunks else [Faulted(no_response(body, expected=expected))]
