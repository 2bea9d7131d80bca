"""Google's Gemini API (`generateContent`, `streamGenerateContent`), at the Developer API and at Vertex AI: what it offers, and
what it cannot carry."""

from turnwise.vocab import Request
from turnwise.wire.family import Family, Loss, StreamDecoder, StreamEncoder
from turnwise.wire.gemini.endings import FINISH_REASONS
from turnwise.wire.gemini.faults import decode_fault, encode_fault
from turnwise.wire.gemini.parts import NAME
from turnwise.wire.gemini.request import encode_request
from turnwise.wire.gemini.request_reading import decode_request
from turnwise.wire.gemini.response import GeminiStreamEncoder, decode_body, encode_body
from turnwise.wire.gemini.stream import GeminiStreamDecoder
from turnwise.wire.limits import Limits
from turnwise.wire.profiles import Profile

# Tested: encoding and decoding loses this and nothing else.


LOSSES: tuple[Loss, ...] = (
    Loss(
        what="call ids, if the profile does not send them",
        direction="request",
        becomes="left out: decoding pairs calls and results by name and order, and makes new ids",
    ),
    Loss(what="arguments of a call that are not complete", direction="request", becomes="`{}`"),
    Loss(
        what="complete arguments that are JSON, but not an object; free-form arguments",
        direction="request",
        becomes='`{"input": ...}`',
    ),
    Loss(
        what="a call whose arguments are not complete JSON",
        direction="response",
        becomes="left out, as the API itself does",
    ),
    Loss(what="white space between the JSON tokens of arguments", direction="response", becomes="left out"),
    Loss(what="a finish word that came as a number", direction="response", becomes="the word for this number"),
    Loss(
        what="the finish word of another family",
        direction="response",
        becomes="Gemini's word for the same finish reason",
    ),
    Loss(what="free-form tools", direction="request", becomes="a JSON tool with one string parameter `input`"),
    Loss(
        what="a refusal",
        direction="both",
        becomes="text; `promptFeedback` if it is the whole response and the finish reason is `content_filter`",
    ),
    Loss(what="finish reason `refusal`", direction="response", becomes="`SAFETY`; decoding gives `content_filter`"),
    Loss(what="finish reason `pause`", direction="response", becomes="`STOP`"),
    Loss(what="system messages inside the conversation", direction="request", becomes="user messages"),
    Loss(what="order of tool results", direction="request", becomes="the order of their calls"),
    Loss(what="tool messages that follow each other", direction="request", becomes="one message"),
    Loss(what="messages without any part that Gemini takes", direction="request", becomes="left out"),
    Loss(what="several texts in one result", direction="request", becomes="one text, joined by newlines"),
    Loss(what="order of texts and files in one result", direction="request", becomes="texts first"),
    Loss(what="empty text without opaque data", direction="both", becomes="left out"),
    Loss(what="plain texts that follow each other", direction="response", becomes="one text"),
    Loss(what="citations of texts in requests", direction="request", becomes="left out"),
    Loss(
        what="the text that a citation belongs to, if there are several texts",
        direction="response",
        becomes="the last text",
    ),
    Loss(what="search queries, search entry point, retrieval metadata", direction="response", becomes="left out"),
    Loss(what="safety ratings, logprobs", direction="response", becomes="left out"),
    Loss(what="names of files", direction="both", becomes="left out: the Gemini API refuses `displayName`"),
    Loss(
        what="media types with `*`, such as `image/*`",
        direction="request",
        becomes="guessed from the bytes; left out if the file is given by URL or id",
    ),
    Loss(
        what="a file by URL or by id",
        direction="request",
        becomes="a file by id if the address is Google's own (such as `gs://...`), otherwise a file by URL",
    ),
    Loss(what="`strict` of tools", direction="request", becomes="left out"),
    Loss(what="order of declared and server-side tools", direction="request", becomes="declared tools first"),
    Loss(what="tool choice without declared tools", direction="request", becomes="left out"),
    Loss(what="`parallel_tool_calls`", direction="request", becomes="left out: Gemini has no such field"),
    Loss(what="name and strictness of the output schema", direction="request", becomes="left out"),
    Loss(
        what="reasoning effort, if the model takes a budget in tokens instead",
        direction="request",
        becomes="the budget that Google's compatibility table gives for this effort",
    ),
    Loss(what="cache writes in usage", direction="response", becomes="counted as tokens of the prompt"),
    Loss(what="opaque data of other families", direction="both", becomes="left out"),
)


def stream_decoder(profile: Profile, limits: Limits) -> StreamDecoder:
    return GeminiStreamDecoder(limits)


def stream_encoder(request: Request) -> StreamEncoder:
    return GeminiStreamEncoder(request)


FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=stream_decoder,
    decode_body=decode_body,
    stream_encoder=stream_encoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    compares_events=True,
)
