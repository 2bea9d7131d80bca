"""Whole Chat Completions bodies <-> frames and responses."""

import msgspec

from turnwise.vocab import (
    Citation,
    Faulted,
    File,
    Frame,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    ToolCall,
)
from turnwise.wire.faults import too_large
from turnwise.wire.limits import Limits
from turnwise.wire.openai_chat.faults import encode_fault
from turnwise.wire.openai_chat.fields import NAME, fields_of
from turnwise.wire.openai_chat.files import encode_file
from turnwise.wire.openai_chat.parts import encode_call, joined_text
from turnwise.wire.openai_chat.stream import ChatStreamDecoder
from turnwise.wire.openai_chat.usage import encode_usage
from turnwise.wire.openai_chat.words import word_of
from turnwise.wire.profiles import Profile


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """The frames of a body. An event stream in place of a body is read as such."""
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    decoder = ChatStreamDecoder(profile, limits, body_expected=True)
    return decoder.feed(body) + decoder.finish()


def encode_body(response: Response, request: Request) -> bytes:
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
        "id": response.id or "",
        "object": "chat.completion",
        "created": 0,  # no clock in this room
        "model": response.model or request.model,
        "choices": [choice],
    }
    if response.usage is not None:
        body["usage"] = encode_usage(response.usage)
    body.update(sources_of(citations_of(response.message.parts)))
    if response.fault is not None:
        body["error"] = msgspec.Raw(msgspec.json.encode(msgspec.json.decode(encode_fault(response.fault)[1])["error"]))
    return msgspec.json.encode(body)


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
    annotations = [msgspec.Raw(citation.raw.encode()) for citation in citations_of(parts) if is_annotation(citation)]
    if annotations:
        message["annotations"] = annotations
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
