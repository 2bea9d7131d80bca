"""The Anthropic Messages API, and what speaks it (Bedrock's and Vertex's Claude, compatible servers): what it offers, and what it
cannot carry."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.anthropic_messages.endings import FINISH_REASONS
from turnwise.wire.anthropic_messages.faults import decode_fault, encode_fault
from turnwise.wire.anthropic_messages.parts import NAME
from turnwise.wire.anthropic_messages.request import API_VERSION, encode_request
from turnwise.wire.anthropic_messages.request_reading import decode_request
from turnwise.wire.anthropic_messages.response import MessagesStreamEncoder, decode_body, encode_body
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.anthropic_messages.thinking import with_binding
from turnwise.wire.family import Family, HttpCall, Loss

# Tested: encoding and decoding loses this and nothing else.


LOSSES: tuple[Loss, ...] = (
    Loss("seed", "request", "left out"),
    Loss("name and strictness of the output schema", "request", "the schema alone"),
    Loss("reasoning effort `minimal`", "request", "`low`"),
    Loss("a missing output limit", "request", "`max_tokens`: the API insists on it"),
    Loss(
        "thinking with a forced tool choice, or with an output limit of 1,024 tokens or less",
        "request",
        "left out: the API refuses both together",
    ),
    Loss("a thinking budget that reaches the output limit", "request", "one token less than the limit"),
    Loss("temperature together with thinking", "request", "left out: the API takes only 1"),
    Loss("tool choice without tools", "request", "left out: the API refuses it"),
    Loss("`parallel_tool_calls` with the tool choice `none`", "request", "left out"),
    Loss("free-form tools", "request", "a JSON tool with one string parameter `input`"),
    Loss("free-form calls", "both", 'a JSON call: {"input": text}'),
    Loss("`is_error` of a tool result without text, or with a file", "request", "left out: the API refuses it"),
    Loss("the mark that a result belongs to a free-form call", "request", "left out"),
    Loss("arguments of a call that is not complete", "request", "`{}`"),
    Loss("the reason why a call is not complete", "both", "left out"),
    Loss(
        "characters of a call id other than `a-z`, `A-Z`, `0-9`, `_` and `-`",
        "both",
        "`_`; a short hash of the id is added, the same in the call and in its result",
    ),
    Loss("tool name in a result whose call is not in the request", "request", "an empty name"),
    Loss("messages of one role that follow each other", "request", "one message, tool results first"),
    Loss("system messages inside the conversation, if `mid_system` is off in the profile", "request", "user messages"),
    Loss("messages in which nothing can be sent", "request", "left out"),
    Loss("empty texts", "both", "left out: the API refuses them"),
    Loss(
        "texts of white space only, except next to other parts of an assistant message",
        "request",
        "left out: the API refuses them",
    ),
    Loss(
        "white space at the end of the last message, if it is the assistant's", "request", "cut off: the API refuses it"
    ),
    Loss("reasoning without this API's signature", "request", "left out: the API refuses it"),
    Loss("refusals", "both", "text"),
    Loss("files in assistant messages", "both", "left out"),
    Loss("audio and video", "request", "a line of text that says what was left out"),
    Loss("name of an image", "request", "left out"),
    Loss("media type of a text document", "request", "`text/plain`"),
    Loss("media type of a file by URL or id", "request", "`image/*`, `application/pdf` (URL) or `application/*` (id)"),
    Loss(
        "opaque data, citations and provider items of other families, and their server-side tools", "both", "left out"
    ),
    Loss(
        "opaque fields that come after the start of their text or call",
        "response",
        "left out of streams: only the start of a block can hold them",
    ),
    Loss("finish reasons `error` and `cut`", "response", "no stop reason; decoding gives `cut`"),
    Loss("finish reason `content_filter`", "response", "`refusal`"),
    Loss("the provider's own finish word and usage object", "response", "this API's word and object"),
    Loss("the explanation of a finish other than `refusal`", "response", "left out"),
    Loss("what the response held before a fault", "response", "left out of bodies: the body is an error object"),
    Loss("repairs", "response", "left out"),
)


TRAITS = FamilyTraits(
    begins_with_user=True,  # "first message must use the user role"
    refuses_blank_text=True,  # "text content blocks must contain non-whitespace text"
    refuses_trailing_reasoning=True,  # "the final block in an assistant message cannot be `thinking`"
    refused_in_ids="[^A-Za-z0-9_-]",  # the API's pattern for `tool_use.id` is [a-zA-Z0-9_-]+
    id_characters=64,  # Bedrock's `toolUseId` ends there
    # Calls and results in the history of a request without `tools` are refused (LiteLLM and Bedrock refuse it before it leaves).
    wants_called_tools=True,
    # Some of the provider's own tools may stand in front only. If no tool stands in front, a tool behind the messages makes the
    # model read everything again (API docs, "Define tools in a message").
    plain_tools_behind=True,
    pause_goes_back_last=True,  # `pause_turn`, by design of the API: the one exception to promise end:no-prefill
    caches_within_messages=True,  # block by block (API docs, "Prompt caching")
    adds_reasoning_budget=True,  # `max_tokens` holds both
    may_refuse_behind=True,
    hands_out_objects="bodies",
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=MessagesStreamDecoder,
    decode_body=decode_body,
    stream_encoder=MessagesStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=TRAITS,
    tool_names=re.compile(r"[A-Za-z0-9_-]{1,128}"),  # API reference, `tools.name`
    models_call=HttpCall(  # without a size, a page has 20 models
        path="/v1/models?limit=1000", body=b"", headers=(("anthropic-version", API_VERSION),), method="GET"
    ),
    version_in="paths",
    shows_thinking=True,
    with_binding=with_binding,
)

__all__ = ["FAMILY"]
