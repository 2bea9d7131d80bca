"""What the tests in `test_gemini_streams.py` and `test_gemini_encoding.py` share."""

import json
from typing import Any

import msgspec

from turnwise.testing.wire_conformance import (
    assemble,
    decode_stream,
)
from turnwise.vocab import (
    Frame,
    Message,
    Opaque,
    Request,
    Response,
    Text,
    Usage,
)
from turnwise.wire.gemini import FAMILY
from turnwise.wire.profiles import Profile

NAME = "gemini"
PROFILE = Profile(name="test", family="gemini")
REQUEST = Request(model="gemini-3", messages=(Message("user", (Text("hi"),)),))


def chunk(*parts: dict[str, Any], finish: str | int | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    candidate |= fields.pop("candidate", {})
    return {"candidates": [candidate], "modelVersion": "gemini-3", "responseId": "r1", **fields}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join([b"data: " + json.dumps(each, ensure_ascii=False).encode() + b"\r\n\r\n" for each in chunks])


def array(*chunks: dict[str, Any]) -> bytes:
    """As the API writes it without `alt=sse`: an indented array, each element after a comma of its own line."""
    return (
        "[" + "\n,\r\n".join([json.dumps(each, ensure_ascii=False, indent=2) for each in chunks]) + "\n]\n"
    ).encode()


def frames_from(*chunks: dict[str, Any]) -> list[Frame]:
    return decode_stream(FAMILY, [sse(*chunks)], profile=PROFILE)


def response_from(*chunks: dict[str, Any]) -> Response:
    return assemble(frames_from(*chunks))


def call(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": ({"name": name} if name else {}) | fields}


def piece(path: str, *, more: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value} | ({"willContinue": True} if more else {})


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


USAGE = {
    "promptTokenCount": 10,
    "toolUsePromptTokenCount": 4,
    "cachedContentTokenCount": 3,
    "candidatesTokenCount": 6,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 25,
}
COUNTED = Usage(
    input_tokens=14,
    output_tokens=11,
    reasoning_tokens=5,
    cache_read_tokens=3,
    provider=msgspec.json.encode(USAGE).decode(),
)
WHOLE = (
    chunk({"text": "Größe", "thought": True}, usageMetadata={"promptTokenCount": 10}),
    chunk({"text": "Let me \u2028 look "}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 2}),
    chunk({"text": '"👋" {\\'}, {"text": ""}),
    chunk({**call("read", args={"path": "a.txt"}, id="c1"), "thoughtSignature": "sig"}),
    chunk(call("read", args={"path": "b.txt"})),
    chunk({"text": "", "thoughtSignature": "end"}, finish="STOP", usageMetadata=USAGE),
)
