"""Whole Chat Completions bodies <-> frames and responses, and frames as a stream."""

import msgspec

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CallForming,
    Citation,
    CitationAdded,
    Faulted,
    File,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Mended,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Request,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
    UsageReported,
)
from turnwise.wire.family import UNSTAMPED, AnswerStamp
from turnwise.wire.faults import too_large
from turnwise.wire.openai_chat.endings import encode_usage, word_of
from turnwise.wire.openai_chat.faults import encode_fault, error_object
from turnwise.wire.openai_chat.parts import NAME, encode_call, encode_file, fields_of, joined_text
from turnwise.wire.openai_chat.stream import ChatStreamDecoder
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import encode_event


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """The frames of a body. An event stream in place of a body is read as such."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    decoder = ChatStreamDecoder(profile, limits, body_expected=True)
    return decoder.feed(body) + decoder.finish()


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    """The body with which the API would have answered `request`.

    A response that is nothing but a fault becomes the error object; one that was cut has a null finish reason.
    """
    if response.fault is not None and not response.message.parts:
        return encode_fault(response.fault)[1]
    choice = {
        "index": 0,
        "message": _message(response.message.parts),
        "logprobs": None,
        "finish_reason": word_of(
            response.finish,
            response.provider_finish,
            refused=any(isinstance(part, Refusal) for part in response.message.parts),
        ),
    }
    body: dict[str, object] = {
        "id": response.id or own_id(stamp),
        "object": "chat.completion",
        "created": stamp.created_s,
        "model": response.model or request.model,
        "choices": [choice],
    }
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage)
    body.update(sources_of(citations_of(response.message.parts)))
    if response.fault is not None:
        body["error"] = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(encode_fault(response.fault)[1])["error"]))
    return msgspec.json.encode(body)


def own_id(stamp: AnswerStamp) -> str:
    """In the form of OpenAI's; empty where nobody has drawn one."""
    return stamp.id and f"chatcmpl-{stamp.id}"


