"""Answers of Ollama's own API <-> frames and responses: each line of a stream is a JSON object, and a whole answer is one such
object. The last one has `done`, why the answer ended, and the counts."""

import msgspec

from turnwise.vocab import (
    BlockEnded,
    Fault,
    Faulted,
    Finished,
    FinishReason,
    Frame,
    PartDone,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Request,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.endings import (
    COUNT,
    SECONDS,
    TokenCount,
    finish_frames,
    finish_of_word,
    marked,
    says_nothing,
    unsaid_finish,
    usage_table,
    with_terms,
)
from turnwise.wire.family import UNSTAMPED, AnswerStamp, StreamDecoder
from turnwise.wire.json_fields import NOTHING, encode, is_error, is_null, read_fields, write_object
from turnwise.wire.long_events import read_any
from turnwise.wire.ollama_chat.messages import Call, Fields, call_fields, is_sendable, said_fields
from turnwise.wire.openai_chat.faults import REPORTED, decode_error_event
from turnwise.wire.plain_streams import LineParser, PlainDecoder, read_body
from turnwise.wire.profiles import MAX_PARTS, Limits, Profile

EXPECTED = "an answer of Ollama's own API"
CREATED = "1970-01-01T00:00:00Z"  # nobody reads when a piece was made
# Source: Ollama, `llm/server.go` (`DoneReason`) and `server/routes.go` (`load`, `unload`: a request without messages).
FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "load": FinishReason.STOP,
    "unload": FinishReason.STOP,
}
USAGE = usage_table(
    {
        "prompt_eval_count": COUNT,
        "eval_count": COUNT,
        **dict.fromkeys(("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"), SECONDS),
    }
)


