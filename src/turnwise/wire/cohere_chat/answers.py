"""Answers of Cohere's v2 API <-> frames and responses. A stream names its blocks by index, and ends each of them.

Source: Cohere docs, "Streaming" (v2), the types of the `cohere` package 7.3, and recorded streams.
"""

import msgspec

from turnwise.vocab import (
    BlockEnded,
    Citation,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    PartDone,
    ProviderItem,
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
from turnwise.wire.cohere_chat.request import NAME, PLAN, V1, Fields, assistant_fields, call_fields, plan, plan_of
from turnwise.wire.endings import (
    AT_ITS_PRICE,
    COUNT,
    TokenCount,
    finish_frames,
    finish_of_word,
    marked,
    read_told,
    says_nothing,
    unsaid_finish,
    usage_table,
    with_terms,
)
from turnwise.wire.family import UNSTAMPED, AnswerStamp, StreamDecoder
from turnwise.wire.json_fields import NOTHING, compact, compact_text, encode, is_error, is_object, read_items
from turnwise.wire.long_events import read_any
from turnwise.wire.openai_chat.faults import REPORTED, decode_error_event
from turnwise.wire.plain_streams import PlainDecoder, read_body
from turnwise.wire.profiles import MAX_PARTS, Limits, Profile
from turnwise.wire.sse import SseParser, encode_event

EXPECTED = "an answer of Cohere's v2 API"
FINISH_REASONS = {
    "COMPLETE": FinishReason.STOP,
    "STOP_SEQUENCE": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "TOOL_CALL": FinishReason.TOOL_CALLS,
    "ERROR": FinishReason.ERROR,
    "TIMEOUT": FinishReason.ERROR,
}
WORDS = {
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.TOOL_CALLS: "TOOL_CALL",
    FinishReason.ERROR: "ERROR",
}
USAGE = usage_table(
    {
        "tokens.input_tokens": COUNT,
        "tokens.output_tokens": COUNT,
        "tokens.reasoning_tokens": COUNT,
        "cached_tokens": COUNT,
        "billed_units": AT_ITS_PRICE,  # the same without what Cohere adds to a prompt itself
    }
)


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct, gc=False):
    id: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Content(msgspec.Struct, gc=False):
    text: str | None = None
    thinking: str | None = None


class Said(msgspec.Struct, gc=False):
    """Of an event, one of each; of a whole answer, lists."""

    content: Content | list[Content] | None = None
    tool_calls: Call | list[Call] | None = None
    tool_plan: str | None = None
    citations: msgspec.Raw = NOTHING


class Delta(msgspec.Struct, gc=False):
    message: Said | None = None
    finish_reason: str | None = None
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING


class Event(msgspec.Struct, gc=False):
    type: str = ""
    index: int = 0
    delta: Delta | None = None
    id: str | None = None
    event_type: str | None = None  # of v1
    message: Said | str | None = None  # of a whole answer, or an error
    finish_reason: str | None = None
    usage: msgspec.Raw = NOTHING


class CitedText(msgspec.Struct):
    text: str | None = None
    content_index: int | None = None


class Counts(msgspec.Struct):
    class Tokens(msgspec.Struct):
        input_tokens: TokenCount = None
        output_tokens: TokenCount = None
        reasoning_tokens: TokenCount = None

    tokens: Tokens = msgspec.field(default_factory=Tokens)
    billed_units: Tokens = msgspec.field(default_factory=Tokens)
    cached_tokens: TokenCount = None


_decode = msgspec.json.Decoder(Event).decode
_cited = msgspec.json.Decoder(CitedText)
_counts = msgspec.json.Decoder(Counts, strict=False)
_NO_SAID, _NO_DELTA = Said(), Delta()


