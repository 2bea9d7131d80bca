"""Bodies of the Responses API, both ways, and frames as its event stream. Bodies go through the same frames and items as the
stream does."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    CallForming,
    Citation,
    CitationAdded,
    Fault,
    Faulted,
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
    Usage,
    UsageReported,
)
from turnwise.vocab.json_values import without
from turnwise.wire.family import UNSTAMPED, AnswerStamp
from turnwise.wire.faults import too_large
from turnwise.wire.json_fields import Fields, encode, is_null, is_object, read_fields, read_items, string_of
from turnwise.wire.openai_responses.body import read_body
from turnwise.wire.openai_responses.faults import response_error, stream_error
from turnwise.wire.openai_responses.open_response import FINISH_REASONS, usage_object
from turnwise.wire.openai_responses.parts import (
    CONTENT_PART,
    NAME,
    call_item,
    content_part,
    message_item,
    opaque_from,
    reasoning_item,
    text_at,
)
from turnwise.wire.openai_responses.request import encode_request, text_runs
from turnwise.wire.profiles import Limits, Profile
from turnwise.wire.sse import encode_event

PROFILE = Profile(name=NAME, family=NAME)

# Finish -> the status that says it. `cut` has no word: an API that ended a response knows why.
STATUSES: Mapping[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.REFUSAL: "completed",
    FinishReason.PAUSE: "completed",
    FinishReason.LENGTH: "incomplete:max_output_tokens",
    FinishReason.CONTENT_FILTER: "incomplete:content_filter",
    FinishReason.ERROR: "failed",
    FinishReason.CUT: "incomplete",
}

ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    return read_body(body, limits=limits)


def encode_body(response: Response, request: Request, stamp: AnswerStamp = UNSTAMPED) -> bytes:
    id = response.id or own_id(stamp)
    output: list[object] = []
    for run in text_runs(response.message.parts):
        item = output_item(run, id=made_up_id(id, len(output)))
        if item is not None:
            output.append(item)
    word = status_for(response.finish, response.provider_finish)
    whole = response_object(
        repeated(request),
        id=id,
        model=response.model or request.model,
        word="failed" if response.fault is not None else word,
        output=output,
        usage=response.usage,
        fault=response.fault,
        stamp=stamp,
    )
    return encode(whole)


def own_id(stamp: AnswerStamp) -> str:
    return f"resp_{stamp.id or 0}"


def status_for(finish: FinishReason, provider_finish: str | None) -> str:
    """The provider's own word where it is one of this API's."""
    return provider_finish if provider_finish and provider_finish in FINISH_REASONS else STATUSES[finish]


def made_up_id(response_id: str, index: int) -> str:
    """The ending of the id of an item that has none: unique in its session, where response ids are."""
    return f"{response_id.removeprefix('resp_')[-40:]}_{index}"


def output_item(run: Sequence[Part], *, id: str, is_cut: bool = False) -> dict[str, object] | None:
    """The item of one part, or of the texts and refusals of one message. None where the API has no such item."""
    match run:
        case [Text() | Refusal(), *_]:
            parts = [part for part in run if isinstance(part, Text | Refusal)]
            return _with_own({"status": _status(is_cut)}, message_item(parts, role="assistant"), id=id)
        case [Reasoning() as part]:
            return _with_own({}, reasoning_item(part), id=id)
        case [ToolCall() as call]:
            is_whole = call.state == ArgumentsState.COMPLETE and not is_cut
            return _with_own({"status": _status(not is_whole)}, call_item(call, arguments=call.arguments), id=id)
        case [ProviderItem(family=family, json=json)] if family == NAME:
            return {**read_fields(json)}
        case _:
            return None


def _status(is_cut: bool) -> str:
    return "incomplete" if is_cut else "completed"


def _with_own(defaults: dict[str, object], item: dict[str, object], *, id: str) -> dict[str, object]:
    own = {"id": f"{ID_PREFIXES[str(item['type'])]}_{id}", **defaults}
    return {**item, **without(own, item)}


def response_object(
    settings: Mapping[str, object],
    *,
    id: str,
    model: str,
    word: str,
    output: Sequence[object],
    usage: Usage | None = None,
    fault: Fault | None = None,
    stamp: AnswerStamp = UNSTAMPED,
) -> dict[str, object]:
    """The whole response object, with the settings that are `repeated` in it. `word` is the status, with `:reason` behind it."""
    status, _, reason = word.partition(":")
    return {
        **settings,
        "id": id,
        "object": "response",
        "created_at": stamp.created_s,
        "completed_at": stamp.ended_s if status == "completed" else None,
        "status": status,
        "error": None if fault is None else response_error(fault),
        "incomplete_details": {"reason": reason} if reason else None,
        "model": model,
        "output": output,
        "usage": None if usage is None else usage_object(usage),
    }


def repeated(request: Request) -> dict[str, object]:
    """What the API says again of the request in each response object, every field of it (OpenAI API reference, "The response
    object"; the schemas of Open Responses require them all)."""
    asked = read_fields(encode_request(msgspec.structs.replace(request, messages=(), cache=None), PROFILE).body)
    said = {key: value for key, value in asked.items() if key in DEFAULTS and not is_null(value)}
    whole: dict[str, object] = {**DEFAULTS, **said}
    if "tools" in said:
        whole["tools"] = [{**_UNSAID.get(string_of(one, "type") or "", {}), **one} for one in objects_of(said["tools"])]
    if "reasoning" in said and is_object(said["reasoning"]):
        whole["reasoning"] = {**NO_REASONING, **read_fields(said["reasoning"])}
    if "text" in said and is_object(said["text"]):
        text = {**PLAIN_TEXT, **read_fields(said["text"])}
        if isinstance(form := text["format"], msgspec.Raw) and is_object(form):
            fields = read_fields(form)
            text["format"] = {**_UNSAID.get(string_of(fields, "type") or "", {}), **fields}
        whole["text"] = text
    return whole


def objects_of(array: msgspec.Raw) -> list[Fields]:
    return [read_fields(raw) for raw in read_items(array) if is_object(raw)]


NO_REASONING: Mapping[str, object] = {"effort": None, "summary": None}
PLAIN_TEXT: Mapping[str, object] = {"format": {"type": "text"}}
# What the API says of a tool or a format that the request did not say, by its type.
_UNSAID: Mapping[str, Mapping[str, object]] = {
    "function": {"description": None, "parameters": None, "strict": False},
    "json_schema": {"description": None, "strict": False},
}
# What the API fills in where the request said nothing, as recorded.
DEFAULTS: Mapping[str, object] = {
    "background": False,
    "completed_at": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": NO_REASONING,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": PLAIN_TEXT,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


# Frames -> a Responses event stream, with every event that the API sends around a delta.


Kind = Literal["message", "reasoning", "function_call", "custom_tool_call"]


# An item that has these and no text is reasoning that the provider shows to nobody.
ENCRYPTED = frozenset(("encrypted_content", "summary", "content"))

# With these finish reasons, a call without arguments had none.
ENDED_BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})


