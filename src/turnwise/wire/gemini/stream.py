"""Bytes of a streamed answer -> frames."""

from turnwise.vocab import Fault, Faulted, FaultKind, Frame
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.gemini.chunk_reader import ChunkReader
from turnwise.wire.gemini.fast import FastChunks
from turnwise.wire.gemini.framing import Framing
from turnwise.wire.limits import Limits
from turnwise.wire.sse import LineTooLong


class GeminiStreamDecoder:
    """See `StreamDecoder`. Reads server-sent events and JSON arrays alike."""

    def __init__(self, limits: Limits, *, fast: type[FastChunks] | None = FastChunks) -> None:
        """`fast` reads nearly all chunks of a usual stream; None where `ChunkReader` has to read them all."""
        self._framing = Framing(limits=limits)
        self._reader = ChunkReader()
        self._fast = None if fast is None else fast(self._reader)
        self._bytes_left = limits.stream_bytes
        self._limit_bytes = limits.stream_bytes
        self._dead = False

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._dead:
            return []
        is_past_limit = len(chunk) > self._bytes_left
        try:
            texts = self._framing.feed(chunk[: self._bytes_left] if is_past_limit else chunk)
            frames = self._read(texts)
        except LineTooLong as error:
            frames = self._read([event.data for event in error.events])
            return [*frames, *error.begun(), *self._die(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))]
        self._bytes_left -= len(chunk)
        if is_past_limit:
            return frames + self._die(too_large(self._limit_bytes))
        return frames

    def expects_more(self) -> bool:
        return self._framing.breaks_off()

    def finish(self) -> list[Frame]:
        if self._dead:
            return []
        try:
            frames = self._read(self._framing.finish())
        except LineTooLong as error:
            frames = self._read([event.data for event in error.events])
            return [*frames, *error.begun(), *self._die(Fault(kind=FaultKind.TOO_LARGE, message=str(error)))]
        if self._reader.chunks:
            return frames + self._reader.finish()
        return self._die(no_response(self._framing.head, expected="a stream of Gemini's"))

    def _read(self, texts: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        fast, at, end = self._fast, 0, len(texts)
        while at < end:
            if fast is not None and (count := fast.read(texts, at, frames)):
                at += count
            else:
                self._reader.read(texts[at], frames)
                at += 1
        return frames

    def _die(self, fault: Fault) -> list[Frame]:
        self._dead = True
        return [Faulted(fault)]