class Said(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None


class Chunk(msgspec.Struct, gc=False):
    message: Said | None = None
    model: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: TokenCount = None
    eval_count: TokenCount = None
    error: msgspec.Raw = NOTHING


_decode = msgspec.json.Decoder(Chunk).decode


class LineReader:
    """See `PlainReader`. No part has a name here: one begins where its kind changes, and each call is whole."""

    def __init__(self) -> None:
        self.is_over = False
        self.chunks = 0
        self._kind: type[TextDelta | ReasoningDelta] | None = None  # of the open block
        self._block = ""
        self._blocks = 0
        self._called = False

    def read(self, text: bytes, frames: list[Frame], /) -> None:
        chunk = read_any(text, _decode)
        said = chunk.message
        if said is None and not chunk.done and not is_error(chunk.error):
            raise msgspec.ValidationError("it has neither `message` nor `error`")
        if not self.chunks:
            frames.append(Started(None, chunk.model))
        self.chunks += 1
        if said is not None:
            if said.thinking:
                frames.append(ReasoningDelta(said.thinking, self._open(ReasoningDelta, frames)))
            if said.content:
                frames.append(TextDelta(said.content, self._open(TextDelta, frames)))
            for call in (said.tool_calls or ())[:MAX_PARTS]:
                self._take_call(call, frames)
        if chunk.error is not NOTHING and is_error(chunk.error):
            self.is_over = True
            frames.append(Faulted(decode_error_event(text)))
        elif chunk.done:
            self.is_over = True
            self._end(chunk, text, frames)

    def finish(self) -> list[Frame]:
        return []

    def _open(self, kind: type[TextDelta | ReasoningDelta], frames: list[Frame]) -> str:
        if kind is not self._kind:
            self._close(frames)
            self._kind, self._block = kind, self._next_block()
        return self._block

    def _close(self, frames: list[Frame]) -> None:
        if self._kind is not None:
            frames.append(BlockEnded(self._block))
        self._kind = None

    def _next_block(self) -> str:
        self._blocks += 1
        return f"part-{self._blocks}"

    def _take_call(self, call: Call, frames: list[Frame]) -> None:
        self._close(frames)
        self._called = True
        block, name = self._next_block(), call.function.name
        frames += (
            ToolCallDelta(block=block, id=call.id, name=name, arguments=call.arguments, whole=True),
            BlockEnded(block),
        )

    def _end(self, chunk: Chunk, text: bytes, frames: list[Frame]) -> None:
        self._close(frames)
        if chunk.prompt_eval_count is not None or chunk.eval_count is not None:
            frames.append(UsageReported(_usage(chunk, text)))
        word = chunk.done_reason
        if word is None or says_nothing(word):
            frames.append(unsaid_finish("`done`"))
            return
        reason = finish_of_word(word, own=FINISH_REASONS)
        if self._called and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        frames += finish_frames(Finished(reason, word), own=FINISH_REASONS)


def _usage(chunk: Chunk, text: bytes) -> Usage:
    told = write_object(
        {key: raw for key, raw in read_fields(text).items() if key in USAGE.fields and not is_null(raw)}
    )
    usage = Usage(
        input_tokens=chunk.prompt_eval_count or 0, output_tokens=chunk.eval_count or 0, provider=told.decode()
    )
    usage = marked(usage, is_output_told=chunk.eval_count is not None, misfits=frozenset(), counts={})
    return with_terms(usage, told, table=USAGE)


def stream_decoder(profile: Profile, limits: Limits) -> StreamDecoder:
    return PlainDecoder(LineParser(limits=limits), LineReader(), limits=limits, expected=EXPECTED)


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    return read_body(body, LineReader(), limits=limits, expected=EXPECTED)


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    return REPORTED[fault.kind][0], encode({"error": fault.message})


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    if response.fault is not None and not response.message.parts:
        return encode_fault(response.fault)[1]
    finished = None if response.finish is FinishReason.CUT else Finished(response.finish, response.provider_finish)
    fields = _last(response.model or request.model, finished=finished, usage=response.usage)
    error = {} if response.fault is None else {"error": response.fault.message}
    parts = [part for part in response.message.parts if not isinstance(part, ToolCall) or is_sendable(part)]
    return encode({**fields, "message": said_fields("assistant", parts), **error})


def _last(model: str, *, finished: Finished | None, usage: Usage | None) -> Fields:
    """The fields of the last object, but for its message."""
    fields: Fields = {"model": model, "created_at": CREATED, "message": {"role": "assistant", "content": ""}}
    if finished is None:
        return {**fields, "done": False}
    word = finished.provider_reason
    if word is None or FINISH_REASONS.get(word) is not finished.reason:
        word = "length" if finished.reason is FinishReason.LENGTH else "stop"
    counts = usage or Usage()
    told = {"prompt_eval_count": counts.input_tokens, "eval_count": counts.output_tokens} if usage else {}
    return {**fields, "done": True, "done_reason": word, "total_duration": 0, **told}


class OllamaStreamEncoder:
    """Calls are whole objects: one is written when it has ended."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._model = request.model
        self._calls: dict[str, ToolCall] = {}  # by block, those that have begun and are not written
        self._said: set[str] = set()  # blocks of which something is written
        self._usage: Usage | None = None
        self._finished: Finished | None = None

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case TextDelta(text=text, block=block) | RefusalDelta(text=text, block=block):
                return self._line(block, content=text)
            case ReasoningDelta(text=text, block=block):
                return self._line(block, thinking=text)
            case ToolCallDelta():
                self._hold(frame)
            case BlockEnded(block=block):
                return self._write_call(block)
            case PartDone(block=block, part=ToolCall() as call):
                self._calls[block] = call
                return self._write_call(block)
            case PartDone(block=block, part=Text() | Reasoning() as part) if block not in self._said:
                return self._line(block, **{"thinking" if isinstance(part, Reasoning) else "content": part.text})
            case Started():
                self._model = frame.model or self._model
            case UsageReported():
                self._usage = frame.usage
            case Finished():
                self._finished = frame
            case Faulted(fault=fault):
                return encode_fault(fault)[1] + b"\n"
            case _:
                pass
        return b""

    def close_ended(self) -> bytes:
        return b""  # nothing wraps blocks here

    def finish(self, *, ended_s: int | None = None) -> bytes:
        calls = b"".join([self._write_call(block) for block in list(self._calls)])
        if self._finished is None or self._finished.reason is FinishReason.CUT:
            return calls
        return calls + encode(_last(self._model, finished=self._finished, usage=self._usage)) + b"\n"

    def _hold(self, delta: ToolCallDelta) -> None:
        block = delta.block or f"index {delta.index}"
        call = self._calls.get(block) or ToolCall(id="", name="", arguments="", free_form=delta.free_form)
        before = "" if delta.whole else call.arguments
        self._calls[block] = msgspec.structs.replace(
            call, id=delta.id or call.id, name=delta.name or call.name, arguments=before + (delta.arguments or "")
        )

    def _write_call(self, block: str) -> bytes:
        call = self._calls.pop(block, None)
        if call is None or block in self._said or not is_sendable(call):
            return b""
        return self._line(block, tool_calls=[call_fields(call)])

    def _line(self, block: str, **said: object) -> bytes:
        self._said.add(block)
        message = {"role": "assistant", "content": "", **said}
        return encode({"model": self._model, "created_at": CREATED, "message": message, "done": False}) + b"\n"