class _Block(msgspec.Struct, kw_only=True):
    """One part under way. `item` is None while its kind, or a call's name, is not known."""

    text: type[Text] | type[Refusal] | None = None  # in a message
    item: "_Item | None" = None
    content_index: int = 0
    opaque: Fields = {}
    pieces: list[str] = []
    citations: list[Citation] = []
    free_form: bool = False
    call_id: str | None = None
    name: str | None = None
    final: Part | None = None
    ended: bool = False


class _Item(msgspec.Struct, kw_only=True):
    index: int
    kind: Kind
    id: str
    done: bool = False


class ResponsesStreamEncoder:
    """See `StreamEncoder`. An item's id is the one that its `BlockData` gives before its first piece, else it is made up;
    one that comes later is too late, for `output_item.added` has left."""

    def __init__(self, request: Request, stamp: AnswerStamp = UNSTAMPED) -> None:
        self._settings = repeated(request)
        self._stamp = stamp
        self._asked_model = request.model
        self._sequence_number = 0
        self._out: list[bytes] = []
        self._id: str | None = None
        self._model = request.model
        self._blocks: dict[str, _Block] = {}
        self._items: dict[int, _Item] = {}  # under way, by index
        self._parts: dict[int, list[_Block]] = {}  # of those, by the index of their item
        self._waiting: dict[int, _Item] = {}  # messages of those, whose texts may all have ended
        self._output: dict[int, object] = {}  # done, by index
        self._next_index = 0
        self._usage: Usage | None = None
        self._finished: Finished | None = None
        self._fault: Fault | None = None

    def encode(self, frame: Frame) -> bytes:
        if isinstance(frame, Started):
            self._start(frame)
        elif self._id is None and not isinstance(frame, Mended | Lost | Restated | CallForming):
            self._start(Started())  # what says nothing may stand before the true start, whose id no client takes later
        match frame:
            case TextDelta(text=text, block=name):
                self._write_text(self._block(name), Text, text)
            case RefusalDelta(text=text, block=name):
                self._write_text(self._block(name), Refusal, text)
            case ReasoningDelta(text=text, block=name):
                self._write_reasoning(self._block(name), text)
            case ToolCallDelta():
                self._write_call(self._block(frame.block or f"call-{frame.index}"), frame)
            case BlockData(block=name, opaque=opaque):
                if opaque.family == NAME:
                    block = self._block(name)
                    block.opaque = {**block.opaque, **read_fields(opaque.json)}
            case CitationAdded(block=name, citation=citation):
                self._write_citation(self._block(name), citation)
            case PartDone(block=name, part=part):
                self._write_final(self._block(name), part)
            case BlockEnded(block=name):
                self._end_block(self._block(name))
            case UsageReported(usage=usage):
                self._usage = usage
            case Finished():
                self._finished = frame
            case Faulted(fault=fault):
                self._fault = fault
            case Started() | Mended() | Lost() | Restated() | CallForming():
                pass
        return self._take()

    def close_ended(self) -> bytes:
        self._end_waiting()
        return self._take()

    def finish(self, *, ended_s: int | None = None) -> bytes:
        self._stamp = msgspec.structs.replace(self._stamp, ended_s=ended_s)
        if self._id is None:
            self._start(Started())
        finish = FinishReason.CUT if self._finished is None else self._finished.reason
        is_cut = finish in (FinishReason.LENGTH, FinishReason.CUT, FinishReason.ERROR) or self._fault is not None
        for item in list(self._items.values()):
            is_begun_call = item.kind == "function_call" and not any(self._parts[item.index][0].pieces)
            self._end_item(item, is_cut=finish not in ENDED_BY_ITSELF if is_begun_call else is_cut)
        word = status_for(finish, self._finished.provider_reason if self._finished else None)
        if self._fault is not None:
            self._emit("error", {"error": stream_error(self._fault)})
            word = "failed"
        terminal = {"incomplete": "response.incomplete", "failed": "response.failed"}
        self._emit(
            terminal.get(word.partition(":")[0], "response.completed"),
            {"response": self._response(word, output=[self._output[index] for index in sorted(self._output)])},
        )
        return self._take()

    # ---- events

    def _take(self) -> bytes:
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _emit(self, kind: str, fields: dict[str, object]) -> None:
        event = encode({"type": kind, "sequence_number": self._sequence_number, **fields})
        self._sequence_number += 1
        self._out.append(encode_event(event, name=kind))

    def _response(self, word: str, *, output: Sequence[object]) -> dict[str, object]:
        return response_object(
            self._settings,
            id=self._id or "",
            model=self._model,
            word=word,
            output=output,
            usage=self._usage,
            fault=self._fault,
            stamp=self._stamp,
        )

    def _start(self, frame: Started) -> None:
        """A second start discards what came before, as the frame does."""
        self._id = frame.id or own_id(self._stamp)
        self._model = frame.model or self._asked_model
        self._blocks.clear()
        self._items.clear()
        self._parts.clear()
        self._waiting.clear()
        self._output.clear()
        self._next_index = 0
        for kind in ("response.created", "response.in_progress"):
            self._emit(kind, {"response": self._response("in_progress", output=[])})

    # ---- items and their content

    def _block(self, name: str) -> _Block:
        if name not in self._blocks:
            self._blocks[name] = _Block()
        return self._blocks[name]

    def _open_item(self, kind: Kind, block: _Block, item: dict[str, object]) -> _Item:
        self._end_waiting()
        index = self._next_index
        self._next_index += 1
        id = text_at(block.opaque, "id") or f"{ID_PREFIXES[kind]}_{made_up_id(self._id or '', index)}"
        opened = _Item(index=index, kind=kind, id=id)
        self._items[index], self._parts[index] = opened, [block]
        block.item = opened
        header = without(
            block.opaque, (CONTENT_PART, "id", "status", "summary", "content", "encrypted_content", "role")
        )
        self._emit(
            "response.output_item.added",
            {"output_index": index, "item": {"id": id, "type": kind, **header, **item}},
        )
        return opened

    def _at(self, block: _Block) -> dict[str, object]:
        assert block.item is not None
        at: dict[str, object] = {"item_id": block.item.id, "output_index": block.item.index}
        if block.item.kind == "message":
            at["content_index"] = block.content_index
        return at

    def _write_text(self, block: _Block, kind: type[Text] | type[Refusal], text: str) -> None:
        if block.ended:
            return
        if block.item is None:
            self._open_content(block, kind)
        if not text:
            return
        block.pieces.append(text)
        if block.text is Text:
            self._emit("response.output_text.delta", {**self._at(block), "delta": text, "logprobs": []})
        else:
            self._emit("response.refusal.delta", {**self._at(block), "delta": text})

    def _open_content(self, block: _Block, kind: type[Text] | type[Refusal]) -> None:
        """A text of the message that the newest item is, where their own fields are equal; else of a message of its own."""
        block.text = kind
        header = without(block.opaque, (CONTENT_PART,))
        newest = next(reversed(self._items.values()), None)
        if (
            newest is not None
            and newest.kind == "message"
            and header
            and _header(self._parts[newest.index][0]) == encode(header)
        ):
            block.item = newest
            block.content_index = len(self._parts[newest.index])
            self._parts[newest.index].append(block)
        if block.item is None:
            self._open_item("message", block, {"role": "assistant", "status": "in_progress", "content": []})
        self._emit("response.content_part.added", {**self._at(block), "part": _shown(kind(""))})

    def _write_reasoning(self, block: _Block, text: str) -> None:
        if block.ended:
            return
        if block.item is None:
            self._open_item("reasoning", block, {"summary": []})
        if not text:
            return
        if not block.pieces:
            part = {"type": "summary_text", "text": ""}
            self._emit("response.reasoning_summary_part.added", {**self._at(block), "summary_index": 0, "part": part})
        block.pieces.append(text)
        self._emit("response.reasoning_summary_text.delta", {**self._at(block), "summary_index": 0, "delta": text})

    def _write_call(self, block: _Block, delta: ToolCallDelta) -> None:
        if block.ended:
            return
        block.call_id = block.call_id or delta.id or None
        block.name = block.name or delta.name or None
        block.free_form = block.free_form or delta.free_form
        arguments = delta.arguments or ""
        if delta.whole and block.pieces:
            block.pieces[:] = [arguments]  # the final form says so; what was sent cannot be taken back
            return
        if block.item is None:
            if arguments:
                block.pieces.append(arguments)
            if block.name is not None:
                self._open_call(block)
            return
        if arguments:
            block.pieces.append(arguments)
            self._emit_arguments(block, arguments)

    def _open_call(self, block: _Block) -> None:
        kind: Kind = "custom_tool_call" if block.free_form else "function_call"
        if block.call_id is None:
            block.call_id = f"call_{made_up_id(self._id or '', self._next_index)}"
        begun = {"status": "in_progress", "call_id": block.call_id, "name": block.name or ""}
        self._open_item(kind, block, {**begun, ("input" if block.free_form else "arguments"): ""})
        if block.pieces:
            self._emit_arguments(block, "".join(block.pieces))

    def _emit_arguments(self, block: _Block, arguments: str) -> None:
        kind = "custom_tool_call_input" if block.free_form else "function_call_arguments"
        self._emit(f"response.{kind}.delta", {**self._at(block), "delta": arguments})

    def _write_citation(self, block: _Block, citation: Citation) -> None:
        if citation.family != NAME or block.ended:
            return
        if block.item is None:
            self._open_content(block, Text)
        place = {"annotation_index": len(block.citations), "annotation": msgspec.Raw(citation.raw.encode())}
        block.citations.append(citation)
        self._emit("response.output_text.annotation.added", {**self._at(block), **place})

    def _write_final(self, block: _Block, part: Part) -> None:
        """The final form: what the deltas lack of it is sent as one more, then the block's end says the rest."""
        if block.ended:
            return
        opaque = getattr(part, "opaque", None)
        if opaque is not None and opaque.family == NAME:
            block.opaque = read_fields(opaque.json)
        sent = "".join(block.pieces)
        match part:
            case Text(text=text, citations=citations):
                self._write_text(block, Text, _rest_of(text, sent))
                for citation in citations[len(block.citations) :]:
                    self._write_citation(block, citation)
            case Refusal(text=text):
                self._write_text(block, Refusal, _rest_of(text, sent))
            case Reasoning(text=text):
                self._write_reasoning(block, _rest_of(text, sent))
            case ToolCall():
                rest = _rest_of(part.arguments, sent)
                self._write_call(
                    block, ToolCallDelta(id=part.id, name=part.name, arguments=rest, free_form=part.free_form)
                )
            case ProviderItem(family=family, json=json) if family == NAME:
                self._write_provider_item(json)
                block.ended = True
            case _:
                block.ended = True  # the API has no such item
                if block.item is not None:
                    self._waiting[block.item.index] = block.item
        block.final = part

    def _write_provider_item(self, json: str) -> None:
        self._end_waiting()
        index = self._next_index
        self._next_index += 1
        item = msgspec.Raw(json.encode())
        self._output[index] = item
        self._emit("response.output_item.added", {"output_index": index, "item": item})
        self._emit("response.output_item.done", {"output_index": index, "item": item})

    # ---- ends

    def _end_block(self, block: _Block) -> None:
        if block.ended:
            return
        if block.item is None:
            if block.pieces or block.name is not None:
                self._open_call(block)
            elif block.opaque.keys() & ENCRYPTED:
                self._write_reasoning(block, "")
            elif block.opaque:
                self._write_text(block, Text, "")
            else:
                return  # nothing came of it
        item = block.item
        assert item is not None
        if item.kind == "function_call" and not any(block.pieces):
            return  # whether it had no arguments or was cut before they began, only the response's end tells
        block.ended = True
        may_grow = item.kind == "message" and (
            "id" in block.opaque or not all(other.ended for other in self._parts[item.index])
        )
        if not may_grow:
            self._end_item(item, is_cut=False)
        else:
            self._waiting[item.index] = item  # one with an id of its own may get a further text

    def _end_waiting(self) -> None:
        """Messages whose texts have all ended: another item begins, so no further text will come."""
        waiting, self._waiting = self._waiting, {}
        for _, item in sorted(waiting.items()):
            if all(block.ended for block in self._parts[item.index]):
                self._end_item(item, is_cut=False)

    def _end_item(self, item: _Item, *, is_cut: bool) -> None:
        del self._items[item.index]
        blocks = self._parts.pop(item.index)
        self._waiting.pop(item.index, None)
        for block in blocks:
            is_cut = is_cut and not block.ended
            block.ended = True
        parts = [_whole(item.kind, block) for block in blocks]
        for block, part in zip(blocks, parts, strict=True):
            self._emit_whole(block, part)
        final = output_item(parts, id="", is_cut=is_cut)
        assert final is not None
        final["id"] = item.id  # what `added` said: openai-python refuses an item whose id changes
        self._output[item.index] = final
        self._emit("response.output_item.done", {"output_index": item.index, "item": final})

    def _emit_whole(self, block: _Block, part: Part) -> None:
        at = self._at(block)
        match part:
            case Text(text=text):
                self._emit("response.output_text.done", {**at, "text": text, "logprobs": []})
                self._emit("response.content_part.done", {**at, "part": _shown(part)})
            case Refusal(text=text):
                self._emit("response.refusal.done", {**at, "refusal": text})
                self._emit("response.content_part.done", {**at, "part": _shown(part)})
            case Reasoning(text=text) if block.pieces:
                whole = {"type": "summary_text", "text": text}
                self._emit("response.reasoning_summary_text.done", {**at, "summary_index": 0, "text": text})
                self._emit("response.reasoning_summary_part.done", {**at, "summary_index": 0, "part": whole})
            case ToolCall(arguments=arguments, free_form=True):
                self._emit("response.custom_tool_call_input.done", {**at, "input": arguments})
            case ToolCall(arguments=arguments, name=name):
                self._emit("response.function_call_arguments.done", {**at, "name": name, "arguments": arguments})
            case _:
                pass


def _rest_of(text: str, sent: str) -> str:
    """What was not sent yet; empty where something else was."""
    return text.removeprefix(sent) if text.startswith(sent) else ""


def _header(block: _Block) -> bytes:
    return encode(without(block.opaque, (CONTENT_PART,)))


def _shown(part: Text | Refusal) -> dict[str, object]:
    """A content part as the stream shows it."""
    shown = content_part(part, role="assistant")
    return {"logprobs": [], **shown} if isinstance(part, Text) else shown


def _whole(kind: Kind, block: _Block) -> Part:
    """The part that the block has become."""
    if block.final is not None:
        return block.final
    opaque = opaque_from(block.opaque)
    text = "".join(block.pieces)
    match kind:
        case "reasoning":
            return Reasoning(text, opaque=opaque)
        case "message" if block.text is Refusal:
            return Refusal(text, opaque=opaque)
        case "message":
            return Text(text, citations=tuple(block.citations), opaque=opaque)
        case "function_call" | "custom_tool_call":
            return ToolCall(
                id=block.call_id or "",
                name=block.name or "",
                arguments=text,
                free_form=kind == "custom_tool_call",
                opaque=opaque,
            )
