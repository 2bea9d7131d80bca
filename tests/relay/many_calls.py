"""Streams of any number of calls, as each family's servers write them, and as Chat Completions' servers write them wrongly."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from turnwise.wire.profiles import FamilyName

Manner = Literal["usual", "one index", "no id", "one id", "no name", "one event"]
MANNERS: tuple[Manner, ...] = ("usual", "one index", "no id", "one id", "no name", "one event")


def stream_of_calls(family: FamilyName, number: int, *, manner: Manner = "usual") -> bytes:
    """`manner` is how Chat Completions has them."""
    match family:
        case "openai_chat":
            events = _chat(number, manner)
        case "openai_responses":
            events = _responses(number)
        case "anthropic_messages":
            events = _anthropic(number)
        case "gemini":
            events = _gemini(number)
    return b"".join(events)


def _event(value: object, *, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + msgspec.json.encode(value) + b"\n\n"


def _chat(number: int, manner: Manner) -> Iterator[bytes]:
    def chunk(delta: object, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})

    def call(at: int) -> dict[str, object]:
        function = {"arguments": ""} if manner == "no name" else {"name": "read", "arguments": "{}"}
        id = {} if manner == "no id" else {"id": "x" if manner == "one id" else f"i{at}"}
        return {"index": 0 if manner == "one index" else at, **id, "type": "function", "function": function}

    yield chunk({"role": "assistant", "content": ""})
    if manner == "one event":
        yield chunk({"tool_calls": [call(at) for at in range(number)]})
    else:
        yield from [chunk({"tool_calls": [call(at)]}) for at in range(number)]
    yield chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def _anthropic(number: int) -> Iterator[bytes]:
    def event(kind: str, **fields: object) -> bytes:
        return _event({"type": kind, **fields}, name=kind)

    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    yield event("message_start", message={**message, "usage": {"input_tokens": 1, "output_tokens": 1}})
    for at in range(number):
        call = {"type": "tool_use", "id": f"i{at}", "name": "read", "input": {}}
        yield event("content_block_start", index=at, content_block=call)
        yield event("content_block_delta", index=at, delta={"type": "input_json_delta", "partial_json": "{}"})
        yield event("content_block_stop", index=at)
    yield event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1})
    yield event("message_stop")


def _responses(number: int) -> Iterator[bytes]:
    def event(kind: str, **fields: object) -> bytes:
        return _event({"type": kind, **fields}, name=kind)

    response = {"id": "r", "object": "response", "model": "m"}
    yield event("response.created", response={**response, "status": "in_progress", "output": []})
    items: list[object] = []
    for at in range(number):
        call = {"type": "function_call", "id": f"f{at}", "call_id": f"i{at}", "name": "read"}
        begun, done = [
            {**call, "arguments": text, "status": s} for text, s in (("", "in_progress"), ("{}", "completed"))
        ]
        yield event("response.output_item.added", output_index=at, item=begun)
        yield event("response.function_call_arguments.delta", output_index=at, item_id=f"f{at}", delta="{}")
        yield event("response.output_item.done", output_index=at, item=done)
        items.append(done)
    yield event("response.completed", response={**response, "status": "completed", "output": items})


def _gemini(number: int) -> Iterator[bytes]:
    def chunk(parts: list[object], **fields: object) -> bytes:
        return _event({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **fields}]})

    yield from [chunk([{"functionCall": {"name": "read", "args": {}}}]) for _ in range(number)]
    yield chunk([], finishReason="STOP")
