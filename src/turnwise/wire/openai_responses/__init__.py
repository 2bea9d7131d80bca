"""The OpenAI Responses API (`POST /responses`), and those who speak it: Azure, xAI, the Codex backend, OpenRouter, vLLM,
LM Studio: what it offers, and what it cannot carry."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import Family, HttpCall, Loss
from turnwise.wire.openai_responses.faults import decode_fault, encode_fault
from turnwise.wire.openai_responses.open_response import FINISH_REASONS
from turnwise.wire.openai_responses.parts import NAME
from turnwise.wire.openai_responses.request import encode_request
from turnwise.wire.openai_responses.request_reading import decode_request
from turnwise.wire.openai_responses.response import ResponsesStreamEncoder, decode_body, encode_body
from turnwise.wire.openai_responses.socket import SOCKET
from turnwise.wire.openai_responses.stream import ResponsesStreamDecoder

LOSSES = (
    Loss("`stop`, `seed`, `reasoning_tokens`", "request", "left out: the API has no such fields"),
    Loss("`is_error` of a tool result", "request", "left out; the text says what failed"),
    Loss("tool name in a result whose call is not in the request", "request", "an empty name"),
    Loss("arguments of a call that is not complete", "request", "`{}`"),
    Loss("name of an image, or of a file by URL or id", "request", "left out"),
    Loss("missing name of a file that is sent as data", "request", "`file`: the API insists on a name"),
    Loss("media type of a file by URL or id", "request", "`image/*` or `application/octet-stream`"),
    Loss("files in an assistant message", "request", "left out"),
    Loss(
        "reasoning without encrypted content and without raw content, if the API does not store responses",
        "request",
        "left out: the API answers 404 to a reference that it did not store",
    ),
    Loss("refusals and citations in parts without an item id", "request", "plain text of the assistant"),
    Loss("citations of another family, and citations in a user's text", "both", "left out"),
    Loss("assistant messages, or tool messages, that follow each other", "request", "one message"),
    Loss("a system message before all other messages", "request", "an entry of `Request.system`"),
    Loss("empty messages", "request", "left out"),
    Loss("parts of an assistant message without an item id", "response", "turnwise makes up the ids"),
    Loss("an item id that comes after the first piece of its part", "response", "the id that is already written"),
    Loss("order of server-side items that run at the same time", "response", "the order in which they ended"),
    Loss("tool choice and `parallel_tool_calls` without tools", "request", "left out"),
    Loss(
        "finish reasons `pause`, `refusal` and `tool_calls`",
        "response",
        "`completed`; decoding finds the reason in the items",
    ),
    Loss("finish reason `cut`", "response", "`incomplete` without a reason"),
    Loss(
        "free-form tools, calls and results, if the endpoint does not take them",
        "request",
        "JSON with one string parameter `input`",
    ),
    Loss("repairs, and the explanation of the finish", "response", "left out"),
    Loss("files in a response", "response", "left out: this API gives generated images as server-side items"),
)


TRAITS = FamilyTraits(
    refuses_trailing_reasoning=True,  # a reasoning item "was provided without its required following item"
    id_characters=64,  # of `input[1].call_id` (langmanus#119, opencode#12653, fastllm#45)
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=ResponsesStreamDecoder,
    decode_body=decode_body,
    stream_encoder=ResponsesStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=TRAITS,
    tool_names=re.compile(r"[A-Za-z0-9_-]{1,64}"),  # API reference, function names
    models_call=HttpCall(path="/models", body=b"", method="GET"),
    socket=SOCKET,
)
