"""A Chat Completions stream -> frames."""

from collections.abc import Callable, Sequence

import msgspec

from turnwise.vocab import (
    BlockData,
    Citation,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    Frame,
    Mended,
    Opaque,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCallDelta,
    UsageReported,
)
from turnwise.wire.alike import Alike
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.finish_words import finish_frames, says_nothing, unsaid_finish
from turnwise.wire.healing import decode_text, read_values, skipped
from turnwise.wire.json_fields import NOTHING, UNREADABLE, is_error
from turnwise.wire.limits import Limits
from turnwise.wire.openai_chat.chunks import (
    CallPiece,
    Choice,
    Chunk,
    Delta,
    UsualChunk,
    UsualDelta,
    decode_chunk,
    decode_usual,
    is_there,
    objects,
    tolerant_chunk,
)
from turnwise.wire.openai_chat.citations import citation_of
from turnwise.wire.openai_chat.faults import decode_error_event
from turnwise.wire.openai_chat.fields import NAME
from turnwise.wire.openai_chat.files import image_of
from turnwise.wire.openai_chat.reasoning import ReasoningReader, split_content
from turnwise.wire.openai_chat.usage import UsageReader
from turnwise.wire.openai_chat.words import finish_of, is_known, says_limit
from turnwise.wire.profiles import Profile
from turnwise.wire.sse import LineTooLong, SseEvent, SseParser, SseRun

MISS_COST = 4  # a chunk that is not usual costs about what four usual ones save
START = MISS_COST * 2  # chunks that count as usual from the first: looking for them has to pay
LEARN_FROM = START + 4  # a response that is over after a few chunks is not worth learning how they are written
DONE = b"[DONE]"  # some servers write a blank after it

TEXT, REASONING, REFUSAL = "text", "reasoning", "refusal"

# Events that cannot be read before the rest is not worth reading; bounds what we record about a garbage stream.
MAX_UNREADABLE = 100

BLANK = b"\xef\xbb\xbf \t\r\n"  # as a set of bytes: a BOM may be cut anywhere

HEAD_BYTES = 400
"""How much of what arrived is kept until the first event, to show it where it was no stream at all."""


class _Rest(msgspec.Struct, frozen=True, gc=False):
    """What a usual chunk says beside its one piece of text, of reasoning or of a call."""

    kind: str
    piece: Callable[[UsualDelta], str | None]
    index: int | None = None  # of the call

    def read(self, text: bytes) -> str | None:
        return self.piece(decode_usual(text).choices[0].delta)


