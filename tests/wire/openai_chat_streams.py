"""What the tests in `test_openai_chat_streams.py` and `test_openai_chat_encoding.py` share."""

import json
from typing import Any

from turnwise.testing.wire_conformance import (
    assemble,
    decode_stream,
)
from turnwise.vocab import (
    Finished,
    FinishReason,
    Frame,
    Message,
    Request,
    Response,
    Started,
    Text,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

PROFILE = builtin_profiles()["openai_chat"]
REQUEST = Request(model="m", messages=(Message("user", (Text("hi"),)),))


def stream_of(*chunks: object, done: bool = True) -> bytes:
    lines = [chunk if isinstance(chunk, bytes) else json.dumps(chunk, ensure_ascii=False).encode() for chunk in chunks]
    return b"".join([b"data: " + line + b"\n\n" for line in lines]) + (b"data: [DONE]\n\n" if done else b"")


def delta(fields: dict[str, Any] | None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": fields, "finish_reason": finish, **more}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [choice]}


def call(**fields: Any) -> dict[str, Any]:
    return delta({"tool_calls": [fields]})


def frames(*chunks: object, done: bool = False) -> list[Frame]:
    """The frames of a stream of these chunks, after the `Started` that each begins with. Without a finish reason the end
    mark is told of, so it is `done` only where that is meant."""
    found = decode_stream(FAMILY, [stream_of(*chunks, done=done)], profile=PROFILE)
    assert found[0] == Started("c1", "m1")
    return found[1:]


def respond(*chunks: object, done: bool = True) -> Response:
    return assemble(decode_stream(FAMILY, [stream_of(*chunks, done=done)], profile=PROFILE))


def body(**message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "object": "chat.completion", "model": "m1", "choices": [choice]}).encode()


def respond_to_body(**message: Any) -> Response:
    return assemble(FAMILY.decode_body(body(**message), PROFILE, DEFAULT_LIMITS))


END = delta({}, "stop")
STOP = Finished(FinishReason.STOP, "stop")
