"""The Anthropic Messages API, and what speaks it (Bedrock's and Vertex's Claude, compatible servers): what it offers, and what it
cannot carry."""

from turnwise.wire.anthropic_messages.endings import FINISH_REASONS
from turnwise.wire.anthropic_messages.faults import decode_fault, encode_fault
from turnwise.wire.anthropic_messages.parts import NAME
from turnwise.wire.anthropic_messages.request import encode_request
from turnwise.wire.anthropic_messages.request_reading import decode_request
from turnwise.wire.anthropic_messages.response import MessagesStreamEncoder, decode_body, encode_body
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.anthropic_messages.thinking import with_binding
from turnwise.wire.family import Family, Loss

# Tested: encoding and decoding loses this and nothing else.


LOSSES: tuple[Loss, ...] = (
    Loss(what="seed", direction="request", becomes="left out"),
    Loss(what="name and strictness of the output schema", direction="request", becomes="the schema alone"),
    Loss(what="reasoning effort `minimal`", direction="request", becomes="`low`"),
    Loss(what="a missing output limit", direction="request", becomes="`max_tokens`: the API insists on it"),
    Loss(
        what="thinking with a forced tool choice, or with an output limit of 1,024 tokens or less",
        direction="request",
        becomes="left out: the API refuses both together",
    ),
    Loss(
        what="a thinking budget that reaches the output limit",
        direction="request",
        becomes="one token less than the limit",
    ),
    Loss(what="temperature together with thinking", direction="request", becomes="left out: the API takes only 1"),
    Loss(what="tool choice without tools", direction="request", becomes="left out: the API refuses it"),
    Loss(what="`parallel_tool_calls` with the tool choice `none`", direction="request", becomes="left out"),
    Loss(what="free-form tools", direction="request", becomes="a JSON tool with one string parameter `input`"),
    Loss(what="free-form calls", direction="both", becomes='a JSON call: {"input": text}'),
    Loss(
        what="`is_error` of a tool result without text, or with a file",
        direction="request",
        becomes="left out: the API refuses it",
    ),
    Loss(what="the mark that a result belongs to a free-form call", direction="request", becomes="left out"),
    Loss(what="arguments of a call that is not complete", direction="request", becomes="`{}`"),
    Loss(what="the reason why a call is not complete", direction="both", becomes="left out"),
    Loss(
        what="characters of a call id other than `a-z`, `A-Z`, `0-9`, `_` and `-`",
        direction="both",
        becomes="`_`; a short hash of the id is added, the same in the call and in its result",
    ),
    Loss(what="tool name in a result whose call is not in the request", direction="request", becomes="an empty name"),
    Loss(
        what="messages of one role that follow each other",
        direction="request",
        becomes="one message, tool results first",
    ),
    Loss(
        what="system messages inside the conversation, if `mid_system` is off in the profile",
        direction="request",
        becomes="user messages",
    ),
    Loss(what="messages in which nothing can be sent", direction="request", becomes="left out"),
    Loss(what="empty texts", direction="both", becomes="left out: the API refuses them"),
    Loss(
        what="texts of white space only, except next to other parts of an assistant message",
        direction="request",
        becomes="left out: the API refuses them",
    ),
    Loss(
        what="white space at the end of the last message, if it is the assistant's",
        direction="request",
        becomes="cut off: the API refuses it",
    ),
    Loss(
        what="reasoning without this API's signature",
        direction="request",
        becomes="left out: the API refuses it",
    ),
    Loss(what="refusals", direction="both", becomes="text"),
    Loss(what="files in assistant messages", direction="both", becomes="left out"),
    Loss(what="audio and video", direction="request", becomes="a line of text that says what was left out"),
    Loss(what="name of an image", direction="request", becomes="left out"),
    Loss(what="media type of a text document", direction="request", becomes="`text/plain`"),
    Loss(
        what="media type of a file by URL or id",
        direction="request",
        becomes="`image/*`, `application/pdf` (URL) or `application/*` (id)",
    ),
    Loss(
        what="opaque data, citations and provider items of other families, and their server-side tools",
        direction="both",
        becomes="left out",
    ),
    Loss(
        what="opaque fields that come after the start of their text or call",
        direction="response",
        becomes="left out of streams: only the start of a block can hold them",
    ),
    Loss(what="finish reasons `error` and `cut`", direction="response", becomes="no stop reason; decoding gives `cut`"),
    Loss(what="finish reason `content_filter`", direction="response", becomes="`refusal`"),
    Loss(
        what="the provider's own finish word and usage object",
        direction="response",
        becomes="this API's word and object",
    ),
    Loss(what="the explanation of a finish other than `refusal`", direction="response", becomes="left out"),
    Loss(
        what="what the response held before a fault",
        direction="response",
        becomes="left out of bodies: the body is an error object",
    ),
    Loss(what="repairs", direction="response", becomes="left out"),
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
    with_binding=with_binding,
)

__all__ = ["FAMILY"]
