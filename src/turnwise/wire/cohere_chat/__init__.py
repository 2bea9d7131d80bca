"""Cohere's v2 API (`/v2/chat`): what it offers, and what it cannot carry. An upstream only: no client of the
gateway speaks it."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.cohere_chat.answers import (
    FINISH_REASONS,
    CohereStreamEncoder,
    decode_body,
    encode_body,
    encode_fault,
    stream_decoder,
)
from turnwise.wire.cohere_chat.request import NAME, decode_request, encode_request
from turnwise.wire.family import Family, HttpCall, Loss
from turnwise.wire.openai_chat.faults import decode_fault

LOSSES: tuple[Loss, ...] = (
    Loss("order of texts, plans and calls", "both", "texts and reasoning, the plan, calls"),
    Loss("several plain texts of one message or result", "request", "one text, with an empty line between the texts"),
    Loss("several leading system texts", "request", "one message, with an empty line between the texts"),
    Loss("tool messages that follow each other", "request", "one message"),
    Loss("empty texts and reasoning", "both", "left out"),
    Loss("a refusal", "both", "text"),
    Loss("citations", "request", "left out"),
    Loss("the text that a citation belongs to, if there are several texts", "response", "the last text so far"),
    Loss("opaque data, provider items of other families", "both", "left out"),
    Loss("files that are no images, images by id, and files in a result", "request", "a line of text"),
    Loss("name of a file, media type of an image by URL", "request", "left out"),
    Loss("tool name and `is_error` of a result", "request", "left out"),
    Loss("white space between the JSON tokens of a result that is an object", "request", "as it was, in a document"),
    Loss("arguments of a call that are not complete", "request", "`{}`"),
    Loss("free-form tools and their arguments", "both", "a JSON tool with one string parameter `input`"),
    Loss("`strict` of tools; name and strictness of the output schema", "request", "left out"),
    Loss("output schema beside tools", "request", "instructions in words: the API takes not both"),
    Loss("the name of a tool that must be called", "request", "`REQUIRED`, and a user message that names the tool"),
    Loss("`parallel_tool_calls`", "request", "left out: the API has no such field"),
    Loss("reasoning effort", "request", "`thinking` enabled or disabled; a budget stays"),
    Loss("finish reasons without a word", "response", "`COMPLETE`"),
    Loss("cache writes, the model's name", "response", "left out"),
    Loss("the kind of a fault", "response", "left out; its words remain"),
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=stream_decoder,
    decode_body=decode_body,
    stream_encoder=CohereStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=FamilyTraits(),
    tool_names=re.compile(r"[A-Za-z0-9_-]{1,64}"),  # no rule is documented: what every API takes
    models_call=HttpCall(path="/v1/models?page_size=1000&endpoint=chat", body=b"", method="GET"),
    version_in="paths",
)