class EventReader:
    """See `PlainReader`. Reads the events of a stream, or a whole answer as one."""

    def __init__(self) -> None:
        self.is_over = False
        self.chunks = 0
        self._plan: list[str] = []
        self._called: dict[int, bool] = {}  # the calls that have begun, and whether any argument came
        self._text = "content-0"  # the block of the last text

    def read(self, text: bytes, frames: list[Frame], /) -> None:
        event = read_any(text, _decode)
        delta = event.delta or _NO_DELTA
        said = delta.message or _NO_SAID
        if not event.type and event.event_type is None and event.message is None:
            raise msgspec.ValidationError("it has no `type`")
        self.chunks += 1
        match event.type:
            case "content-delta" if isinstance(said.content, Content):
                self._add(said.content, event.index, frames)
            case "tool-call-delta" if isinstance(said.tool_calls, Call):
                self._called[event.index] = True
                arguments = said.tool_calls.function.arguments
                frames.append(ToolCallDelta(block=f"call-{event.index}", arguments=arguments))
            case "tool-plan-delta":
                self._plan.append(said.tool_plan or "")
            case "message-start":
                frames.append(Started(event.id))
            case "content-start" if isinstance(said.content, Content):
                self._add(said.content, event.index, frames)
            case "content-end":
                frames.append(BlockEnded(f"content-{event.index}"))
            case "tool-call-start" if isinstance(said.tool_calls, Call):
                self._begin_call(said.tool_calls, event.index, frames)
            case "tool-call-end":
                self._end_call(event.index, frames)
            case "citation-start":
                self._cite(said.citations, frames)
            case "message-end":
                self._finish(delta.finish_reason, delta.usage, delta.error, frames)
            case "" if isinstance(event.message, Said):
                frames.append(Started(event.id))
                self._take_whole(event.message, frames)
                self._finish(event.finish_reason, event.usage, NOTHING, frames)
            case "":
                self.is_over = True
                v1 = Fault(kind=FaultKind.PROTOCOL, message=V1)
                frames.append(Faulted(decode_error_event(text) if event.event_type is None else v1))
            case _:
                pass  # `citation-end`, `debug`, a ping, and what may come

    def finish(self) -> list[Frame]:
        return []

    def _add(self, content: Content, index: int, frames: list[Frame]) -> None:
        block = f"content-{index}"
        if content.thinking:
            frames.append(ReasoningDelta(content.thinking, block))
        elif content.text:
            self._text = block
            frames.append(TextDelta(content.text, block))

    def _begin_call(self, call: Call, index: int, frames: list[Frame]) -> None:
        self._tell_plan(frames)
        function = call.function
        self._called[index] = bool(function.arguments)
        frames.append(
            ToolCallDelta(
                block=f"call-{index}", index=index, id=call.id, name=function.name, arguments=function.arguments
            )
        )

    def _end_call(self, index: int, frames: list[Frame]) -> None:
        """A call without arguments has none, and its end says that it is whole."""
        block = f"call-{index}"
        if not self._called.get(index, True):
            frames.append(ToolCallDelta(block=block, arguments="{}"))
        frames.append(BlockEnded(block))

    def _tell_plan(self, frames: list[Frame]) -> None:
        if said := "".join(self._plan):
            frames += (PartDone(PLAN, plan(said)), BlockEnded(PLAN))
        self._plan.clear()

    def _cite(self, raw: msgspec.Raw, frames: list[Frame]) -> None:
        told = _cited.decode(raw)
        block = self._text if told.content_index is None else f"content-{told.content_index}"
        citation = Citation(family=NAME, raw=compact_text(raw), cited_text=told.text)
        frames.append(CitationAdded(block if block == self._text else self._text, citation))

    def _take_whole(self, said: Said, frames: list[Frame]) -> None:
        self._plan = [said.tool_plan or ""]
        self._tell_plan(frames)
        for index, content in enumerate(said.content if isinstance(said.content, list) else ()):
            self._add(content, index, frames)
            frames.append(BlockEnded(f"content-{index}"))
        for index, call in enumerate((said.tool_calls if isinstance(said.tool_calls, list) else [])[:MAX_PARTS]):
            self._begin_call(call, index, frames)
            self._end_call(index, frames)
        for raw in read_items(said.citations) if said.citations else ():
            self._cite(raw, frames)

    def _finish(self, word: str | None, usage: msgspec.Raw, error: msgspec.Raw, frames: list[Frame]) -> None:
        self.is_over = True
        self._tell_plan(frames)
        if is_object(usage) and (counted := usage_of(bytes(compact(usage)))) is not None:
            frames.append(UsageReported(counted))
        if is_error(error):
            frames.append(Faulted(decode_error_event(b'{"error":%b}' % bytes(error))))
        elif word is None or says_nothing(word):
            frames.append(unsaid_finish("`message-end`"))
        else:
            reason = finish_of_word(word, own=FINISH_REASONS)
            if self._called and reason is FinishReason.STOP:
                reason = FinishReason.TOOL_CALLS
            frames += finish_frames(Finished(reason, word), own=FINISH_REASONS)


def usage_of(text: bytes) -> Usage | None:
    counts, misfits = read_told(text, _counts)
    if counts is None:
        return None
    tokens, billed = counts.tokens, counts.billed_units
    output = billed.output_tokens if tokens.output_tokens is None else tokens.output_tokens
    usage = Usage(
        input_tokens=tokens.input_tokens or billed.input_tokens or 0,
        output_tokens=output or 0,
        reasoning_tokens=tokens.reasoning_tokens or 0,
        cache_read_tokens=counts.cached_tokens or 0,
        provider=text.decode(),
    )
    told = marked(usage, is_output_told=output is not None, misfits=misfits, counts={"tokens": ("output_tokens",)})
    return with_terms(told, text, table=USAGE)


def stream_decoder(profile: Profile, limits: Limits) -> StreamDecoder:
    return PlainDecoder(SseParser(limits=limits), EventReader(), limits=limits, expected=EXPECTED)


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    return read_body(body, EventReader(), limits=limits, expected=EXPECTED)


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    return REPORTED[fault.kind][0], encode({"message": fault.message})


