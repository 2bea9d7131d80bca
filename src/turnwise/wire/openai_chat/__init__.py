"""The Chat Completions family, OpenAI's and that of everybody who speaks it: what it offers, and what it cannot carry."""

import re

from turnwise.vocab import FamilyTraits
from turnwise.wire.family import Family, HttpCall, Loss
from turnwise.wire.openai_chat.endings import FINISH_REASONS
from turnwise.wire.openai_chat.faults import decode_fault, encode_fault
from turnwise.wire.openai_chat.request import encode_request
from turnwise.wire.openai_chat.request_reading import decode_request
from turnwise.wire.openai_chat.response import ChatStreamEncoder, decode_body, encode_body
from turnwise.wire.openai_chat.stream import ChatStreamDecoder

# `tests/wire` proves that nothing else is lost.


LOSSES = (
    Loss(
        "order of the parts of an assistant message",
        "both",
        "reasoning, text, refusal, calls; the parts of each kind are joined without a separator",
    ),
    Loss("empty texts of an assistant message", "both", "left out"),
    Loss("reasoning", "request", "the field that the profile names; left out if the profile names none"),
    Loss("opaque data of other families", "both", "left out"),
    Loss("provider items of other families, and tools that run on the provider's server", "request", "left out"),
    Loss("citations", "request", "left out: the API takes no annotations back"),
    Loss("files in a tool result", "request", "a user message after the results; it names the call"),
    Loss("media type of an image by URL", "both", "`image/*`"),
    Loss("media type of a video by URL", "both", "`video/*`"),
    Loss("media type of another file by URL, or of a file by id", "both", "`application/octet-stream`"),
    Loss("name of an image, of a video, of WAV or MP3 data, or of a file by id", "both", "left out"),
    Loss(
        "files in an assistant message",
        "request",
        "left out: the API takes none there; a line of text if the message holds nothing else",
    ),
    Loss("`is_error` of a tool result", "request", "left out"),
    Loss("tool name in a result whose call is not in the request", "request", "an empty name"),
    Loss("state and arguments of a call that is not complete", "request", "a complete call with the arguments `{}`"),
    Loss("tool messages that follow each other", "request", "one message"),
    Loss("a system message at the start of `messages`", "request", "an entry of `Request.system`"),
    Loss("several leading system texts", "request", "one message, with an empty line between the texts"),
    Loss(
        "a later system text, where the server takes none there",
        "request",
        "a user message that begins with `[System message]`",
    ),
    Loss(
        "several texts of one message, unless the server is OpenAI's",
        "request",
        "one text, with an empty line between the texts",
    ),
    Loss(
        "a message without a text, unless the server is OpenAI's",
        "request",
        "the text `(no text)`, unless the message has calls",
    ),
    Loss("a call without a signature, where the server wants one", "request", "the stand-in that Google names"),
    Loss(
        "neighbours of one role without calls, with models that want user and assistant by turns",
        "request",
        "one message",
    ),
    Loss(
        "a tool choice that the server refuses", "request", "a user message behind the others that asks for it in words"
    ),
    Loss("tool choice and `parallel_tool_calls` without tools", "request", "left out: the API refuses them"),
    Loss("finish reason `pause`", "response", "`stop`"),
    Loss("finish reason `refusal` if the response holds no refusal", "response", "`content_filter`"),
    Loss("finish reason `stop` if the response holds a refusal", "response", "`refusal`"),
    Loss(
        "the provider's own finish word, if it contradicts the finish reason or comes from another family",
        "response",
        "this family's word for the finish reason",
    ),
    Loss(
        "the provider's own usage object, if it contradicts the usage or comes from another family",
        "response",
        "this family's object for the usage",
    ),
    Loss("a second start of the same response", "response", "the first start, which is already written"),
    Loss("a final part that differs from its pieces", "response", "the pieces, which are already written"),
    Loss("the provider's explanation of the finish", "response", "left out"),
    Loss("repairs", "response", "left out"),
    Loss("the kind of a fault", "response", "left out; the status and the code of the fault remain"),
)


TRAITS = FamilyTraits(
    # "Image URLs are only allowed for messages with role 'user', but this message with role 'system' contains an image URL."
    refuses_system_files=True,
    # "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40" (langmanus#119,
    # opencode#12653, fastllm#45). vLLM's own ids have 46. Servers that make longer ids take any, so a session that moves between
    # them loses nothing by the shorter ones.
    id_characters=40,
    # LiteLLM hides Gemini's signature in a call's id and wants it back there (litellm#16895): cut, the next request fails.
    carried_in_ids="__thought__",
    has_dialects=True,
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
    traits=TRAITS,
    tool_names=re.compile(r"[A-Za-z0-9_-]{1,64}"),  # API reference, function names
    models_call=HttpCall(path="/models", body=b"", method="GET"),
)
