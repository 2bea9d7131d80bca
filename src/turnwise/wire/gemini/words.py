"""Gemini's words and ours, as data."""

from turnwise.vocab import FinishReason
from turnwise.wire.finish_words import finish_of_word

# `Candidate.finishReason`. Sources: the `FinishReason` enums of the Gemini API reference, of Vertex AI's, and of the
# official Python SDK. STOP is also what the API says when it called functions; the decoder looks at the calls too.
# The numbers are the same enum as gRPC-style clients receive it (`enum-encoding=int`). From 6 on the two APIs count
# differently (9 is SPII here and MALFORMED_FUNCTION_CALL there), so only what both agree on stands here:
# those from 9 on are failures.
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
    "0": FinishReason.CUT,
    "1": FinishReason.STOP,
    "2": FinishReason.LENGTH,
    "3": FinishReason.CONTENT_FILTER,
    "4": FinishReason.CONTENT_FILTER,
    "5": FinishReason.ERROR,
    "6": FinishReason.CONTENT_FILTER,
    "7": FinishReason.CONTENT_FILTER,
    "8": FinishReason.CONTENT_FILTER,
    "9": FinishReason.ERROR,
    "10": FinishReason.ERROR,
    "11": FinishReason.ERROR,
    "12": FinishReason.ERROR,
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
    """Our reason for Gemini's word."""
    reason = finish_of_word(word, own=FINISH_REASONS)
    return FinishReason.TOOL_CALLS if called and reason is FinishReason.STOP else reason


def word_of(reason: FinishReason, *, provider_reason: str | None) -> str | None:
    """Gemini's word for our reason: the provider's own where it is one of Gemini's and means the same."""
    if provider_reason is not None and not provider_reason.isdigit():
        known = FINISH_REASONS.get(provider_reason)
        if known is reason or (known is FinishReason.STOP and reason is FinishReason.TOOL_CALLS):
            return provider_reason
    return FINISH_WORDS[reason]
