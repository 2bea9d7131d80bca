"""Chat Completions chunks and bodies as typed values. What does not fit them is read by `tolerant.py`.

A chunk and a body differ only in `delta` and `message`, so one type holds both. Only what has a word in our vocabulary is
decoded; the rest (`logprobs`, `system_fingerprint`, padding ...) is passed over. Source: OpenAI API reference, "Chat
Completions", and for the fields of other providers the recorded streams.
"""

import msgspec

from turnwise.wire.json_fields import NOTHING, is_null


class FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None
    whole: bool = False  # ours, set by the loose reading: the arguments came as an object


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
    reasoning_text: str | None = None  # Copilot
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
    service_tier: msgspec.Raw = NOTHING  # how the request was served
    error: msgspec.Raw = NOTHING
    x_groq: GroqExtension | None = None
    citations: list[msgspec.Raw] | None = None  # Perplexity: URLs, repeated in every chunk
    search_results: list[msgspec.Raw] | None = None  # Perplexity: the same sources with titles


decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError."""


def is_there(raw: msgspec.Raw) -> bool:
    """True where the field was sent and is not null."""
    return not is_null(raw)
