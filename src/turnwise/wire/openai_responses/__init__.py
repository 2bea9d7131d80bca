"""The OpenAI Responses API (`POST /responses`), and those who speak it: Azure, xAI, the Codex backend, OpenRouter, vLLM,
LM Studio: what it offers, and what it cannot carry."""

from turnwise.wire.family import Family, Loss
from turnwise.wire.openai_responses.endings import FINISH_REASONS
from turnwise.wire.openai_responses.faults import decode_fault, encode_fault
from turnwise.wire.openai_responses.parts import NAME
from turnwise.wire.openai_responses.request import encode_request
from turnwise.wire.openai_responses.request_reading import decode_request
from turnwise.wire.openai_responses.response import ResponsesStreamEncoder, decode_body, encode_body
from turnwise.wire.openai_responses.stream import ResponsesStreamDecoder

LOSSES = (
    Loss(
        what="`stop`, `seed`, `reasoning_tokens`", direction="request", becomes="left out: the API has no such fields"
    ),
    Loss(what="`is_error` of a tool result", direction="request", becomes="left out; the text says what failed"),
    Loss(what="tool name in a result whose call is not in the request", direction="request", becomes="an empty name"),
    Loss(what="arguments of a call that is not complete", direction="request", becomes="`{}`"),
    Loss(what="name of an image, or of a file by URL or id", direction="request", becomes="left out"),
    Loss(
        what="missing name of a file that is sent as data",
        direction="request",
        becomes="`file`: the API insists on a name",
    ),
    Loss(
        what="media type of a file by URL or id", direction="request", becomes="`image/*` or `application/octet-stream`"
    ),
    Loss(what="files in an assistant message", direction="request", becomes="left out"),
    Loss(
        what="reasoning without encrypted content and without raw content, if the API does not store responses",
        direction="request",
        becomes="left out: the API answers 404 to a reference that it did not store",
    ),
    Loss(
        what="refusals and citations in parts without an item id",
        direction="request",
        becomes="plain text of the assistant",
    ),
    Loss(what="citations of another family, and citations in a user's text", direction="both", becomes="left out"),
    Loss(
        what="assistant messages, or tool messages, that follow each other", direction="request", becomes="one message"
    ),
    Loss(
        what="a system message before all other messages", direction="request", becomes="an entry of `Request.system`"
    ),
    Loss(what="empty messages", direction="request", becomes="left out"),
    Loss(
        what="parts of an assistant message without an item id",
        direction="response",
        becomes="turnwise makes up the ids",
    ),
    Loss(
        what="an item id that comes after the first piece of its part",
        direction="response",
        becomes="the id that is already written",
    ),
    Loss(
        what="order of server-side items that run at the same time",
        direction="response",
        becomes="the order in which they ended",
    ),
    Loss(what="tool choice and `parallel_tool_calls` without tools", direction="request", becomes="left out"),
    Loss(
        what="finish reasons `pause`, `refusal` and `tool_calls`",
        direction="response",
        becomes="`completed`; decoding finds the reason in the items",
    ),
    Loss(what="finish reason `cut`", direction="response", becomes="`incomplete` without a reason"),
    Loss(
        what="free-form tools, calls and results, if the endpoint does not take them",
        direction="request",
        becomes="JSON with one string parameter `input`",
    ),
    Loss(what="repairs, and the explanation of the finish", direction="response", becomes="left out"),
    Loss(
        what="files in a response",
        direction="response",
        becomes="left out: this API gives generated images as server-side items",
    ),
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
)
