"""Ollama's own API (`/api/chat`): what it offers, and what it cannot carry. An upstream only: no client of the
gateway speaks it."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import Family, HttpCall, Loss
from turnwise.wire.ollama_chat.answers import (
    FINISH_REASONS,
    OllamaStreamEncoder,
    decode_body,
    encode_body,
    encode_fault,
    stream_decoder,
)
from turnwise.wire.ollama_chat.messages import NAME
from turnwise.wire.ollama_chat.request import decode_request, encode_request
from turnwise.wire.openai_chat.faults import decode_fault

LOSSES: tuple[Loss, ...] = (
    Loss("order of the parts of a message", "both", "reasoning, text, images, calls"),
    Loss("several texts of one message or result", "request", "one text, with an empty line between the texts"),
    Loss("several leading system texts", "request", "one message, with an empty line between the texts"),
    Loss("tool messages that follow each other", "request", "one message"),
    Loss("a refusal", "both", "text"),
    Loss("citations", "both", "left out"),
    Loss("opaque data, provider items of other families", "both", "left out"),
    Loss("files that are no images, and images by URL or by id", "request", "a line of text"),
    Loss("media type and name of an image", "request", "`image/*`"),
    Loss("`is_error` of a tool result", "request", "left out"),
    Loss("arguments of a call that are not complete", "request", "`{}`"),
    Loss("complete arguments that are no object; free-form arguments", "request", '`{"input": ...}`'),
    Loss("a call whose arguments are not complete JSON", "response", "left out"),
    Loss("white space between the JSON tokens of arguments", "response", "left out"),
    Loss("free-form tools", "request", "a JSON tool with one string parameter `input`"),
    Loss("`strict` of tools; name and strictness of the output schema", "request", "left out"),
    Loss("a tool choice that is not `auto`", "request", "a user message behind the others that asks for it in words"),
    Loss("`parallel_tool_calls`", "request", "left out: the API has no such field"),
    Loss("reasoning effort and budget", "request", "`think`: true or false; `gpt-oss` gets low, medium or high"),
    Loss("finish reasons but `stop` and `length`", "response", "`stop`"),
    Loss("id of a response, cached and reasoning tokens", "response", "left out"),
    Loss("the kind of a fault", "response", "left out; its words remain"),
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=stream_decoder,
    decode_body=decode_body,
    stream_encoder=OllamaStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=FamilyTraits(hands_out_objects="always"),
    tool_names=re.compile(r".+"),  # the server looks at none
    models_call=HttpCall(path="/api/tags", body=b"", method="GET"),
    version_in="paths",
)
