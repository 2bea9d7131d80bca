"""Gemini's words and ours, as data."""

from turnwise.vocab import FinishReason
from turnwise.wire.family import Loss

NAME = "gemini"

# `Candidate.finishReason`. Sources: the `FinishReason` enums of the Gemini API reference, of Vertex AI's, and of the
# official Python SDK. STOP is also what the API says when it called functions; the decoder looks at the calls too.
# The numbers are the same enum as gRPC-style clients receive it (`enum-encoding=int`). From 6 on the two APIs count
# differently (9 is SPII here and MALFORMED_FUNCTION_CALL there), so only what both agree on stands here.
FINISH_REASONS: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    # A per-request limit; going on takes a `continuation_token` that is no part of the content.
    "CONTINUATION": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "LANGUAGE": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTER,
    "ESCALATION": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "IMAGE_RECITATION": FinishReason.CONTENT_FILTER,
    "JAILBREAK": FinishReason.CONTENT_FILTER,
    "BLOCKED_REASON_UNSPECIFIED": FinishReason.CONTENT_FILTER,
    "PUP_LIMITED_DISABLED": FinishReason.ERROR,
    "IMAGE_OTHER": FinishReason.ERROR,
    "NO_IMAGE": FinishReason.ERROR,
    "OTHER": FinishReason.ERROR,
    "MALFORMED_FUNCTION_CALL": FinishReason.ERROR,
    "MALFORMED_RESPONSE": FinishReason.ERROR,
    "UNEXPECTED_TOOL_CALL": FinishReason.ERROR,
    "TOO_MANY_TOOL_CALLS": FinishReason.ERROR,
    "MISSING_THOUGHT_SIGNATURE": FinishReason.ERROR,
    "FINISH_REASON_UNSPECIFIED": FinishReason.CUT,
    "1": FinishReason.STOP,
    "2": FinishReason.LENGTH,
    "3": FinishReason.CONTENT_FILTER,
    "4": FinishReason.CONTENT_FILTER,
    "5": FinishReason.ERROR,
    "6": FinishReason.CONTENT_FILTER,
    "7": FinishReason.CONTENT_FILTER,
    "8": FinishReason.CONTENT_FILTER,
}

# `promptFeedback.blockReason`: the prompt was refused, no candidate follows.
BLOCK_REASONS = frozenset(
    {
        "SAFETY",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
        "JAILBREAK",
        "BLOCKED_REASON_UNSPECIFIED",
    }
)

# What the encoder writes for a reason of ours that came with no word of Gemini's. None: nothing is written.
FINISH_WORDS: dict[FinishReason, str | None] = {
    FinishReason.STOP: "STOP",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.REFUSAL: "SAFETY",
    FinishReason.CONTENT_FILTER: "SAFETY",
    FinishReason.PAUSE: "STOP",
    FinishReason.ERROR: "OTHER",
    FinishReason.CUT: None,
}


def finish_of(word: str, *, called: bool) -> FinishReason:
    """Our reason for Gemini's word. New words have so far meant blocks or failures, so an unknown one is an error."""
    reason = FINISH_REASONS.get(word, FinishReason.ERROR)
    return FinishReason.TOOL_CALLS if called and reason is FinishReason.STOP else reason


def word_of(reason: FinishReason, *, provider_reason: str | None) -> str | None:
    """Gemini's word for our reason: the provider's own where it is one of Gemini's and means the same."""
    if provider_reason is not None and not provider_reason.isdigit():
        known = FINISH_REASONS.get(provider_reason)
        if known is reason or (known is FinishReason.STOP and reason is FinishReason.TOOL_CALLS):
            return provider_reason
    return FINISH_WORDS[reason]


LOSSES: tuple[Loss, ...] = (
    Loss(
        what="call ids where the profile does not send them",
        direction="request",
        becomes="pairs by name and order; decoding makes ids again",
    ),
    Loss(
        what="the arguments of a call that are not complete, or no JSON object",
        direction="request",
        becomes='`{}`; complete JSON of another type and free-form text become `{"input": ...}`',
    ),
    Loss(
        what="a call whose arguments are not complete JSON", direction="response", becomes="left out, as the API does"
    ),
    Loss(what="white space between the tokens of arguments", direction="response", becomes="none"),
    Loss(what="a finish word that came as a number", direction="response", becomes="the word"),
    Loss(what="the finish word of another family", direction="response", becomes="Gemini's word for the same reason"),
    Loss(what="free-form tools", direction="request", becomes="a JSON tool with one string parameter `input`"),
    Loss(what="refusal", direction="both", becomes="text; alone in a filtered answer: `promptFeedback`"),
    Loss(what="`refusal` as finish reason", direction="response", becomes="`SAFETY`, read as content_filter"),
    Loss(what="`pause` as finish reason", direction="response", becomes="`STOP`"),
    Loss(what="system messages inside the conversation", direction="request", becomes="user messages"),
    Loss(what="the order of results", direction="request", becomes="the order of their calls"),
    Loss(what="bounds between tool messages that follow each other", direction="request", becomes="one message"),
    Loss(what="messages without any part that Gemini takes", direction="request", becomes="left out"),
    Loss(what="bounds between the texts of one result", direction="request", becomes="one text, joined by newlines"),
    Loss(what="the order of texts and files in one result", direction="request", becomes="text first"),
    Loss(what="empty text without opaque data", direction="both", becomes="left out"),
    Loss(what="bounds between plain texts that follow each other", direction="response", becomes="one text"),
    Loss(what="citations of texts in requests", direction="request", becomes="left out"),
    Loss(what="which text of several a citation belongs to", direction="response", becomes="the last text"),
    Loss(what="search queries, search entry point, retrieval metadata", direction="response", becomes="left out"),
    Loss(what="`finishMessage`, safety ratings, logprobs", direction="response", becomes="left out"),
    Loss(what="names of files", direction="both", becomes="left out (the Gemini API refuses `displayName`)"),
    Loss(what="media types with a star", direction="request", becomes="guessed from the bytes, left out with a URL"),
    Loss(what="whether a file is named by URL or by id", direction="request", becomes="Gemini's own URIs are ids"),
    Loss(what="`strict` of tools", direction="request", becomes="left out"),
    Loss(what="the order of declared and server-side tools", direction="request", becomes="declared ones first"),
    Loss(what="tool choice without declared tools", direction="request", becomes="left out"),
    Loss(what="`parallel_tool_calls`", direction="request", becomes="left out: Gemini has no such field"),
    Loss(what="name and strictness of the output schema", direction="request", becomes="left out"),
    Loss(
        what="reasoning effort where the model takes a budget",
        direction="request",
        becomes="the budget that Google's compatibility table names",
    ),
    Loss(what="cache writes in usage", direction="response", becomes="part of the prompt's tokens"),
    Loss(what="opaque data of other families", direction="both", becomes="left out"),
)
