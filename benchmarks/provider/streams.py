"""The bytes that are played, made with turnwise's own encoders, which are tested against the vendors' clients."""

from collections.abc import Sequence

import msgspec

from turnwise.lab.writer import file_text
from turnwise.testing.frames import frames_of
from turnwise.testing.wire_conformance import encode_stream
from turnwise.vocab import (
    FinishReason,
    Message,
    Opaque,
    Part,
    Reasoning,
    Request,
    Response,
    Text,
    ToolCall,
    Usage,
)
from turnwise.wire.family import family

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
TITLES = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Anthropic Messages",
    "gemini": "Gemini",
}
KINDS = ("text", "tool arguments", "reasoning")
PIECE = 20  # characters of a delta: what providers send is 3 to 30
MODEL = "bench-1"
TOOL = "write"
PATH = "notes.md"


def stream_of(family_name: str, *, kind: str, chunks: int, piece: int = PIECE) -> bytes:
    """A whole stream whose text, reasoning or arguments come in so many deltas; a few events frame them."""
    if kind == "tool arguments":
        return call_stream(family_name, size=chunks * piece, piece=piece)
    text = prose(chunks * piece)
    match kind:
        case "text":
            parts: list[Part] = [Text(text)]
        case "reasoning":
            parts = [Reasoning(text, opaque=_signed(family_name)), Text("Done.")]
        case _:
            raise ValueError(kind)
    return encoded(family_name, parts, finish=FinishReason.STOP, piece=piece)


def prose(characters: int) -> str:
    """Words, numbers, quotes, backslashes, line breaks and some umlauts, as files have them."""
    return file_text(characters * 5 // 4 + 100)[:characters]


def call_stream(family_name: str, *, size: int, piece: int = PIECE) -> bytes:
    """One call whose arguments are about `size` characters of JSON text."""
    arguments = msgspec.json.encode({"path": PATH, "content": prose(size)}).decode()[: size - 2] + '"}'
    if family_name == "gemini":
        return _gemini_call(prose(size), piece=piece)
    call = ToolCall(id="call_1", name=TOOL, arguments=_whole(arguments))
    return encoded(family_name, [call], finish=FinishReason.TOOL_CALLS, piece=piece)


def encoded(
    family_name: str, parts: Sequence[Part], *, finish: FinishReason, piece: int = PIECE, number: int = 1
) -> bytes:
    response = Response(
        id=f"resp_{number}",
        model=MODEL,
        message=Message("assistant", tuple(parts)),
        finish=finish,
        usage=Usage(input_tokens=1_000, output_tokens=500),
    )
    request = Request(model=MODEL, messages=(Message("user", (Text("Go on."),)),))
    return encode_stream(family(family_name), frames_of(response, piece=piece), request=request)


def _whole(arguments: str) -> str:
    """Cut in the middle of an escape it would be no JSON: then the last characters go."""
    while True:
        try:
            msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            arguments = arguments[:-3] + '"}'
        else:
            return arguments


def _signed(family_name: str) -> Opaque | None:
    """Anthropic's clients want the thought's signature."""
    if family_name != "anthropic_messages":
        return None
    return Opaque(family=family_name, json='{"signature":"c2lnbmVk"}')


def _gemini_call(text: str, *, piece: int) -> bytes:
    """A call value by value (`partialArgs`), as Vertex AI streams it; Gemini's own API hands calls out whole."""
    path = {"jsonPath": "$.path", "stringValue": PATH}
    pieces = [text[at : at + piece] for at in range(0, len(text), piece)]
    calls: list[dict[str, object]] = [
        {"name": TOOL, "willContinue": True},
        {"partialArgs": [path], "willContinue": True},
    ]
    calls += [
        {
            "partialArgs": [{"jsonPath": "$.content", "stringValue": part, "willContinue": True}],
            "willContinue": True,
        }
        for part in pieces
    ]
    calls += [{"partialArgs": [{"jsonPath": "$.content", "stringValue": ""}], "willContinue": True}, {}]
    events = [_gemini_event({"content": {"role": "model", "parts": [{"functionCall": call}]}}) for call in calls]
    return b"".join(
        [*events, _gemini_event({"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"})]
    )


def _gemini_event(candidate: dict[str, object]) -> bytes:
    usage = {"promptTokenCount": 1_000, "candidatesTokenCount": 500, "totalTokenCount": 1_500}
    chunk = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": MODEL, "responseId": "resp_1"}
    return b"data: " + msgspec.json.encode(chunk) + b"\r\n\r\n"