class ChunkReader:
    """Chunks of one response, in order -> frames. A body is read as one chunk whose choice has a `message`."""

    __slots__ = (
        "_citations",
        "_cited",
        "_ended",
        "_failed",
        "_finish",
        "_has_reasoning",
        "_has_text",
        "_items",
        "_reasoning",
        "_refused",
        "_said",
        "_usage",
        "goes_on",
        "started",
    )

    def __init__(self, profile: Profile) -> None:
        self.started = False
        self.goes_on = False  # it has started, and nothing was said about its end
        self._said = False  # any text, reasoning, refusal or call so far
        self._has_text = False
        self._has_reasoning = False
        self._refused = False
        self._finish: tuple[str, bool] | None = None
        self._failed = False
        self._ended = False
        self._items = 0
        self._cited: set[bytes] = set()
        self._citations: list[Citation] = []  # those that wait for a text to hang on
        self._reasoning = ReasoningReader()
        self._usage = UsageReader(profile)

    def read_usual(self, chunk: UsualChunk, frames: list[Frame]) -> None:
        """`read`, for a chunk of a response that has started."""
        delta = chunk.choices[0].delta
        if delta.reasoning_content or delta.reasoning:
            self._add_reasoning(self._reasoning.read_usual(delta), frames)
        if delta.content:
            self._said = self._has_text = True
            frames.append(TextDelta(delta.content))
        if delta.tool_calls:
            self._said = True
            for call in delta.tool_calls:
                function = call.function
                if call.id is not None or function.name is not None:
                    frames.append(
                        ToolCallDelta(index=call.index, id=call.id, name=function.name, arguments=function.arguments)
                    )
                else:
                    frames.append(ToolCallDelta(index=call.index, arguments=function.arguments))

    def read_alike(self, pieces: list[str], frames: list[Frame], *, rest: _Rest) -> None:
        """`read_usual`, for chunks that say the same `rest` and one piece each."""
        self._said = True
        if rest.kind == TEXT:
            self._has_text = True
            frames += map(TextDelta, pieces)
        elif rest.kind == REASONING:
            self._has_reasoning = True
            frames += map(ReasoningDelta, pieces)
        else:
            index = rest.index
            frames += [ToolCallDelta(index=index, arguments=piece) for piece in pieces]

    def read(self, chunk: Chunk, frames: list[Frame]) -> None:
        choices = chunk.choices
        if not self.started and (chunk.id or choices):
            # Azure's first chunk (`prompt_filter_results`) has neither id nor choices.
            self.started = self.goes_on = True
            frames.append(Started(chunk.id or None, chunk.model or None))
        if choices:
            for choice in choices:
                if not choice.index:
                    self._read_choice(choice, frames)
        # Identity with the default is the cheapest way to see that a field was not sent.
        if (chunk.usage is not NOTHING and is_there(chunk.usage)) or chunk.x_groq is not None:
            self._read_usage(chunk, frames)
        if chunk.citations or chunk.search_results:
            self._cite(chunk.search_results or chunk.citations, frames)
        if chunk.error is not NOTHING and is_error(chunk.error):
            self._failed = True
            frames.append(Faulted(decode_error_event(bytes(chunk.error))))

    def fail(self) -> None:
        """An error came beside the chunks."""
        self._failed = True

    def end(self, mark: str, frames: list[Frame]) -> None:
        """The server says that this is all: where it has not said why, that it did not break off is told."""
        if not self._ended and not self._failed and self._finish is None:
            frames.append(unsaid_finish(mark))
        self._ended = True

    def _read_usage(self, chunk: Chunk, frames: list[Frame]) -> None:
        usage = chunk.usage
        if not is_there(usage) and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if is_there(usage) and (counted := self._usage.read(usage)) is not None:
            frames.append(UsageReported(counted))

    def finish(self) -> list[Frame]:
        """What was held back because its block had not begun."""
        frames: list[Frame] = []
        self._flush(frames)
        return frames

    def _read_choice(self, choice: Choice, frames: list[Frame]) -> None:
        delta = choice.delta
        if delta is not None:
            self._read_delta(delta, frames)
        if choice.message is not None and (delta is None or not self._said):
            self._read_message(choice.message, frames)
        word = choice.finish_reason
        if word and not says_nothing(word):
            finish = (word, says_limit(choice.native_finish_reason))
            if finish != self._finish:
                self._finish = finish
                self.goes_on = False
                self._flush(frames)
                finished = Finished(finish_of(word, refused=self._refused), word, finish[1])
                frames += finish_frames(finished, is_known=is_known(word))

    def _read_delta(self, delta: Delta, frames: list[Frame]) -> None:
        content = delta.content
        if isinstance(content, list):
            text, thinking, refusal = split_content(content)
            refusal = refusal or delta.refusal
        else:
            text, thinking, refusal = content, "", delta.refusal
        if thinking or delta.reasoning_content or delta.reasoning or delta.reasoning_details:
            self._add_reasoning(self._reasoning.read(delta, thinking=thinking), frames)
        if text:
            self._said = self._has_text = True
            frames.append(TextDelta(text))
        if refusal:
            self._said = self._refused = True
            frames.append(RefusalDelta(refusal))
        if delta.tool_calls:
            self._said = True
            for call in delta.tool_calls:
                frames.append(_call_frame(call, block=None))
        if delta.function_call is not None and not _is_said_twice(delta):
            self._said = True
            call = CallPiece(function=delta.function_call)
            frames.append(_call_frame(call, block="function_call"))
        if delta.annotations or delta.executed_tools or delta.images:
            self._read_extras(delta, frames)

    def _add_reasoning(self, text: str, frames: list[Frame]) -> None:
        if text or not self._has_reasoning:
            # Encrypted reasoning has no text; its part begins here all the same.
            self._said = self._said or bool(text)
            self._has_reasoning = True
            frames.append(ReasoningDelta(text))

    def _read_message(self, message: Delta, frames: list[Frame]) -> None:
        """A whole message: its parts replace what deltas made before; calls have their place in its list."""
        content = message.content
        if isinstance(content, list):
            text, thinking, refusal = split_content(content)
            refusal = refusal or message.refusal
        else:
            text, thinking, refusal = content, "", message.refusal
        reasoning = self._reasoning.read(message, thinking=thinking)
        if reasoning or message.reasoning_details:
            frames.append(PartDone(REASONING, Reasoning(reasoning)))
        if text:
            self._has_text = True
            frames.append(PartDone(TEXT, Text(text)))
        if refusal:
            self._refused = True
            frames.append(PartDone(REFUSAL, Refusal(refusal)))
        # After deltas the assembler has to see whether these calls are those that it has.
        named = not self._said
        for i, call in enumerate(message.tool_calls or ()):
            frames.append(_call_frame(call, block=f"call-{i}" if named else None))
        if message.function_call is not None and not _is_said_twice(message):
            frames.append(_call_frame(CallPiece(function=message.function_call), block="function_call"))
        self._said = self._said or bool(frames)
        self._read_extras(message, frames)

    def _read_extras(self, delta: Delta, frames: list[Frame]) -> None:
        if delta.annotations:
            self._cite(delta.annotations, frames)
        for raw in delta.executed_tools or ():
            # Groq sends the call first and then the same again with its output; the index says which it is.
            item = ProviderItem(NAME, "executed_tools", bytes(raw).decode("utf-8", "replace"))
            frames.append(PartDone(f"executed-{_index_of(raw)}", item))
        for raw in delta.images or ():
            image: File | None = image_of(raw)
            if image is not None:
                self._items += 1
                frames.append(PartDone(f"image-{self._items}", image))

    def _cite(self, raws: list[msgspec.Raw] | None, frames: list[Frame]) -> None:
        """Each source once, though every chunk repeats the list; held until there is a text to hang it on."""
        for raw in raws or ():
            key = bytes(raw)
            if key not in self._cited:
                self._cited.add(key)
                self._citations.append(citation_of(key))
        if self._has_text:
            self._flush_citations(frames)

    def _flush_citations(self, frames: list[Frame]) -> None:
        frames += [CitationAdded(TEXT, citation) for citation in self._citations]
        self._citations.clear()

    def _flush(self, frames: list[Frame]) -> None:
        if self._citations:
            self._flush_citations(frames)
        opaque = self._reasoning.opaque()
        if opaque is not None:
            frames.append(BlockData(REASONING, opaque))