def _end_fields(finished: Finished | None, usage: Usage | None) -> Fields:
    fields: Fields = {}
    if finished is not None:
        word = finished.provider_reason
        if word is None or FINISH_REASONS.get(word) is not finished.reason:
            word = WORDS.get(finished.reason, "COMPLETE")
        fields["finish_reason"] = word
    if usage is not None:
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        more = {"reasoning_tokens": usage.reasoning_tokens} if usage.reasoning_tokens else {}
        cached = {"cached_tokens": usage.cache_read_tokens} if usage.cache_read_tokens else {}
        fields["usage"] = {"billed_units": tokens, "tokens": {**tokens, **more}, **cached}
    return fields


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    if response.fault is not None and not response.message.parts:
        return encode_fault(response.fault)[1]
    message = assistant_fields(response.message.parts)
    message |= {"content": message.get("content") or []}
    cited = [one.raw for part in response.message.parts if isinstance(part, Text) for one in part.citations]
    if cited:
        message["citations"] = [msgspec.Raw(raw.encode()) for raw in cited]
    finished = None if response.finish is FinishReason.CUT else Finished(response.finish, response.provider_finish)
    return encode({"id": response.id or stamp.id, "message": message, **_end_fields(finished, response.usage)})


class CohereStreamEncoder:
    """Text and arguments go out at once; the end waits for `finish`."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._id = stamp.id
        self._begun = False
        self._blocks: dict[str, tuple[str, int]] = {}  # of each open one its kind and index
        self._counts = {"content": 0, "tool-call": 0}
        self._usage: Usage | None = None
        self._finished: Finished | None = None

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Started(id=id):
                self._id = id or self._id
                return self._begin()
            case TextDelta(text=text, block=block) | RefusalDelta(text=text, block=block):
                return self._say(block, "text", text)
            case ReasoningDelta(text=text, block=block):
                return self._say(block, "thinking", text)
            case ToolCallDelta():
                return self._call(frame)
            case BlockEnded(block=block):
                return self._end(block)
            case CitationAdded(citation=citation):
                cited = msgspec.Raw(citation.raw.encode())
                return self._event("citation-start", 0, citations=cited) + self._event("citation-end", 0)
            case PartDone(part=ProviderItem() as item) if item.family == NAME:
                return self._event("tool-plan-delta", None, tool_plan=plan_of(item))
            case PartDone(block=block, part=Text() | Reasoning() as part) if block not in self._blocks:
                field = "thinking" if isinstance(part, Reasoning) else "text"
                return self._say(block, field, part.text) + self._end(block)
            case PartDone(block=block, part=ToolCall() as call) if block not in self._blocks:
                delta = ToolCallDelta(block=block, id=call.id, name=call.name, arguments=call.arguments)
                return self._call(delta) + self._end(block)
            case UsageReported():
                self._usage = frame.usage
            case Finished():
                self._finished = frame
            case Faulted(fault=fault):
                return self._last({"finish_reason": "ERROR", "error": fault.message})
            case _:
                pass
        return b""

    def close_ended(self) -> bytes:
        return b""  # nothing wraps blocks here

    def finish(self, *, ended_s: int | None = None) -> bytes:
        if self._finished is None or self._finished.reason is FinishReason.CUT:
            return b""
        ends = b"".join([self._end(block) for block in list(self._blocks)])
        return ends + self._last(_end_fields(self._finished, self._usage)) + b"data: [DONE]\n\n"

    def _last(self, delta: Fields) -> bytes:
        return self._begin() + encode_event(encode({"type": "message-end", "delta": delta}), name="message-end")

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        message: Fields = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        start: Fields = {"id": self._id, "type": "message-start", "delta": {"message": message}}
        return encode_event(encode(start), name="message-start")

    def _event(self, kind: str, index: int | None, **message: object) -> bytes:
        fields: Fields = {"type": kind}
        if index is not None:
            fields["index"] = index
        if message:
            fields["delta"] = {"message": message}
        return self._begin() + encode_event(encode(fields), name=kind)

    def _open(self, block: str, kind: str, **message: object) -> bytes:
        index = self._counts[kind]
        self._blocks[block] = kind, index
        self._counts[kind] += 1
        return self._event(f"{kind}-start", index, **message)

    def _say(self, block: str, field: str, text: str) -> bytes:
        begun = b""
        if block not in self._blocks:
            begun = self._open(block, "content", content={"type": field, field: ""})
        return begun + self._event("content-delta", self._blocks[block][1], content={field: text})

    def _call(self, delta: ToolCallDelta) -> bytes:
        block = delta.block or f"index {delta.index}"
        if block not in self._blocks:
            call = ToolCall(id=delta.id or "", name=delta.name or "", arguments=delta.arguments or "")
            return self._open(block, "tool-call", tool_calls=call_fields(call))
        piece = {"function": {"arguments": delta.arguments or ""}}
        return self._event("tool-call-delta", self._blocks[block][1], tool_calls=piece)

    def _end(self, block: str) -> bytes:
        kind, index = self._blocks.pop(block, ("", 0))
        return self._event(f"{kind}-end", index) if kind else b""