def _message(parts: tuple[Part, ...]) -> dict[str, object]:
    refusals = [part.text for part in parts if isinstance(part, Refusal)]
    message: dict[str, object] = {
        "role": "assistant",
        "content": joined_text(parts),
        "refusal": "".join(refusals) if refusals else None,
    }
    reasoning = [part for part in parts if isinstance(part, Reasoning)]
    if reasoning:
        message["reasoning_content"] = "".join([part.text for part in reasoning])
        for part in reasoning:
            message.update(fields_of(part.opaque))
    message["annotations"] = [msgspec.Raw(one.raw.encode()) for one in citations_of(parts) if is_annotation(one)]
    calls = [encode_call(part) for part in parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = calls
    executed = [item_of(part) for part in parts if isinstance(part, ProviderItem) and part.family == NAME]
    if executed:
        message["executed_tools"] = executed
    images = [encode_file(part, document_part="file") for part in parts if isinstance(part, File)]
    if images:
        message["images"] = images
    return message


def item_of(item: ProviderItem) -> msgspec.Raw:
    return msgspec.Raw(item.json.encode())


def citations_of(parts: tuple[Part, ...]) -> list[Citation]:
    return [citation for part in parts if isinstance(part, Text) for citation in part.citations]


def is_annotation(citation: Citation) -> bool:
    """OpenAI's shape, which stands in the message; Perplexity's shapes stand beside the choices."""
    return citation.family == NAME and citation.raw.startswith("{") and '"url_citation"' in citation.raw


def sources_of(citations: list[Citation]) -> dict[str, object]:
    """Perplexity's `search_results` and `citations`."""
    others = [c for c in citations if c.family == NAME and not is_annotation(c)]
    found: dict[str, object] = {}
    for key, is_object in (("search_results", True), ("citations", False)):
        raws = [msgspec.Raw(c.raw.encode()) for c in others if c.raw.startswith("{") is is_object]
        if raws:
            found[key] = raws
    return found


# Frames -> a Chat Completions stream as the API sends it: role first, then deltas, the finish reason, usage, `[DONE]`.


class _OpenCall:
    """A call whose fragments are being written: its place in `tool_calls`, and what was said of it."""

    __slots__ = ("index", "is_free_form", "name_said")

    def __init__(self, index: int, *, is_free_form: bool) -> None:
        self.index = index
        self.is_free_form = is_free_form
        self.name_said = False


class ChatStreamEncoder:
    """Text and arguments go out at once. The finish reason, usage and `[DONE]` wait for `finish`, so that nothing follows
    them, and are left out where no Finished came: a client must not take a cut response for a whole one."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._id = own_id(stamp)
        self._created_s = stamp.created_s
        self._model = request.model
        # The API sends usage where `stream_options.include_usage` asks for it; the decoder notes its absence.
        self._sends_usage = fields_of(request.extra).get("stream_options", True) is not None
        self._begun = False
        self._refused = False
        self._citations: list[Citation] = []
        self._images: list[object] = []
        self._written: dict[str, list[str]] = {}  # block -> its texts or arguments so far
        self._calls: dict[str, _OpenCall] = {}
        self._usage: Usage | None = None
        self._finished: Finished | None = None

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Started():
                return self._start(frame)
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                return self._text(frame.block, FIELDS[type(frame)], frame.text)
            case ToolCallDelta():
                return self._call(frame)
            case BlockData():
                return self._opaque(frame)
            case CitationAdded():
                self._citations.append(frame.citation)
            case PartDone():
                return self._part(frame.block, frame.part)
            case UsageReported():
                self._usage = frame.usage
            case Finished():
                self._finished = frame
            case Faulted():
                return encode_event(msgspec.json.encode({"error": error_object(frame.fault)}))
            case BlockEnded() | Mended() | Lost() | Restated() | CallForming():
                pass
        return b""

    def close_ended(self) -> bytes:
        return b""  # nothing wraps blocks here

    def finish(self, *, ended_s: int | None = None) -> bytes:
        found = [self._held_lists()]
        finished = self._finished
        if finished is None or finished.reason is FinishReason.CUT:
            return found[0]
        choice: dict[str, object] = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": word_of(finished.reason, finished.provider_reason, refused=self._refused),
        }
        if finished.limit_reached:
            choice["native_finish_reason"] = "length"
        found += [self._begin(), self._chunk([choice])]
        if self._usage is not None and self._sends_usage:
            found.append(self._chunk([], usage=encode_usage(self._usage)))
        return b"".join([*found, b"data: [DONE]\n\n"])

    def _held_lists(self) -> bytes:
        """Lists without an index in their entries: the openai package's accumulator takes one delta of each."""
        found: list[bytes] = []
        if self._images:
            found.append(self._delta({"images": self._images}))
        annotations = [msgspec.Raw(c.raw.encode()) for c in self._citations if is_annotation(c)]
        if annotations:
            found.append(self._delta({"annotations": annotations}))
        sources = sources_of(self._citations)
        if sources:
            found.append(self._begin() + self._chunk([], **sources))
        return b"".join(found)

    def _start(self, frame: Started) -> bytes:
        self._id, self._model = frame.id or self._id, frame.model or self._model
        return self._begin()

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._delta({"role": "assistant", "content": "", "refusal": None})

    def _delta(self, delta: dict[str, object]) -> bytes:
        return self._begin() + self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def _chunk(self, choices: list[dict[str, object]], **more: object) -> bytes:
        chunk = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created_s,
            "model": self._model,
            "choices": choices,
            **more,
        }
        return encode_event(msgspec.json.encode(chunk))

    def _text(self, block: str, field: str, text: str) -> bytes:
        if not text:
            return b""
        self._written.setdefault(block, []).append(text)
        self._refused = self._refused or field == "refusal"
        return self._delta({field: text})

    def _call(self, frame: ToolCallDelta) -> bytes:
        """The first fragment carries id, type and name; a later one its arguments, as the API does it."""
        block = frame.block if frame.block is not None else f"index {frame.index}"
        call = self._calls.get(block)
        piece: dict[str, object] = {}
        if call is None:
            call = self._calls[block] = _OpenCall(len(self._calls), is_free_form=frame.free_form)
            piece = {"id": frame.id, "type": "custom" if frame.free_form else "function"}
        inner: dict[str, object] = {}
        if frame.name and not call.name_said:
            call.name_said = True
            inner["name"] = frame.name
        if frame.arguments or piece:
            inner["input" if call.is_free_form else "arguments"] = frame.arguments or ""
            self._written.setdefault(block, []).append(frame.arguments or "")
        piece.update(fields_of(frame.opaque))
        if not inner and not piece:
            return b""
        piece["custom" if call.is_free_form else "function"] = inner
        return self._delta({"tool_calls": [{"index": call.index, **piece}]})

    def _opaque(self, frame: BlockData) -> bytes:
        fields = fields_of(frame.opaque)
        fields.pop("message", None)
        if not fields:
            return b""
        call = self._calls.get(frame.block)
        if call is not None:
            # A fragment without its inner object is more than the openai package's accumulator takes.
            inner = {"custom": {"input": ""}} if call.is_free_form else {"function": {"arguments": ""}}
            return self._delta({"tool_calls": [{"index": call.index, **inner, **fields}]})
        return self._delta(fields) if "reasoning_details" in fields else b""

    def _part(self, block: str, part: Part) -> bytes:
        """A part in its final form: what its deltas have not said yet. A part that contradicts them cannot be taken back."""
        match part:
            case Text(text=text):
                self._citations += [c for c in part.citations if c not in self._citations]
                return self._rest(block, "content", text)
            case Reasoning(text=text):
                return self._rest(block, "reasoning_content", text) + self._part_opaque(block, part)
            case Refusal(text=text):
                return self._rest(block, "refusal", text)
            case ToolCall():
                return self._rest_of_call(block, part)
            case ProviderItem(family=family, kind=kind) if family == NAME and kind == "executed_tools":
                return self._delta({"executed_tools": [msgspec.Raw(part.json.encode())]})
            case File():
                self._images.append(encode_file(part, document_part="file"))
            case ProviderItem() | ToolResult():
                pass
        return b""

    def _part_opaque(self, block: str, part: Reasoning) -> bytes:
        return b"" if part.opaque is None else self._opaque(BlockData(block, part.opaque))

    def _rest(self, block: str, field: str, text: str) -> bytes:
        written = "".join(self._written.get(block, ()))
        return self._text(block, field, text[len(written) :]) if text.startswith(written) else b""

    def _rest_of_call(self, block: str, call: ToolCall) -> bytes:
        written = "".join(self._written.get(block, ()))
        rest = call.arguments[len(written) :] if call.arguments.startswith(written) else ""
        is_new = block not in self._calls
        return self._call(
            ToolCallDelta(
                block=block,
                id=call.id,
                name=call.name,
                arguments=rest,
                free_form=call.free_form,
                opaque=call.opaque if is_new else None,
            )
        )


FIELDS = {TextDelta: "content", ReasoningDelta: "reasoning_content", RefusalDelta: "refusal"}