def _is_said_twice(delta: Delta) -> bool:
    """Servers that serve old and new clients say the same call in both fields."""
    return any(call.function == delta.function_call for call in delta.tool_calls or ())


class _Indexed(msgspec.Struct):
    index: int = 0


def _index_of(raw: msgspec.Raw) -> int:
    try:
        return msgspec.json.decode(raw, type=_Indexed).index
    except UNREADABLE:
        return 0


def _opaque_of(extra_content: msgspec.Raw) -> Opaque | None:
    try:
        fields: object = msgspec.json.decode(extra_content)
    except UNREADABLE:
        return None
    return Opaque(NAME, msgspec.json.encode({"extra_content": fields}).decode())


def _call_frame(call: CallPiece, *, block: str | None) -> ToolCallDelta:
    """One fragment as it stood there; what it means is for the assembler to judge."""
    extra = call.extra_content
    opaque = _opaque_of(extra) if extra is not NOTHING and is_there(extra) else None
    custom, function = call.custom, call.function
    if custom is not None:
        return ToolCallDelta(
            block=block,
            index=call.index,
            id=call.id,
            name=custom.name,
            arguments=custom.input,
            free_form=True,
            opaque=opaque,
        )
    if function is None:
        return ToolCallDelta(block=block, index=call.index, id=call.id, opaque=opaque)
    return ToolCallDelta(
        block=block,
        index=call.index,
        id=call.id,
        name=function.name,
        arguments=function.arguments,
        whole=function.whole,
        opaque=opaque,
    )


