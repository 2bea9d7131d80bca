"""Bytes of a streamed answer -> chunks -> frames, plainly and by the fast ways."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from turnwise.vocab import Fault, Faulted, Frame, ReasoningDelta, TextDelta, ToolCallDelta
from turnwise.wire.faults import no_response, past_limit, too_large
from turnwise.wire.gemini.chunk_reader import ChunkReader
from turnwise.wire.gemini.chunks import PartialArg
from turnwise.wire.json_fields import LONG_BYTES, NOTHING, UNREADABLE, check_utf8
from turnwise.wire.long_events import COUNTED_BYTES
from turnwise.wire.profiles import Limits
from turnwise.wire.repeated_chunks import LEARN_FROM, MISS_COST, START, Alike
from turnwise.wire.sse import LineTooLong, SseEvent, SseParser, check_event, too_long

# The fast ways through a stream of Gemini's. `chunk_reader.py` reads every chunk alone: read it first.
#
# A fast way takes chunks that only bring more of what is under way, and leaves all others to the plain one. Both give the same
# frames of every stream (tests/wire/test_fast_ways.py).
#
# | way | takes | skips |
# |---|---|---|
# | usual | a chunk of one part with more of the text or call under way, and usage | the fields that it refuses |
# | alike | chunks that differ from a usual one in nothing but its piece (`wire/repeated_chunks.py`) | decoding the rest of them |


class UsualCall(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """More of the current call."""

    partial_args: list[PartialArg]
    will_continue: Literal[True]


class UsualPart(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    text: str | None = None
    thought: bool | None = None
    function_call: UsualCall | None = None


class UsualContent(msgspec.Struct, gc=False):
    parts: tuple[UsualPart]


class UsualCandidate(msgspec.Struct, rename="camel", gc=False):
    content: UsualContent
    index: Literal[0] = 0
    finish_reason: None = None
    grounding_metadata: None = None
    citation_metadata: None = None
    url_context_metadata: None = None


class UsualChunk(msgspec.Struct, rename="camel", gc=False):
    """A chunk that only goes on: whatever says more is refused, so nothing else has to be looked at."""

    candidates: tuple[UsualCandidate]
    usage_metadata: msgspec.Raw = NOTHING
    prompt_feedback: None = None
    error: None = None


decode_usual = msgspec.json.Decoder(UsualChunk).decode
"""Raises one of UNREADABLE where a chunk is not usual."""


class Rest(msgspec.Struct, frozen=True, gc=False):
    """What a usual chunk says beside its piece of a text or of an argument."""

    kind: str  # "text", "reasoning", "call"
    usage: msgspec.Raw | None  # where it counts something
    path: str = ""  # of the argument
    continues: bool = False  # more of its value was announced


class FastChunks:
    """Reads what it can of the chunks that `reader` would read."""

    __slots__ = ("_alike", "_hits", "_misses", "_reader")

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._alike: Alike[Rest] = Alike()
        self._hits = START  # chunks that were usual
        self._misses = 0

    def read(self, texts: list[bytes], start: int, frames: list[Frame]) -> int:
        """How many chunks it took, from `start` on; 0 where the next one is for the plain way."""
        reader = self._reader
        if not (reader.started and reader.goes_on):
            return 0
        is_alone = len(texts) == 1  # then the whole is decoded as quickly as its piece is found
        rest = None if is_alone else self._alike.rest
        if rest is not None and (count := self._read_alike(texts, start, frames, rest=rest)):
            return count
        text = texts[start]
        if self._misses >= self._hits or len(text) > LONG_BYTES:
            return 0
        try:
            if not text.isascii():
                check_utf8(text)
            chunk = decode_usual(text)
        except UNREADABLE:
            self._misses += MISS_COST
            return 0
        part = chunk.candidates[0].content.parts[0]
        call = part.function_call
        if call is not None:
            running = reader.call
            if running is None or len(call.partial_args) != 1:
                return 0
            if value := running.arguments.add(call.partial_args[0]):
                frames.append(ToolCallDelta(block=running.block, arguments=value))
        elif part.text and reader.kind == "text" and not part.thought:
            frames.append(TextDelta(part.text, reader.block))
        elif part.text and reader.kind == "reasoning" and part.thought:
            frames.append(ReasoningDelta(part.text, reader.block))
        else:
            return 0
        self._hits += 1
        usage = None
        if chunk.usage_metadata is not NOTHING and reader.usage.add(chunk.usage_metadata):
            usage = chunk.usage_metadata
        if not is_alone and self._hits >= LEARN_FROM and self._alike.may_learn:
            self._learn(part, text, usage=usage)
        reader.repeats.note(text)
        return 1

    def _read_alike(self, texts: list[bytes], start: int, frames: list[Frame], *, rest: Rest) -> int:
        """Read the chunks that differ from the one that was learned in nothing but their piece; returns how many were."""
        reader, call = self._reader, self._reader.call
        if rest.kind == "call":
            if call is None or not call.arguments.is_in_string(rest.path):
                return 0
            if strings := self._alike.strings(texts, start=start):
                block, values = call.block, call.arguments.add_strings(strings, continues=rest.continues)
                frames += [ToolCallDelta(block=block, arguments=value) for value in values]
        elif rest.kind != reader.kind:
            return 0
        else:
            strings, block = self._alike.strings(texts, start=start), reader.block
            if rest.kind == "text":
                frames += [TextDelta(string, block) for string in strings]
            else:
                frames += [ReasoningDelta(string, block) for string in strings]
        if strings:
            reader.repeats.note_alike(strings, texts[start : start + len(strings)], around=self._alike.around)
            if rest.usage is not None:
                reader.usage.add(rest.usage)
        self._hits += len(strings)
        return len(strings)

    def _learn(self, part: UsualPart, text: bytes, *, usage: msgspec.Raw | None) -> None:
        """More chunks may be like this one, which was taken."""
        call, running = part.function_call, self._reader.call
        if call is None:
            if part.text:
                self._alike.learn(text, part.text, rest=Rest(self._reader.kind, usage), read=_piece_of_text)
        elif running is not None:
            piece = call.partial_args[0]
            if piece.string_value and running.arguments.is_in_string(piece.json_path):
                rest = Rest("call", usage, piece.json_path, bool(piece.will_continue))
                self._alike.learn(text, piece.string_value, rest=rest, read=_piece_of_call)


def _piece_of_text(text: bytes) -> str | None:
    return decode_usual(text).candidates[0].content.parts[0].text


def _piece_of_call(text: bytes) -> str | None:
    call = decode_usual(text).candidates[0].content.parts[0].function_call
    return None if call is None else call.partial_args[0].string_value


# How a streamed response is cut into chunks: server-sent events, or one JSON array whose elements come one by one.
#
# `streamGenerateContent?alt=sse` gives events with CRLF; without `alt=sse` the API writes a JSON array. Which one it is
# shows in the first byte that is not blank. A body that begins with `{` (an error where a stream was expected) is read as
# an array of one.


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
        self._held: list[bytes] = []  # pieces of the current object
        self._held_bytes = 0
        self._gap: list[bytes] = []  # what stands between the elements and should not
        self._gap_bytes = 0
        self._depth = 0  # brackets open inside the current object; 0: between objects
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
            return self._end_at(error)
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
            return self._end_at(error)
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

    def _end_at(self, error: LineTooLong) -> list[Frame]:
        frames = self._read([event.data for event in error.events])
        return [*frames, *error.begun(), *self._die(past_limit(error))]

    def _die(self, fault: Fault) -> list[Frame]:
        self._dead = True
        return [Faulted(fault)]
