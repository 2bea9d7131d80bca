"""Google's Gemini API (`generateContent`, `streamGenerateContent`), at the Developer API and at Vertex AI: what it offers, and
what it cannot carry."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import Family, HttpCall, Loss, StreamDecoder
from turnwise.wire.gemini.endings import FINISH_REASONS
from turnwise.wire.gemini.faults import decode_fault, encode_fault
from turnwise.wire.gemini.parts import NAME
from turnwise.wire.gemini.request import encode_request
from turnwise.wire.gemini.request_reading import decode_request
from turnwise.wire.gemini.response import GeminiStreamEncoder, decode_body, encode_body
from turnwise.wire.gemini.stream import GeminiStreamDecoder
from turnwise.wire.profiles import Limits, Profile

# Tested: encoding and decoding loses this and nothing else.


LOSSES: tuple[Loss, ...] = (
    Loss(
        "call ids, if the profile does not send them",
        "request",
        "left out: decoding pairs calls and results by name and order, and makes new ids",
    ),
    Loss("arguments of a call that are not complete", "request", "`{}`"),
    Loss("complete arguments that are JSON, but not an object; free-form arguments", "request", '`{"input": ...}`'),
    Loss("a call whose arguments are not complete JSON", "response", "left out, as the API itself does"),
    Loss("white space between the JSON tokens of arguments", "response", "left out"),
    Loss("a finish word that came as a number", "response", "the word for this number"),
    Loss("the finish word of another family", "response", "Gemini's word for the same finish reason"),
    Loss("free-form tools", "request", "a JSON tool with one string parameter `input`"),
    Loss(
        "a refusal",
        "both",
        "text; `promptFeedback` if it is the whole response and the finish reason is `content_filter`",
    ),
    Loss("finish reason `refusal`", "response", "`SAFETY`; decoding gives `content_filter`"),
    Loss("finish reason `pause`", "response", "`STOP`"),
    Loss("system messages inside the conversation", "request", "user messages"),
    Loss("order of tool results", "request", "the order of their calls"),
    Loss("tool messages that follow each other", "request", "one message"),
    Loss("messages without any part that Gemini takes", "request", "left out"),
    Loss("several texts in one result", "request", "one text, joined by newlines"),
    Loss("order of texts and files in one result", "request", "texts first"),
    Loss("empty text without opaque data", "both", "left out"),
    Loss("plain texts that follow each other", "response", "one text"),
    Loss("citations of texts in requests", "request", "left out"),
    Loss("the text that a citation belongs to, if there are several texts", "response", "the last text"),
    Loss("search queries, search entry point, retrieval metadata", "response", "left out"),
    Loss("safety ratings, logprobs", "response", "left out"),
    Loss("names of files", "both", "left out: the Gemini API refuses `displayName`"),
    Loss(
        "media types with `*`, such as `image/*`",
        "request",
        "guessed from the bytes; left out if the file is given by URL or id",
    ),
    Loss(
        "a file by URL or by id",
        "request",
        "a file by id if the address is Google's own (such as `gs://...`), otherwise a file by URL",
    ),
    Loss("`strict` of tools", "request", "left out"),
    Loss("order of declared and server-side tools", "request", "declared tools first"),
    Loss("tool choice without declared tools", "request", "left out"),
    Loss("`parallel_tool_calls`", "request", "left out: Gemini has no such field"),
    Loss("name and strictness of the output schema", "request", "left out"),
    Loss(
        "reasoning effort, if the model takes a budget in tokens instead",
        "request",
        "the budget that Google's compatibility table gives for this effort",
    ),
    Loss("cache writes in usage", "response", "counted as tokens of the prompt"),
    Loss("opaque data of other families", "both", "left out"),
)


def stream_decoder(profile: Profile, limits: Limits) -> StreamDecoder:
    return GeminiStreamDecoder(limits)


TRAITS = FamilyTraits(
    # "function call turn comes immediately after a user turn or after a function response turn"
    begins_with_user=True,
    joins_neighbours=True,
    caches_within_messages=True,  # token by token (API docs, "Context caching": a common prefix of requests)
    hands_out_objects="always",
)

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=stream_decoder,
    decode_body=decode_body,
    stream_encoder=GeminiStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    traits=TRAITS,
    tool_names=re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"),  # google-genai 3.6 types.py, `FunctionDeclaration.name`
    models_call=HttpCall(path="/models?pageSize=1000", body=b"", method="GET"),  # without a size, a page has 50
    version_unsaid="/v1beta",  # the one of Google's own SDKs
    compares_events=True,
)
