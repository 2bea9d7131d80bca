"""A Chat Completions stream -> frames, plainly and by the fast ways."""

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from turnwise.vocab import (
    Fault,
    Faulted,
    FaultKind,
    Frame,
    Lost,
    Mended,
    ReasoningDelta,
    Repair,
    TextDelta,
    ToolCallDelta,
)
from turnwise.vocab.json_values import objects_in
from turnwise.vocab.wording import in_ticks
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.json_fields import (
    LINE_END_LOST,
    LONG_BYTES,
    UNREADABLE,
    breaks_strings,
    has_controls,
    is_error,
    is_sound,
    left_out,
    read_damaged,
)
from turnwise.wire.long_events import read_any, told_long_calls, too_much
from turnwise.wire.openai_chat.chunk_reader import ChunkReader
from turnwise.wire.openai_chat.chunks import Chunk, decode_chunk, is_there, read_loosely
from turnwise.wire.openai_chat.faults import decode_error_event
from turnwise.wire.profiles import MAX_PARTS, Limits, Profile
from turnwise.wire.repeated_chunks import LEARN_FROM, MISS_COST, START, Alike
from turnwise.wire.sse import LineTooLong, SseEvent, SseParser, SseRun

# The fast ways through a Chat Completions stream. `stream.py` and `chunk_reader.py` read every stream alone: read them first.
#
# A fast way takes chunks that only bring more of what is under way, and leaves all others to the plain one. Both give the same
# frames of every stream (tests/wire/test_fast_ways.py).
#
# | way | takes | skips |
# |---|---|---|
# | usual | a chunk of one choice with texts, reasoning or calls under way, and nothing else | the fields that it refuses |
# | alike | chunks that differ from a usual one in nothing but its piece (`wire/repeated_chunks.py`) | decoding the rest of them |


class UsualFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class UsualCallPiece(msgspec.Struct, gc=False):
    function: UsualFunction
    index: int | None = None
    id: str | None = None
    custom: None = None
    extra_content: None = None


class UsualDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[UsualCallPiece] | None = None
    reasoning_text: None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None
    annotations: None = None
    executed_tools: None = None
    images: None = None


class UsualChoice(msgspec.Struct, gc=False):
    delta: UsualDelta
    index: Literal[0] = 0
    message: None = None
    finish_reason: str | None = None  # where it says something the chunk is not usual, and an exception would cost more


class UsualChunk(msgspec.Struct, gc=False):
    """A chunk of a response under way that only brings more: whatever says something else is refused, so that nothing else
    has to be looked at."""

    choices: tuple[UsualChoice]
    usage: None = None
    error: None = None
    x_groq: None = None
    citations: None = None
    search_results: None = None


decode_usual = msgspec.json.Decoder(UsualChunk).decode
"""Raises one of UNREADABLE where a chunk is not usual."""


class Rest(msgspec.Struct, frozen=True, gc=False):
    """What a usual chunk says beside its one piece of text, of reasoning or of a call."""

    frame: type[TextDelta | ReasoningDelta | ToolCallDelta]
    piece: Callable[[UsualDelta], str | None]
    index: int | None = None  # of the call

    def read(self, text: bytes) -> str | None:
        return self.piece(decode_usual(text).choices[0].delta)


