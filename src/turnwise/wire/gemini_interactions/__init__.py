"""Google's Interactions API (`POST /interactions`): what it offers, and what it cannot carry."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import Family, HttpCall, Loss
from turnwise.wire.gemini.faults import decode_fault
from turnwise.wire.gemini_interactions.endings import FINISH_REASONS
from turnwise.wire.gemini_interactions.faults import encode_fault
from turnwise.wire.gemini_interactions.parts import NAME
from turnwise.wire.gemini_interactions.request import encode_request
from turnwise.wire.gemini_interactions.request_reading import decode_request
from turnwise.wire.gemini_interactions.response import InteractionsStreamEncoder, encode_body
from turnwise.wire.gemini_interactions.stream import InteractionsStreamDecoder, decode_body

LOSSES = (
    Loss("reasoning without a signature", "request", "left out: the API refuses it"),
    Loss(
        "`reasoning_tokens`, `parallel_tool_calls`, `strict` of tools",
        "request",
        "left out: the API has no such fields",
    ),
    Loss("reasoning effort `none` and `max`", "request", "`minimal` and `xhigh`, the nearest that the API has"),
    Loss("several system texts", "request", "one text, joined by blank lines"),
    Loss("system messages inside the conversation", "request", "user messages"),
    Loss("arguments of a call that are not complete", "request", "`{}`"),
    Loss("complete arguments that are JSON, but not an object; free-form arguments", "request", '`{"input": ...}`'),
    Loss(
        "a call whose arguments are not a complete JSON object",
        "response",
        "left out of a body, as the API hands out objects",
    ),
    Loss("white space between the JSON tokens of arguments", "response", "left out"),
    Loss("free-form tools", "request", "a JSON tool with one string parameter `input`"),
    Loss("a refusal", "both", "text"),
    Loss("finish reason `content_filter`", "response", "`failed`; decoding gives `error`"),
    Loss("finish reasons `refusal` and `pause`", "response", "`completed`"),
    Loss("finish reason `cut`", "response", "a body that is `incomplete`; a stream without an end"),
    Loss("explanation of the finish", "response", "left out"),
    Loss(
        "`model_output` steps that follow each other",
        "both",
        "one step in a request, and one for each part in a stream",
    ),
    Loss("assistant messages, or tool messages, that follow each other", "request", "one message"),
    Loss("empty text, and messages without any part that the API takes", "both", "left out"),
    Loss("names of files", "both", "left out: the API has no such field"),
    Loss("media types with `*`, such as `image/*`", "request", "guessed from the bytes; left out for a URL or id"),
    Loss(
        "a file by URL or by id",
        "request",
        "a file by id if the address is Google's own (such as `gs://...`), otherwise a file by URL",
    ),
    Loss("tool choice without tools", "request", "left out"),
    Loss("name and strictness of the output schema", "request", "left out"),
    Loss("cache writes in usage", "response", "counted as tokens of the input"),
    Loss("citations and opaque data of other families", "both", "left out"),
    Loss("opaque data of a text, and of a call after its first piece", "response", "left out of a stream"),
)

TRAITS = FamilyTraits(
    hands_out_objects="bodies",
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=InteractionsStreamDecoder,
    decode_body=decode_body,
    stream_encoder=InteractionsStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=TRAITS,
    tool_names=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"),  # as of the rest of the Gemini API
    models_call=HttpCall(path="/models?pageSize=1000", body=b"", method="GET"),
    version_unsaid="/v1beta",
)