def _content(delta: UsualDelta) -> str | None:
    return delta.content


def _reasoning_content(delta: UsualDelta) -> str | None:
    return delta.reasoning_content


def _plain_reasoning(delta: UsualDelta) -> str | None:
    return delta.reasoning


def _arguments(delta: UsualDelta) -> str | None:
    return delta.tool_calls[0].function.arguments if delta.tool_calls else None


_TEXT_REST = _Rest(TEXT, _content)
_REASONING_CONTENT_REST = _Rest(REASONING, _reasoning_content)
_REASONING_REST = _Rest(REASONING, _plain_reasoning)


def _rest_of(delta: UsualDelta) -> _Rest | None:
    """None where the chunk brings other than one piece."""
    if bool(delta.content) + bool(delta.reasoning_content) + bool(delta.reasoning) + bool(delta.tool_calls) != 1:
        return None
    if delta.content:
        return _TEXT_REST
    if delta.reasoning_content:
        return _REASONING_CONTENT_REST
    if delta.tool_calls:
        call = delta.tool_calls[0]
        is_more = len(delta.tool_calls) == 1 and call.id is None and call.function.name is None
        return _Rest("call", _arguments, call.index) if is_more else None
    return _REASONING_REST


class ChatStreamDecoder:
    """Bytes of a stream in any pieces -> frames. A body sent in place of a stream is read as such."""

    __slots__ = (
        "_alike",
        "_body",
        "_body_bytes_left",
        "_body_expected",
        "_bytes_left",
        "_dead",
        "_events",
        "_head",
        "_hits",
        "_limits",
        "_misses",
        "_parser",
        "_reader",
        "_recognised",
        "_unreadable",
    )

    def __init__(self, profile: Profile, limits: Limits, *, body_expected: bool = False) -> None:
        self._reader = ChunkReader(profile)
        self._alike: Alike[_Rest] = Alike()
        self._parser = SseParser(limits=limits)
        self._limits = limits
        self._bytes_left = limits.stream_bytes
        self._body_bytes_left = limits.response_bytes
        self._head: bytes | None = b""  # what arrived before the first event; None from then on
        self._body: list[bytes] | None = None  # the pieces of a body that came in place of a stream
        self._body_expected = body_expected
        self._dead = False
        self._events = 0
        self._hits = START  # chunks that were usual
        self._misses = 0
        self._unreadable = 0
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
        try:
            runs = self._parser.feed_runs(chunk)
        except LineTooLong as error:
            return [*self._read_events(error.events), self._die(FaultKind.TOO_LARGE, str(error))]
        return self._read_runs(runs) if runs else []

    def finish(self) -> list[Frame]:
        if self._dead:
            return []
        frames: list[Frame] = []
        if self._body is not None:
            frames += self._read_body(b"".join(self._body))
            if self._recognised and not self._body_expected:
                repair = Repair("body_for_stream", "response", "a whole body came where a stream was asked for")
                frames.append(Mended(repair))
            if self._recognised:
                self._reader.end("its whole body", frames)
        else:
            try:
                frames += self._read_events(self._parser.finish())
            except LineTooLong as error:
                frames.append(self._die(FaultKind.TOO_LARGE, str(error)))
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
        try:
            chunk = decode_chunk(body)
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
        for run in runs:
            values, at, end = run.values, 0, len(run.values)
            is_alone = end == 1  # then the whole is decoded as quickly as its piece is found
            while at < end:
                if not is_alone and self._alike.rest is not None and (count := self._read_alike(values, at, frames)):
                    at += count
                    continue
                value = values[at]
                at += 1
                self._events += 1
                if (
                    self._reader.goes_on
                    and self._misses < self._hits
                    and self._read_usual(value, frames, is_alone=is_alone)
                ):
                    continue
                if value == DONE:
                    self._read_end_mark(frames)
                    continue
                try:
                    chunk = decode_chunk(value)
                except UNREADABLE as error:
                    self._read_odd(value, error, frames)
                    if self._dead:
                        return frames
                    continue
                if chunk.choices is not None and self._recognised:
                    self._reader.read(chunk, frames)
                else:
                    self._read_chunk(chunk, value, name=run.name, frames=frames)
        return frames

    def _read_alike(self, values: Sequence[bytes], start: int, frames: list[Frame]) -> int:
        """Read the usual chunks that differ from the one before in nothing but their piece; returns how many were."""
        rest = self._alike.rest
        if rest is None or not (pieces := self._alike.strings(values, start=start)):
            return 0
        self._reader.read_alike(pieces, frames, rest=rest)
        self._events += len(pieces)
        self._hits += len(pieces)
        return len(pieces)

    def _read_usual(self, value: bytes, frames: list[Frame], *, is_alone: bool) -> bool:
        """False where the chunk may say more than usual, and nothing was taken."""
        try:
            chunk = decode_usual(value)
        except UNREADABLE:
            self._misses += MISS_COST
            return False
        if chunk.choices[0].finish_reason is not None:
            return False
        self._hits += 1
        if is_alone or self._hits < LEARN_FROM or not self._alike.may_learn:
            self._reader.read_usual(chunk, frames)
            return True
        before = len(frames)
        self._reader.read_usual(chunk, frames)
        if len(frames) == before + 1:
            delta = chunk.choices[0].delta
            if (rest := _rest_of(delta)) is not None and (piece := rest.piece(delta)):
                self._alike.learn(value, piece, rest=rest, read=rest.read)
        return True

    def _read_odd(self, value: bytes, error: Exception, frames: list[Frame]) -> None:
        """What is no chunk: nothing at all, the end mark, or something to be mended."""
        if value.startswith(DONE):
            self._read_end_mark(frames)
        elif not value:
            self._events -= 1
        else:
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
        """An event that the typed decoder refused: invalid UTF-8, values glued together, fields of another kind."""
        where = "body" if self._body is not None else f"event {self._events}"
        text, is_replaced = decode_text(line)
        if is_replaced:
            repair = Repair("invalid_utf8", where, "invalid UTF-8 became replacement characters")
            return [Mended(repair), *self._read_text(text, where=where)]
        frames = self._read_text(text, where=where)
        if not isinstance(error, msgspec.ValidationError):
            return frames
        said = any(not isinstance(frame, Mended) for frame in frames)
        if str(error).endswith(("content`", ".text`")) and not said:
            frames.append(Mended(Repair("content_skipped", where, str(error))))
        # An object in place of arguments is reported by the assembler, which knows the call.
        elif said and not str(error).endswith("function.arguments`"):
            frames.append(Mended(Repair("field_skipped", where, str(error))))
        return frames

    def _read_text(self, text: str, *, where: str) -> list[Frame]:
        values, end = read_values(text)
        if not values or end < len(text):
            return self._skip(text, where=where)
        # An array of chunks is read like several; an empty one says nothing.
        chunks = [tolerant_chunk(fields) for value in values for fields in objects(value)]
        frames: list[Frame] = []
        if len(chunks) > 1:
            frames.append(Mended(Repair("chunks_glued", where, f"{len(chunks)} JSON values stood in one event")))
        for chunk in chunks:
            if chunk.choices is not None or is_error(chunk.error) or is_there(chunk.usage):
                self._recognise()
                self._reader.read(chunk, frames)
        return frames

    def _skip(self, text: str, *, where: str) -> list[Frame]:
        self._unreadable += 1
        if self._unreadable > MAX_UNREADABLE:
            return [self._die(FaultKind.PROTOCOL, f"more than {MAX_UNREADABLE} events of the stream are no JSON")]
        return [Mended(Repair(skipped("chunk_skipped", text), where, "it is no JSON"))]

    def _die(self, kind: FaultKind, message: str) -> Faulted:
        self._dead = True
        return Faulted(Fault(kind=kind, message=message))