class FastChunks:
    """Reads what it can of the chunks that `reader` would read."""

    __slots__ = ("_alike", "_hits", "_misses", "_reader")

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._alike: Alike[Rest] = Alike()
        self._hits = START  # chunks that were usual
        self._misses = 0

    def read(self, values: list[bytes], start: int, frames: list[Frame], is_plain: bool) -> int:
        """How many chunks it took, from `start` on; 0 where the next one is for the plain way.

        `is_plain`: they are ASCII without control characters.
        """
        reader = self._reader
        if not reader.goes_on:
            return 0
        is_alone = len(values) == 1  # then the whole is decoded as quickly as its piece is found
        rest = None if is_alone else self._alike.rest
        if rest is not None and (pieces := self._alike.strings(values, start=start)):
            self._take_alike(pieces, frames, rest=rest)
            return len(pieces)
        value = values[start]
        if self._misses >= self._hits or len(value) > LONG_BYTES or not (is_plain or is_sound(value)):
            return 0
        try:
            (choice,) = decode_usual(value).choices
        except UNREADABLE:
            self._misses += MISS_COST
            return 0
        if choice.finish_reason is not None:
            return 0
        self._hits += 1
        before, delta = len(frames), choice.delta
        if delta.reasoning_content or delta.reasoning:
            reader.add_reasoning(delta, frames)
        if delta.content:
            reader.note_text()
            frames.append(TextDelta(delta.content))
        if delta.tool_calls:
            reader.note_call()
            for call in delta.tool_calls[:MAX_PARTS]:
                index, id, function = call.index, call.id, call.function
                if id is None and function.name is None:
                    frames.append(ToolCallDelta(index=index, arguments=function.arguments))
                else:
                    frames.append(ToolCallDelta(index=index, id=id, name=function.name, arguments=function.arguments))
        if not is_alone and self._hits >= LEARN_FROM and len(frames) == before + 1 and self._alike.may_learn:
            self._learn(value, delta)
        return 1

    def _take_alike(self, pieces: list[str], frames: list[Frame], *, rest: Rest) -> None:
        self._hits += len(pieces)
        if rest.frame is TextDelta:
            self._reader.note_text()
            frames += map(TextDelta, pieces)
        elif rest.frame is ReasoningDelta:
            self._reader.note_reasoning()
            frames += map(ReasoningDelta, pieces)
        else:
            index = rest.index
            self._reader.note_call()
            frames += [ToolCallDelta(index=index, arguments=piece) for piece in pieces]

    def _learn(self, value: bytes, delta: UsualDelta) -> None:
        """More chunks may be like this one, which was taken."""
        if (rest := _rest_of(delta)) is not None and (piece := rest.piece(delta)):
            self._alike.learn(value, piece, rest=rest, read=rest.read)


def _content(delta: UsualDelta) -> str | None:
    return delta.content


def _reasoning_content(delta: UsualDelta) -> str | None:
    return delta.reasoning_content


def _plain_reasoning(delta: UsualDelta) -> str | None:
    return delta.reasoning


def _arguments(delta: UsualDelta) -> str | None:
    return delta.tool_calls[0].function.arguments if delta.tool_calls else None


def _rest_of(delta: UsualDelta) -> Rest | None:
    """None where the chunk brings other than one piece."""
    if bool(delta.content) + bool(delta.reasoning_content) + bool(delta.reasoning) + bool(delta.tool_calls) != 1:
        return None
    if delta.content:
        return Rest(TextDelta, _content)
    if delta.tool_calls:
        call = delta.tool_calls[0]
        is_more = len(delta.tool_calls) == 1 and call.id is None and call.function.name is None
        return Rest(ToolCallDelta, _arguments, call.index) if is_more else None
    return Rest(ReasoningDelta, _reasoning_content if delta.reasoning_content else _plain_reasoning)


NO_CHUNK = b""  # what the typed decoder refuses
DONE = b"[DONE]"  # some servers write a blank after it

# Events that cannot be read before the rest is not worth reading; bounds what we record about a garbage stream.
MAX_UNREADABLE = 100

BLANK = b"\xef\xbb\xbf \t\r\n"  # as a set of bytes: a BOM may be cut anywhere

HEAD_BYTES = 400
"""How much of what arrived is kept until the first event, to show it where it was no stream at all."""

READ_ANYWAY = re.compile(r"(?:function\.arguments|content(?:\[\d+\])?|text|refusal|thinking|reasoning)`$")
"""How the message ends about a field of another kind that is read all the same. The assembler, which knows the call, reports
an object in place of arguments."""


