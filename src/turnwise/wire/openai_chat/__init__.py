"""The Chat Completions family, OpenAI's and that of everybody who speaks it: what it offers, and what it cannot carry."""

from turnwise.wire.family import Family, Loss
from turnwise.wire.openai_chat.endings import FINISH_REASONS
from turnwise.wire.openai_chat.faults import decode_fault, encode_fault
from turnwise.wire.openai_chat.request import encode_request
from turnwise.wire.openai_chat.request_reading import decode_request
from turnwise.wire.openai_chat.response import ChatStreamEncoder, decode_body, encode_body
from turnwise.wire.openai_chat.stream import ChatStreamDecoder

# `tests/wire` proves that nothing else is lost.


LOSSES = (
    Loss(
        what="order of the parts of an assistant message",
        direction="both",
        becomes="reasoning, text, refusal, calls; the parts of each kind are joined without a separator",
    ),
    Loss(what="empty texts of an assistant message", direction="both", becomes="left out"),
    Loss(
        what="reasoning",
        direction="request",
        becomes="the field that the profile names; left out if the profile names none",
    ),
    Loss(what="opaque data of other families", direction="both", becomes="left out"),
    Loss(
        what="provider items of other families, and tools that run on the provider's server",
        direction="request",
        becomes="left out",
    ),
    Loss(what="citations", direction="request", becomes="left out: the API takes no annotations back"),
    Loss(
        what="files in a tool result",
        direction="request",
        becomes="a user message after the results; it names the call",
    ),
    Loss(what="media type of an image by URL", direction="both", becomes="`image/*`"),
    Loss(what="media type of a video by URL", direction="both", becomes="`video/*`"),
    Loss(
        what="media type of another file by URL, or of a file by id",
        direction="both",
        becomes="`application/octet-stream`",
    ),
    Loss(
        what="name of an image, of a video, of WAV or MP3 data, or of a file by id",
        direction="both",
        becomes="left out",
    ),
    Loss(
        what="files in an assistant message",
        direction="request",
        becomes="left out: the API takes none there; a line of text if the message holds nothing else",
    ),
    Loss(what="`is_error` of a tool result", direction="request", becomes="left out"),
    Loss(what="tool name in a result whose call is not in the request", direction="request", becomes="an empty name"),
    Loss(
        what="state and arguments of a call that is not complete",
        direction="request",
        becomes="a complete call with the arguments `{}`",
    ),
    Loss(what="tool messages that follow each other", direction="request", becomes="one message"),
    Loss(
        what="a system message at the start of `messages`", direction="request", becomes="an entry of `Request.system`"
    ),
    Loss(
        what="several leading system texts",
        direction="request",
        becomes="one message, with an empty line between the texts",
    ),
    Loss(
        what="a later system text, where the server takes none there",
        direction="request",
        becomes="a user message that begins with `[System message]`",
    ),
    Loss(
        what="several texts of one message, unless the server is OpenAI's",
        direction="request",
        becomes="one text, with an empty line between the texts",
    ),
    Loss(
        what="a message without a text, unless the server is OpenAI's",
        direction="request",
        becomes="the text `(no text)`, unless the message has calls",
    ),
    Loss(
        what="a call without a signature, where the server wants one",
        direction="request",
        becomes="the stand-in that Google names",
    ),
    Loss(
        what="neighbours of one role without calls, with models that want user and assistant by turns",
        direction="request",
        becomes="one message",
    ),
    Loss(
        what="a tool choice that the server refuses",
        direction="request",
        becomes="a user message behind the others that asks for it in words",
    ),
    Loss(
        what="tool choice and `parallel_tool_calls` without tools",
        direction="request",
        becomes="left out: the API refuses them",
    ),
    Loss(what="finish reason `pause`", direction="response", becomes="`stop`"),
    Loss(
        what="finish reason `refusal` if the response holds no refusal",
        direction="response",
        becomes="`content_filter`",
    ),
    Loss(what="finish reason `stop` if the response holds a refusal", direction="response", becomes="`refusal`"),
    Loss(
        what="the provider's own finish word, if it contradicts the finish reason or comes from another family",
        direction="response",
        becomes="this family's word for the finish reason",
    ),
    Loss(
        what="the provider's own usage object, if it contradicts the usage or comes from another family",
        direction="response",
        becomes="this family's object for the usage",
    ),
    Loss(
        what="a second start of the same response",
        direction="response",
        becomes="the first start, which is already written",
    ),
    Loss(
        what="a final part that differs from its pieces",
        direction="response",
        becomes="the pieces, which are already written",
    ),
    Loss(what="the provider's explanation of the finish", direction="response", becomes="left out"),
    Loss(what="repairs", direction="response", becomes="left out"),
    Loss(
        what="the kind of a fault",
        direction="response",
        becomes="left out; the status and the code of the fault remain",
    ),
)


FAMILY = Family(
    name="openai_chat",
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=ChatStreamDecoder,
    decode_body=decode_body,
    stream_encoder=ChatStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
)
