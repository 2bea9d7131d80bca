"""How an interaction ends: its status, and its usage <-> `Usage`. Thoughts are counted apart from the output, results of the
provider's tools apart from the input, and what came from the cache within it (google-genai 3.6, `Usage`)."""

import msgspec

from turnwise.vocab import Finished, FinishReason, Mended, Untold, Usage, with_untold
from turnwise.wire.endings import (
    APART,
    AT_ITS_PRICE,
    COUNT,
    REST,
    SUM,
    MergedUsage,
    TokenCount,
    finish_frames,
    finish_of_word,
    marked,
    read_counts,
    read_told,
    says_nothing,
    says_same,
    total_of,
    usage_table,
    with_terms,
)
from turnwise.wire.json_fields import encode

_MODALITIES = ("text", "image", "video", "document")

USAGE = usage_table(
    {
        "total_input_tokens": COUNT,
        "total_output_tokens": COUNT,
        "total_thought_tokens": COUNT,
        "total_reasoning_tokens": COUNT,
        "total_cached_tokens": COUNT,
        "total_tool_use_tokens": COUNT,
        "total_tokens": SUM,
        "initial_input_tokens": AT_ITS_PRICE,
        "raw_prompt_token": REST,  # recorded beside the count of the input, which is smaller; Google names no price for it
        "grounding_tool_count": APART,
        **{f"input_tokens_by_modality.{word}": AT_ITS_PRICE for word in _MODALITIES},
        **{f"cached_tokens_by_modality.{word}": AT_ITS_PRICE for word in _MODALITIES},
        **{f"tool_use_tokens_by_modality.{word}": AT_ITS_PRICE for word in _MODALITIES},
        "output_tokens_by_modality.text": AT_ITS_PRICE,
        "input_tokens_by_modality.audio": APART,
        "output_tokens_by_modality.audio": APART,
    }
)


class Counts(msgspec.Struct, gc=False):
    total_input_tokens: TokenCount = None
    total_output_tokens: TokenCount = None
    total_thought_tokens: TokenCount = None
    total_reasoning_tokens: TokenCount = None  # of older answers
    total_cached_tokens: TokenCount = None
    total_tool_use_tokens: TokenCount = None


_counts = msgspec.json.Decoder(Counts, strict=False)
MISFITS: dict[str, tuple[Untold, ...]] = {
    "total_output_tokens": ("output_tokens",),
    "total_thought_tokens": ("output_tokens", "reasoning_tokens"),
    "total_reasoning_tokens": ("output_tokens", "reasoning_tokens"),
    "total_tool_use_tokens": ("input_tokens",),
    "total_cached_tokens": ("cache_read_tokens",),
}


class UsageReader:
    """Merges the usage objects of one interaction. `has_searched`: a step was a search, which is counted apart."""

    __slots__ = ("_merged", "has_searched")

    def __init__(self) -> None:
        self._merged = MergedUsage()
        self.has_searched = False

    def read(self, raw: msgspec.Raw, *, tier: str) -> Usage | None:
        """The usage with this object; None where it says nothing new."""
        usage = usage_of(self._merged.text, tier=tier) if self._merged.add(raw) else None
        uncounted = usage is not None and self.has_searched and "grounding_tool_count" not in usage.provider
        return with_untold(usage, ("searches",)) if usage is not None and uncounted else usage


def usage_of(text: bytes, *, tier: str = "") -> Usage | None:
    counts = read_counts(text, _counts)
    if counts is None or (counts.total_input_tokens is None and counts.total_output_tokens is None):
        return None
    thoughts = counts.total_thought_tokens or counts.total_reasoning_tokens or 0
    usage = Usage(
        input_tokens=total_of(counts.total_input_tokens, counts.total_tool_use_tokens),
        output_tokens=total_of(counts.total_output_tokens, thoughts),
        reasoning_tokens=thoughts,
        cache_read_tokens=counts.total_cached_tokens or 0,
        provider=text.decode(),
    )
    is_told = counts.total_output_tokens is not None
    usage = with_terms(usage, text, table=USAGE, tier=tier)
    return marked(usage, is_output_told=is_told, misfits=read_told(text, _counts)[1], counts=MISFITS)


def encode_usage(usage: Usage) -> bytes:
    """The API's own object where the usage came from one, else one made of our counts."""
    if usage.provider and says_same(usage_of(usage.provider.encode()), usage):
        return usage.provider.encode()
    return encode(
        {
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "total_input_tokens": usage.input_tokens,
            "total_cached_tokens": usage.cache_read_tokens,
            "total_output_tokens": usage.output_tokens - usage.reasoning_tokens,
            "total_tool_use_tokens": 0,
            "total_thought_tokens": usage.reasoning_tokens,
        }
    )


# The status of an interaction. Sources: google-genai 3.6, `InteractionStatus`; recorded answers (`incomplete` is the limit of
# output). What is under way has not ended: an answer that says so stands for work in the background.
FINISH_REASONS: dict[str, FinishReason] = {
    "completed": FinishReason.STOP,
    "requires_action": FinishReason.TOOL_CALLS,
    "incomplete": FinishReason.LENGTH,
    "requires_continuation": FinishReason.LENGTH,  # going on takes a token that is no part of the content
    "budget_exceeded": FinishReason.ERROR,
    "failed": FinishReason.ERROR,
    "cancelled": FinishReason.ERROR,
    "in_progress": FinishReason.CUT,
    "queued": FinishReason.CUT,
    "idle": FinishReason.CUT,
}

STATUSES: dict[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "requires_action",
    FinishReason.LENGTH: "incomplete",
    FinishReason.PAUSE: "completed",
    FinishReason.REFUSAL: "completed",
    FinishReason.CONTENT_FILTER: "failed",
    FinishReason.ERROR: "failed",
    FinishReason.CUT: "incomplete",
}


def read_finish(status: str | None, *, called: bool) -> list[Mended | Finished]:
    """Nothing where no end is told."""
    if status is None or says_nothing(status):
        return []
    reason = finish_of_word(status, own=FINISH_REASONS)
    if reason is FinishReason.CUT:
        return []
    if reason is FinishReason.STOP and called:
        reason = FinishReason.TOOL_CALLS
    return finish_frames(Finished(reason, status), own=FINISH_REASONS)


def status_of(reason: FinishReason, provider_reason: str | None) -> str:
    """The provider's own word where it is one of this API's."""
    return provider_reason if provider_reason in FINISH_REASONS else STATUSES[reason]