class ChatStreamDecoder:
    """Bytes of a stream in any pieces -> frames. A body sent in place of a stream is read as such."""

    __slots__ = (
        "_body",
        "_body_bytes_left",
        "_body_expected",
        "_bytes_left",
        "_dead",
        "_events",
        "_fast",
        "_glues",
        "_head",
        "_is_plain",
        "_limits",
        "_parser",
        "_reader",
        "_recognised",
        "_unreadable",
    )

    def __init__(
        self,
        profile: Profile,
        limits: Limits,
        *,
        body_expected: bool = False,
        fast: type[FastChunks] | None = FastChunks,
    ) -> None:
        """`fast` reads nearly all chunks of a usual stream; None where this module has to read them all."""
        self._reader = ChunkReader(profile)
        self._fast = None if fast is None else fast(self._reader)
        self._parser = SseParser(limits=limits)
        self._limits = limits
        self._bytes_left = limits.stream_bytes
        self._body_bytes_left = limits.response_bytes
        self._head: bytes | None = b""  # what arrived before the first event; None from then on
        self._body: list[bytes] | None = None  # the pieces of a body that came in place of a stream
        self._body_expected = body_expected
        self._dead = False
        self._events = 0
        self._unreadable = 0
        self._glues = False  # `data:` stands within the first event, so it is this server's habit
        self._is_plain = True  # all bytes so far are ASCII, and none is a control character
        self._recognised = False

    def feed(self, chunk: bytes) -> list[Frame]:
        if self._dead:
            return []
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            self._dead = True
            return [Faulted(too_large(self._limits.stream_bytes))]
        if self._head is not None and self._is_body(chunk):
            self._body_bytes_left -= len(chunk)
            if self._body_bytes_left >= 0:
                return []
            self._dead = True
            return [Faulted(too_large(self._limits.response_bytes))]
        if self._is_plain and (not chunk.isascii() or has_controls(chunk)):
            self._is_plain = False
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return [*self._read_events(error.events), *error.begun(), self._die(FaultKind.TOO_LARGE, str(error))]
        return self._read_runs(runs) if runs else []

    def expects_more(self) -> bool:
        return self._parser.breaks_off()

    def finish(self) -> list[Frame]:
        if self._dead:
            return []
        frames: list[Frame] = []
        if self._body is not None:
            body = b"".join(self._body)
            self._body = [body[:HEAD_BYTES]]  # a long one is not held twice while it is decoded
            frames += self._read_body(body)
            if self._recognised and not self._body_expected:
                repair = Repair("body_for_stream", "response", "a whole body came where a stream was asked for")
                frames.append(Mended(repair))
            if self._recognised:
                self._reader.end("its whole body", frames)
        else:
            try:
                frames += self._read_events(self._parser.finish())
            except LineTooLong as error:
                frames += [*error.begun(), self._die(FaultKind.TOO_LARGE, str(error))]
        if self._dead:
            return frames
        frames += self._reader.finish()
        if not self._recognised:
            self._dead = True
            frames.append(Faulted(no_response(self._shown_head(), expected="a Chat Completions response")))
        return frames

    def _shown_head(self) -> bytes:
        """How the response began; nothing where it was comments and the end mark only."""
        head = b"".join(self._body)[:HEAD_BYTES] if self._body is not None else self._head or b""
        head = head.lstrip(BLANK)
        return b"" if not self._events and head.startswith((b":", b"data: [DONE]")) else head

    def _read_body(self, body: bytes) -> list[Frame]:
        self._events += 1
        body = told_long_calls(body, limits=self._limits)
        if (fault := too_much(body, call_bytes=self._limits.call_bytes)) is not None:
            self._dead = True
            return [Faulted(fault)]
        try:
            chunk = read_any(body if is_sound(body) else NO_CHUNK, decode_chunk)
        except UNREADABLE as error:
            return self._mend(body, error)
        frames: list[Frame] = []
        self._read_chunk(chunk, body, name="", frames=frames)
        return frames

    def _is_body(self, chunk: bytes) -> bool:
        """True where the bytes so far are a JSON object instead of an event stream; they are kept then."""
        if self._body is not None:
            self._body.append(chunk)
            return True
        assert self._head is not None
        begun = self._head.lstrip(BLANK)
        if not begun:
            begun = chunk.lstrip(BLANK)
            if begun.startswith(b"{"):
                self._body = [begun]
                return True
            self._head = b""
        if len(self._head) < HEAD_BYTES:
            self._head += chunk[:HEAD_BYTES]
        return False

    def _read_events(self, events: list[SseEvent]) -> list[Frame]:
        return self._read_runs([SseRun(event.name, [event.data]) for event in events])

    def _read_runs(self, runs: list[SseRun]) -> list[Frame]:
        frames: list[Frame] = []
        fast = self._fast
        for run in runs:
            values, at, end = run.values, 0, len(run.values)
            while at < end and not self._dead:
                if fast is not None and (count := fast.read(values, at, frames, self._is_plain)):
                    at += count
                    self._events += count
                else:
                    self._read_event(values[at], run.name, frames)
                    at += 1
        return frames

    def _read_event(self, value: bytes, name: str, frames: list[Frame]) -> None:
        self._events += 1
        if value == DONE:
            self._read_end_mark(frames)
            return
        try:
            # Keys, and what stays JSON text, are not looked at by the JSON decoder.
            chunk = read_any(value if self._is_plain or is_sound(value) else NO_CHUNK, decode_chunk)
        except UNREADABLE as error:
            self._read_odd(value, error, frames)
            return
        if self._reader.is_over:
            self._reader.read_after_end(chunk, frames)
        elif chunk.choices is not None and self._recognised:
            self._reader.read(chunk, frames)
        else:
            self._read_chunk(chunk, value, name=name, frames=frames)

    def _read_odd(self, value: bytes, error: Exception, frames: list[Frame]) -> None:
        """What is no chunk: nothing at all, the end mark, or something to be mended."""
        if value.translate(None, BLANK).startswith(DONE):  # also where a stray line break tore it
            self._read_end_mark(frames)
        elif not value:
            self._events -= 1
        elif not self._reader.is_over:
            frames += self._mend(value, error)

    def _read_end_mark(self, frames: list[Frame]) -> None:
        self._events -= 1
        if self._recognised:
            self._reader.end("`[DONE]`", frames)

    def _recognise(self) -> None:
        self._recognised = True
        self._head = None

    def _read_chunk(self, chunk: Chunk, value: bytes, *, name: str, frames: list[Frame]) -> None:
        if chunk.choices is None and not is_error(chunk.error):
            # Usage alone, or an error written without its `error` key (Mistral, vLLM).
            if name == "error" or chunk.object == "error":
                self._recognise()
                self._reader.fail()
                frames.append(Faulted(decode_error_event(value)))
                return
            if not is_there(chunk.usage) and chunk.object not in ("chat.completion.chunk", "chat.completion"):
                return
        if not self._recognised:
            self._recognise()
        self._reader.read(chunk, frames)

    def _mend(self, line: bytes, error: Exception) -> list[Frame]:
        """An event that the typed decoder refused: invalid UTF-8, values glued together, fields of another kind.

        What is lost is told behind what could be read, because its calls may miss something too.
        """
        where = "body" if self._body is not None else f"event {self._events}"
        reading = read_damaged(line)
        self._glues = self._glues or (reading.has_field and self._events == 1)
        frames: list[Frame] = []
        skipped = self._read_values(reading.values, where=where, frames=frames)
        said = any(not isinstance(frame, Mended) for frame in frames)
        if reading.is_replaced and reading.values:
            frames.append(self._lose("invalid_utf8", where, "invalid UTF-8 became replacement characters"))
        elif breaks_strings(reading):
            frames.append(self._lose("control_character", where, "it has a control character, so it is no JSON"))
        elif reading.has_field and not self._glues:
            frames.append(self._lose("chunks_glued", where, LINE_END_LOST))
        if skipped:
            frames.append(self._lose("content_skipped", where, f"no text and no call can be read from {skipped}"))
        elif isinstance(error, msgspec.ValidationError) and said and not READ_ANYWAY.search(str(error)):
            frames.append(Mended(Repair("field_skipped", where, str(error))))
        if not reading.values or reading.rest:
            frames.append(self._skip(reading.rest, where=where))
        return frames

    def _read_values(self, values: list[object], *, where: str, frames: list[Frame]) -> str:
        """Read the chunks among the values; returns the names of the fields whose content could not be read."""
        # An array of chunks is read like several; an empty one says nothing.
        chunks = [read_loosely(fields) for value in values for fields in objects_in(value)]
        if len(chunks) > 1:
            frames.append(Mended(Repair("chunks_glued", where, f"{len(chunks)} JSON values stood in one event")))
        skipped: dict[str, None] = {}
        for loose in chunks:
            chunk = loose.chunk
            skipped.update(dict.fromkeys(loose.skipped))
            if chunk.choices is not None or is_error(chunk.error) or is_there(chunk.usage):
                self._recognise()
                self._reader.read(chunk, frames)
        return in_ticks(skipped)

    def _skip(self, text: bytes | str, *, where: str) -> Frame:
        loss = left_out(Repair("chunk_skipped", where, "it is no JSON"), text, reaches_ended=True)
        if isinstance(loss, Lost):
            self._reader.lose()
            self._unreadable += 1
            if self._unreadable > MAX_UNREADABLE:
                return self._die(FaultKind.PROTOCOL, f"more than {MAX_UNREADABLE} events of the stream are no JSON")
        return loss

    def _lose(self, kind: str, where: str, what: str) -> Lost:
        """A piece of the response is lost. Calls are open until the response ends: a piece may come late."""
        self._reader.lose()
        return Lost(Repair(kind, where, what), reaches_ended=True)

    def _die(self, kind: FaultKind, message: str) -> Faulted:
        self._dead = True
        return Faulted(Fault(kind=kind, message=message))
