"""How a response of Gemini's ends: `usageMetadata` <-> `Usage`, and its words for the end.

Gemini counts thoughts apart from the candidates' tokens and the results of server-side tools apart from the prompt; the
cached part is inside the prompt (source: API reference, `UsageMetadata`).
"""

import msgspec

from turnwise.vocab import FinishReason, Untold, Usage, with_untold
from turnwise.wire.endings import (
    APART,
    AT_ITS_PRICE,
    COUNT,
    MAX_BYTES,
    MODALITIES,
    SUM,
    TERM,
    MergedUsage,
    TokenCount,
    finish_of_word,
    marked,
    read_counts,
    read_told,
    says_same,
    total_of,
    usage_table,
    with_terms,
)
from turnwise.wire.json_fields import UNREADABLE, compact_text

USAGE = usage_table(
    {
        "promptTokenCount": COUNT,
        "candidatesTokenCount": COUNT,
        "thoughtsTokenCount": COUNT,
        "toolUsePromptTokenCount": COUNT,
        "cachedContentTokenCount": COUNT,
        "totalTokenCount": SUM,
        **{f"promptTokensDetails.{word}": AT_ITS_PRICE for word in MODALITIES},
        **{f"toolUsePromptTokensDetails.{word}": AT_ITS_PRICE for word in MODALITIES},
        **{f"cacheTokensDetails.{word}": AT_ITS_PRICE for word in MODALITIES},
        "candidatesTokensDetails.TEXT": AT_ITS_PRICE,
        "promptTokensDetails.AUDIO": APART,
        "candidatesTokensDetails.AUDIO": APART,
        "serviceTier": TERM,
        "trafficType": TERM,
    }
)


class UsageMetadata(msgspec.Struct, rename="camel", gc=False):
    prompt_token_count: TokenCount = None
    candidates_token_count: TokenCount = None
    thoughts_token_count: TokenCount = None
    tool_use_prompt_token_count: TokenCount = None
    cached_content_token_count: TokenCount = None

    def says_something(self) -> bool:
        counted = self.prompt_token_count is not None or self.candidates_token_count is not None
        return counted or bool(self.thoughts_token_count)

    def takes_away_from(self, before: "UsageMetadata") -> bool:
        """Whether a count of `before` is zero here, or left out (ProtoJSON leaves zeros out)."""
        return bool(
            (not self.prompt_token_count and before.prompt_token_count)
            or (not self.candidates_token_count and before.candidates_token_count)
            or (not self.thoughts_token_count and before.thoughts_token_count)
            or (not self.tool_use_prompt_token_count and before.tool_use_prompt_token_count)
            or (not self.cached_content_token_count and before.cached_content_token_count)
        )


# What nobody told where no count stands under a key. ProtoJSON leaves zeros out, so a key that is not there is a zero.
MISFITS: dict[str, tuple[Untold, ...]] = {
    "candidatesTokenCount": ("output_tokens",),
    "thoughtsTokenCount": ("output_tokens", "reasoning_tokens"),
    "toolUsePromptTokenCount": ("input_tokens",),
    "cachedContentTokenCount": ("cache_read_tokens",),
}
_decoder = msgspec.json.Decoder(UsageMetadata, strict=False)


class UsageReader:
    """The usage of one response. Gemini repeats it in each chunk, so the last object counts, with what it takes away from the
    ones before."""

    __slots__ = ("_counts", "_has_searched", "_last", "_reported")

    def __init__(self) -> None:
        self._last = msgspec.Raw()
        self._counts: UsageMetadata | None = None
        self._reported = True
        self._has_searched = False

    def note_searches(self) -> None:
        """The response tells of searches, which no usage of Gemini counts."""
        if not self._has_searched:
            self._has_searched = True
            self._reported = self._counts is None

    def add(self, raw: msgspec.Raw) -> bool:
        """Take the object of one more chunk; returns whether it counts anything (Vertex sends `{"trafficType":...}` alone in
        all chunks but the last)."""
        if raw == self._last:
            return True
        counts, before = read_counts(raw, _decoder), self._counts
        if counts is None or not counts.says_something() or len(bytes(raw)) > MAX_BYTES:
            return False
        if before is not None and counts.takes_away_from(before):
            merged = MergedUsage()
            if not (merged.add(self._last) and merged.add(raw)):
                return False
            raw = msgspec.Raw(merged.text)
            counts = read_counts(raw, _decoder)
        self._last, self._counts, self._reported = raw, counts, False
        return True

    def report(self) -> Usage | None:
        """The usage so far; None where nothing was added since it was reported last."""
        if self._reported or self._counts is None:
            return None
        self._reported = True
        usage = _usage_of(self._counts, self._last)
        return with_untold(usage, ("searches",)) if usage is not None and self._has_searched else usage


def decode_usage(raw: bytes) -> Usage | None:
    """None where the object counts nothing."""
    counts = read_counts(raw, _decoder)
    return None if counts is None or not counts.says_something() else _usage_of(counts, raw)


def _usage_of(counts: UsageMetadata, raw: bytes | msgspec.Raw) -> Usage | None:
    try:
        provider = compact_text(raw)
    except UNREADABLE:
        return None
    thoughts = counts.thoughts_token_count or 0
    usage = Usage(
        input_tokens=total_of(counts.prompt_token_count, counts.tool_use_prompt_token_count),
        output_tokens=total_of(counts.candidates_token_count, thoughts),
        reasoning_tokens=thoughts,
        cache_read_tokens=counts.cached_content_token_count or 0,
        provider=provider,
    )
    usage = with_terms(usage, raw, table=USAGE)
    misfits = read_told(raw, _decoder)[1]
    return marked(usage, is_output_told=True, misfits=misfits, counts=MISFITS)


def encode_usage(usage: Usage) -> bytes:
    """Gemini's own object where the usage came from one, else one made of our counts."""
    if usage.provider:
        own = decode_usage(usage.provider.encode())
        if says_same(own, usage):
            return usage.provider.encode()
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    optional = {"thoughtsTokenCount", "cachedContentTokenCount"}
    return msgspec.json.encode({key: count for key, count in counts.items() if count or key not in optional})


# --- words


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
