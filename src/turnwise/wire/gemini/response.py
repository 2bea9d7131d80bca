"""Whole bodies <-> frames and responses, and frames as a stream. A body is one chunk, read by the same reader as the chunks of
a stream."""

from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    CallForming,
    Citation,
    CitationAdded,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Opaque,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.family import UNSTAMPED, AnswerStamp
from turnwise.wire.faults import no_response, too_large
from turnwise.wire.gemini.chunk_reader import ChunkReader
from turnwise.wire.gemini.endings import BLOCK_REASONS, encode_usage, word_of
from turnwise.wire.gemini.faults import encode_error
from turnwise.wire.gemini.parts import NAME, encode_citations, encode_part, is_object_text, own_fields
from turnwise.wire.json_fields import one_line, quote, write_array, write_object
from turnwise.wire.long_events import told_long_calls, too_much
from turnwise.wire.profiles import Limits, Profile

# Frames -> a stream as Gemini's API sends it.
#
# The API hands out whole calls, so a call is held back until it has ended; one whose arguments are no complete JSON object is
# left out, as the API does (it answers MAX_TOKENS or MALFORMED_FUNCTION_CALL without the call).


EMPTY_PART = b'{"text":""}'  # what the API writes beside a finish reason that comes alone (recorded)


class _HeldCall:
    """A call that has not ended yet."""

    __slots__ = ("arguments", "ended", "free_form", "id", "name", "opaque")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.free_form = False
        self.opaque: dict[str, bytes] = {}
        self.ended = False

    def take(self, delta: ToolCallDelta) -> None:
        self.id = self.id or delta.id or ""
        self.name = self.name or delta.name or ""
        self.free_form = self.free_form or delta.free_form
        if delta.whole:
            self.arguments.clear()
        self.arguments.append(delta.arguments or "")
        self.opaque |= own_fields(delta.opaque)

    def replace(self, call: ToolCall) -> None:
        self.id = call.id or self.id
        self.name = call.name
        self.free_form = call.free_form
        self.arguments = [call.arguments]
        self.opaque |= own_fields(call.opaque)
        self.ended = True

    def whole(self) -> ToolCall:
        opaque = Opaque(NAME, write_object(self.opaque).decode()) if self.opaque else None
        text = "".join(self.arguments)
        return ToolCall(id=self.id, name=self.name, arguments=text or "{}", free_form=self.free_form, opaque=opaque)


