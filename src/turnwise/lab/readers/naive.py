"""A client that believes every event: it keeps calls in a list by index, adds up strings, and looks for nothing else."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from turnwise.lab.readers.reader_result import StreamReading, ToldError

_FINISH = {
    "tool_calls": "calls",
    "tool_use": "calls",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "content_filter": "refused",
    "refusal": "refused",
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refused",
}
Event = TypeVar("Event")


def read_naively(body: bytes, *, family: str) -> StreamReading:
    """Raises ValueError or LookupError where such a client would crash."""
    return _READ[family](_data(body))


def _data(body: bytes) -> list[bytes]:
    lines = body.replace(b"\r\n", b"\n").split(b"\n")
    return [line[5:] for line in lines if line.startswith(b"data:") and line[5:].strip() != b"[DONE]"]


def _decoded(data: Sequence[bytes], *, as_type: type[Event]) -> list[Event]:
    return [msgspec.json.decode(one, type=as_type) for one in data]


def _listed(calls: dict[int, list[str]]) -> list[tuple[str, str, str]]:
    return [(call[0], call[1], call[2]) for call in calls.values()]


class NaiveFunction(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class NaiveCall(msgspec.Struct, frozen=True):
    index: int
    function: NaiveFunction
    id: str | None = None


class NaiveDelta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[NaiveCall] | None = None


class NaiveChoice(msgspec.Struct, frozen=True):
    delta: NaiveDelta = NaiveDelta()
    finish_reason: str | None = None


class NaiveChunk(msgspec.Struct, frozen=True):
    choices: list[NaiveChoice] = []
    error: ToldError | None = None


def _chat(data: Sequence[bytes]) -> StreamReading:
    text, refusal, finish, error = "", "", "", ""
    calls: dict[int, list[str]] = {}
    for chunk in _decoded(data, as_type=NaiveChunk):
        error = error or (chunk.error.message if chunk.error is not None else "")
        for choice in chunk.choices:
            text += choice.delta.content or ""
            refusal += choice.delta.refusal or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, ["", "", ""])
                call[0] += piece.id or ""
                call[1] += piece.function.name or ""
                call[2] += piece.function.arguments or ""
    return StreamReading(text + refusal, _listed(calls), _FINISH.get(finish, finish), error)


class NaiveItem(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    call_id: str = ""
    name: str = ""


class NaiveReason(msgspec.Struct, frozen=True):
    reason: str | None = None


class NaiveResponse(msgspec.Struct, frozen=True):
    error: ToldError | None = None
    incomplete_details: NaiveReason | None = None


class NaiveResponseEvent(msgspec.Struct, frozen=True):
    type: str
    item: NaiveItem = NaiveItem(type="")
    item_id: str = ""
    delta: str = ""
    arguments: str = ""
    message: str = ""
    response: NaiveResponse = NaiveResponse()


def _responses(data: Sequence[bytes]) -> StreamReading:
    text, refusal, finish, error = "", "", "", ""
    calls: dict[str, list[str]] = {}
    for event in _decoded(data, as_type=NaiveResponseEvent):
        match event.type:
            case "response.output_item.added" if event.item.type == "function_call":
                calls[event.item.id] = [event.item.call_id, event.item.name, ""]
            case "response.function_call_arguments.delta":
                calls[event.item_id][2] += event.delta
            case "response.function_call_arguments.done":
                calls[event.item_id][2] = event.arguments
            case "response.output_text.delta":
                text += event.delta
            case "response.refusal.delta":
                refusal += event.delta
            case "response.completed":
                finish = "calls" if calls else "refused" if refusal else "stop"
            case "response.incomplete":
                details = event.response.incomplete_details
                finish = "refused" if details is not None and details.reason == "content_filter" else "length"
            case "response.failed":
                error = event.response.error.message if event.response.error is not None else "it failed"
            case "error":
                error = event.message
            case _:
                pass
    listed = [(call[0], call[1], call[2]) for call in calls.values()]
    return StreamReading(text + refusal, listed, finish, error)


class NaiveBlock(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    name: str = ""


class NaiveBlockDelta(msgspec.Struct, frozen=True):
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class NaiveMessageEvent(msgspec.Struct, frozen=True):
    type: str
    index: int = -1
    content_block: NaiveBlock = NaiveBlock(type="")
    delta: NaiveBlockDelta = NaiveBlockDelta()
    error: ToldError | None = None


def _messages(data: Sequence[bytes]) -> StreamReading:
    text, finish, error, is_over = "", "", "", False
    calls: dict[int, list[str]] = {}
    for event in _decoded(data, as_type=NaiveMessageEvent):
        match event.type:
            case "content_block_start" if event.content_block.type == "tool_use":
                calls[event.index] = [event.content_block.id, event.content_block.name, ""]
            case "content_block_delta":
                text += event.delta.text
                if event.delta.partial_json:
                    calls[event.index][2] += event.delta.partial_json
            case "message_delta":
                finish = event.delta.stop_reason or finish
            case "message_stop":
                is_over = True
            case "error":
                error = event.error.message if event.error is not None else "it failed"
            case _:
                pass
    whole = [(call[0], call[1], call[2] or "{}") for call in calls.values()]
    return StreamReading(text, whole, _FINISH.get(finish, finish or "nothing") if is_over else "", error)


class NaiveFunctionCall(msgspec.Struct, frozen=True):
    name: str
    id: str = ""
    args: dict[str, object] = {}


class NaivePart(msgspec.Struct, frozen=True, rename="camel"):
    text: str = ""
    thought: bool = False
    function_call: NaiveFunctionCall | None = None


class NaiveContent(msgspec.Struct, frozen=True):
    parts: list[NaivePart] = []


class NaiveCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: NaiveContent = NaiveContent()
    finish_reason: str | None = None


class NaiveAnswer(msgspec.Struct, frozen=True):
    candidates: list[NaiveCandidate] = []
    error: ToldError | None = None


def _gemini(data: Sequence[bytes]) -> StreamReading:
    text, finish, error = "", "", ""
    calls: list[tuple[str, str, str]] = []
    for answer in _decoded(data, as_type=NaiveAnswer):
        error = error or (answer.error.message if answer.error is not None else "")
        for candidate in answer.candidates:
            finish = candidate.finish_reason or finish
            for part in candidate.content.parts:
                text += "" if part.thought else part.text
                if (call := part.function_call) is not None:
                    calls.append((call.id, call.name, msgspec.json.encode(call.args).decode()))
    word = _FINISH.get(finish, finish)
    return StreamReading(text, calls, "calls" if calls and word == "stop" else word, error)


_READ: dict[str, Callable[[Sequence[bytes]], StreamReading]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
}
