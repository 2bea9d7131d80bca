"""Chat Completions chunks and bodies as typed values, and the tolerant reading for those that do not fit.

A chunk and a body differ only in `delta` and `message`, so one type holds both. Only what has a word in our vocabulary is
decoded; the rest (`logprobs`, `system_fingerprint`, padding ...) is passed over. Source: OpenAI API reference, "Chat
Completions", and for the fields of other providers the recorded streams.
"""

import json
from typing import Literal

import msgspec

from turnwise.wire.json_fields import NOTHING, is_null
from turnwise.wire.openai_chat.fields import is_array, is_object


class FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None
    whole: bool = False  # ours, set by the tolerant reading: the arguments came as an object


class CustomPiece(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None
    extra_content: msgspec.Raw = NOTHING  # Gemini's compatible endpoint: `{"google":{"thought_signature":...}}`


class ContentPart(msgspec.Struct, gc=False):
    """Content as typed parts (Mistral; OpenAI in messages)."""

    type: str = ""
    text: str | None = None
    thinking: "str | list[ContentPart] | None" = None
    refusal: str | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[msgspec.Raw] | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: FunctionPiece | None = None  # before `tool_calls`; still sent by old deployments
    annotations: list[msgspec.Raw] | None = None
    executed_tools: list[msgspec.Raw] | None = None  # Groq compound: tools that ran on the server
    images: list[msgspec.Raw] | None = None  # OpenRouter: generated images


class Choice(msgspec.Struct, gc=False):
    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None  # OpenRouter: the upstream's own word


class GroqExtension(msgspec.Struct, gc=False):
    usage: msgspec.Raw = NOTHING


class Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING
    x_groq: GroqExtension | None = None
    citations: list[msgspec.Raw] | None = None  # Perplexity: URLs, repeated in every chunk
    search_results: list[msgspec.Raw] | None = None  # Perplexity: the same sources with titles


class UsualFunction(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class UsualCallPiece(msgspec.Struct, gc=False):
    function: UsualFunction
    index: int | None = None
    id: str | None = None
    custom: None = None
    extra_content: None = None


class UsualDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[UsualCallPiece] | None = None
    reasoning_details: None = None
    refusal: None = None
    function_call: None = None
    annotations: None = None
    executed_tools: None = None
    images: None = None


class UsualChoice(msgspec.Struct, gc=False):
    delta: UsualDelta
    index: Literal[0] = 0
    message: None = None
    finish_reason: str | None = None  # where it says something the chunk is not usual, and an exception would cost more


class UsualChunk(msgspec.Struct, gc=False):
    """A chunk of a response under way that only brings more: whatever says something else is refused, so that nothing else
    has to be looked at."""

    choices: tuple[UsualChoice]
    usage: None = None
    error: None = None
    x_groq: None = None
    citations: None = None
    search_results: None = None


decode_usual = msgspec.json.Decoder(UsualChunk).decode
"""For nearly all chunks once a response has begun; the others are for `decode_chunk`. Raises as it does."""

decode_chunk = msgspec.json.Decoder(Chunk).decode
"""The fast path. Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError."""


def is_there(raw: msgspec.Raw) -> bool:
    """True where the field was sent and is not null."""
    return not is_null(raw)


def tolerant_chunk(value: dict[str, object]) -> Chunk:
    """Every field of the right kind is taken, every other is passed over."""
    groq = _object(value.get("x_groq"))
    return Chunk(
        id=_text(value.get("id")),
        model=_text(value.get("model")),
        object=_text(value.get("object")),
        choices=[_choice(choice) for choice in objects(value.get("choices"))] if "choices" in value else None,
        usage=_raw(value.get("usage")),
        error=_raw(value.get("error")),
        x_groq=GroqExtension(usage=_raw(groq.get("usage"))) if groq else None,
        citations=_raws(value.get("citations")),
        search_results=_raws(value.get("search_results")),
    )


def _choice(value: dict[str, object]) -> Choice:
    delta, message = value.get("delta"), value.get("message")
    return Choice(
        index=_integer(value.get("index")),
        delta=_delta(delta) if is_object(delta) else None,
        message=_delta(message) if is_object(message) else None,
        finish_reason=_text(value.get("finish_reason")),
        native_finish_reason=_text(value.get("native_finish_reason")),
    )


def _delta(value: dict[str, object]) -> Delta:
    content = value.get("content")
    call = value.get("function_call")
    return Delta(
        content=[_part(part) for part in objects(content)] if is_array(content) else _piece(content),
        reasoning_content=_piece(value.get("reasoning_content")),
        reasoning=_piece(value.get("reasoning")),
        reasoning_details=_raws(value.get("reasoning_details")),
        refusal=_piece(value.get("refusal")),
        tool_calls=[_call(call) for call in objects(value.get("tool_calls"))],
        function_call=_function(call) if is_object(call) else None,
        annotations=_raws(value.get("annotations")),
        executed_tools=_raws(value.get("executed_tools")),
        images=_raws(value.get("images")),
    )


def _part(value: dict[str, object]) -> ContentPart:
    thinking = value.get("thinking")
    return ContentPart(
        type=_text(value.get("type")) or "",
        text=_piece(value.get("text")),
        thinking=[_part(part) for part in objects(thinking)] if is_array(thinking) else _piece(thinking),
        refusal=_piece(value.get("refusal")),
    )


def _call(value: dict[str, object]) -> CallPiece:
    function, custom = value.get("function"), _object(value.get("custom"))
    return CallPiece(
        index=_integer(value.get("index")),
        id=_text(value.get("id")),
        function=_function(function) if is_object(function) else None,
        custom=CustomPiece(name=_text(custom.get("name")), input=_written(custom.get("input"))) if custom else None,
        extra_content=_raw(value.get("extra_content")),
    )


def _function(value: dict[str, object]) -> FunctionPiece:
    arguments = value.get("arguments")
    is_whole = isinstance(arguments, dict | list)
    return FunctionPiece(name=_text(value.get("name")), arguments=_written(arguments), whole=is_whole)


def _written(value: object) -> str | None:
    """Arguments that are no string, as their JSON text: `true` is no arguments, but it is not none either."""
    if value is None or isinstance(value, str):
        return value
    return _text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def objects(value: object) -> list[dict[str, object]]:
    """The objects of an array; an object alone stands for an array of it."""
    if is_object(value):
        return [value]
    return [item for item in value if is_object(item)] if is_array(value) else []


def _object(value: object) -> dict[str, object]:
    return value if is_object(value) else {}


def _text(value: object) -> str | None:
    """A name or an id. A lone surrogate in it could never be written again."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _piece(value: object) -> str | None:
    """A piece of text. A lone surrogate may be half of a character, so the assembler joins it with the next piece's."""
    return value if isinstance(value, str) else _text(value)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else None


def _raw(value: object) -> msgspec.Raw:
    return NOTHING if value is None else msgspec.Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _raws(value: object) -> list[msgspec.Raw] | None:
    return [_raw(item) for item in value] if is_array(value) else None