class GeminiStreamEncoder:
    """Server-sent events with CRLF, as `alt=sse` gives them."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._id = stamp.id or None
        self._model = request.model
        self._written = 0  # chunks
        self._calls: dict[str, _HeldCall] = {}
        self._said: set[str] = set()  # blocks of calls that have been written: they cannot be written again
        self._thinking: dict[str, bool] = {}  # block of a text or reasoning that was begun -> whether it is reasoning
        self._citations: list[Citation] = []
        self._usage: Usage | None = None
        self._finished: Finished | None = None
        self._open_call: str | None = None  # the block of the call that a piece without a call continues

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case TextDelta(text=text, block=block) | RefusalDelta(text=text, block=block):
                self._thinking[block] = False
                return self._part(Text(text))
            case ReasoningDelta(text=text, block=block):
                self._thinking[block] = True
                return self._part(Reasoning(text))
            case ToolCallDelta():
                self._hold(frame)
            case BlockData(block=block, opaque=opaque):
                return self._late(block, opaque)
            case PartDone(block=block, part=part):
                return self._done(block, part)
            case BlockEnded(block=block):
                return self._end(block)
            case CitationAdded(citation=citation):
                self._citations.append(citation)
            case Started(id=id, model=model):
                self._id = id or self._id
                self._model = model or self._model
            case UsageReported(usage=usage):
                self._usage = usage
            case Finished():
                self._finished = frame
            case Faulted(fault=fault):
                return self._flush() + self._chunk({"error": encode_error(fault)[1]})
            case Mended() | Lost() | Restated() | CallForming():
                pass
        return b""

    def close_ended(self) -> bytes:
        return b""  # nothing wraps blocks here

    def finish(self, *, ended_s: int | None = None) -> bytes:
        """Calls that have not ended, then the finish reason with the usage in one chunk, as the API does."""
        calls = self._flush()
        last = finish_fields(
            self._finished, usage=self._usage, citations=self._citations, parts=[], empty=not self._written
        )
        return calls + (self._chunk(last) if last else b"")

    def _hold(self, delta: ToolCallDelta) -> None:
        block = delta.block
        if block is None:  # only decoders leave it out, the assembler's frames have it
            begins = self._open_call is None or bool(delta.id) or bool(delta.name)
            block = f"call-{len(self._calls)}" if begins or self._open_call is None else self._open_call
        self._open_call = block
        if block not in self._said:
            self._calls.setdefault(block, _HeldCall()).take(delta)

    def _late(self, block: str, opaque: Opaque) -> bytes:
        """Opaque data of a block. Of a text that is on its way it can only follow, with an empty text, as the API does."""
        held = self._calls.get(block)
        if held is not None:
            held.opaque |= own_fields(opaque)
            return b""
        return self._part(Reasoning("", opaque) if self._thinking.get(block) else Text("", opaque=opaque))

    def _done(self, block: str, part: Part) -> bytes:
        match part:
            case ToolCall() if block in self._said:
                return b""
            case ToolCall():
                self._calls.setdefault(block, _HeldCall()).replace(part)
                return self._write_ended()
            case Text() | Reasoning():
                if isinstance(part, Text):
                    self._citations += part.citations
                if block in self._thinking:
                    return self._late(block, part.opaque) if part.opaque is not None else b""
                return self._part(part)
            case _:
                return self._part(part) if block not in self._thinking else b""

    def _end(self, block: str) -> bytes:
        held = self._calls.get(block)
        if held is None:
            return b""
        held.ended = True
        return self._write_ended()

    def _write_ended(self) -> bytes:
        """Calls come out in the order in which they began."""
        written: list[bytes] = []
        while self._calls:
            block, held = next(iter(self._calls.items()))
            if not held.ended:
                break
            del self._calls[block]
            self._said.add(block)
            written.append(self._call(held))
        return b"".join(written)

    def _flush(self) -> bytes:
        held, self._calls = list(self._calls.values()), {}
        return b"".join([self._call(call) for call in held])

    def _call(self, held: _HeldCall) -> bytes:
        call = held.whole()
        return self._part(call) if is_sendable(call) else b""

    def _part(self, part: Part) -> bytes:
        text = encode_part(part, sends_ids=not isinstance(part, ToolCall) or bool(part.id))
        return self._chunk({"candidates": write_array([_candidate([text])])}) if text is not None else b""

    def _chunk(self, fields: dict[str, bytes]) -> bytes:
        about = {"modelVersion": quote(self._model)}
        if self._id is not None:
            about["responseId"] = quote(self._id)
        text = one_line(write_object(fields | about))
        self._written += 1
        return b"data: " + text + b"\r\n\r\n"


def is_sendable(call: ToolCall) -> bool:
    """Gemini hands out objects: anything else cannot be sent."""
    return call.free_form or is_object_text(call.arguments.strip())


def finish_fields(
    finished: Finished | None, *, usage: Usage | None, citations: list[Citation], parts: list[bytes], empty: bool
) -> dict[str, bytes]:
    """The fields of a chunk, or body, that holds these parts and the end of the response. `empty`: nothing came before."""
    fields: dict[str, bytes] = {}
    word = None if finished is None else word_of(finished.reason, provider_reason=finished.provider_reason)
    blocked = finished is not None and finished.reason is FinishReason.CONTENT_FILTER and empty and not parts
    if finished is not None and blocked and finished.provider_reason in BLOCK_REASONS:
        feedback = {"blockReason": quote(finished.provider_reason)}
        if finished.explanation is not None:
            feedback["blockReasonMessage"] = quote(finished.explanation)
        fields["promptFeedback"] = write_object(feedback)
    elif parts or citations or word is not None:
        end = {} if word is None else {"finishReason": quote(word)}
        if finished is not None and finished.explanation is not None:
            end["finishMessage"] = quote(finished.explanation)
        fields["candidates"] = write_array([_candidate(parts or [EMPTY_PART], **end, **encode_citations(citations))])
    if usage is not None:
        fields["usageMetadata"] = encode_usage(usage)
    return fields


def _candidate(parts: list[bytes], **about: bytes) -> bytes:
    content = write_object({"parts": write_array(parts), "role": b'"model"'})
    return write_object({"content": content, **about, "index": b"0"})


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """The frames of a body of `generateContent`."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    reader = ChunkReader()
    frames: list[Frame] = []
    reader.read(body.removeprefix(b"\xef\xbb\xbf"), frames)
    if reader.chunks:
        return frames + reader.finish()
    return [Faulted(no_response(body, expected="a response of Gemini's"))]


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    """The body of `generateContent`. A fault stands beside what had arrived before it."""
    parts: list[bytes] = []
    citations: list[Citation] = []
    for part in response.message.parts:
        if isinstance(part, Text):
            citations += part.citations
        if isinstance(part, ToolCall) and not is_sendable(part):
            continue
        if isinstance(part, ToolCall) and part.state is not ArgumentsState.COMPLETE:
            part = ToolCall(id=part.id, name=part.name, arguments=part.arguments, opaque=part.opaque)
        text = encode_part(part, sends_ids=True)
        if text is not None:
            parts.append(text)
    finished = None
    if response.finish is not FinishReason.CUT:
        finished = Finished(response.finish, response.provider_finish, explanation=response.explanation)
    fields = finish_fields(finished, usage=response.usage, citations=citations, parts=parts, empty=True)
    if response.fault is not None:
        fields["error"] = encode_error(response.fault)[1]
    fields["modelVersion"] = quote(response.model or request.model)
    if id := response.id or stamp.id:
        fields["responseId"] = quote(id)
    return write_object(fields)
