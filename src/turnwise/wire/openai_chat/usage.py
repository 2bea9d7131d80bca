"""Token counts: the many shapes of Chat Completions usage -> our five, and back."""

import msgspec

from turnwise.vocab import Untold, Usage
from turnwise.wire.counts import (
    MergedUsage,
    TokenCount,
    marked,
    read_counts,
    read_told,
    says_same,
    total_of,
    with_terms,
)
from turnwise.wire.json_fields import compact
from turnwise.wire.profiles import Profile


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: TokenCount = None


class Counts(msgspec.Struct, gc=False):
    """Where each count may stand. Sources: OpenAI, OpenRouter (`cache_write_tokens`), DeepSeek (`prompt_cache_hit_tokens`),
    Databricks and Venice (`cache_read_input_tokens`), Together and Moonshot (`cached_tokens`), Copilot
    (`reasoning_tokens`): recorded streams."""

    prompt_tokens: TokenCount = None
    completion_tokens: TokenCount = None
    total_tokens: TokenCount = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    reasoning_tokens: TokenCount = None
    prompt_cache_hit_tokens: TokenCount = None
    cache_read_input_tokens: TokenCount = None
    cached_tokens: TokenCount = None
    cache_creation_input_tokens: TokenCount = None


_counts = msgspec.json.Decoder(Counts, strict=False)
# What nobody told where no count stands under a key. Some endpoints leave reasoning out of the output, so that is not told then.
_OF_PROMPT: tuple[Untold, ...] = ("cache_read_tokens", "cache_write_tokens")
_OF_OUTPUT: tuple[Untold, ...] = ("output_tokens", "reasoning_tokens")
MISFITS: dict[str, tuple[Untold, ...]] = {
    "prompt_tokens_details": _OF_PROMPT,
    "prompt_cache_hit_tokens": _OF_PROMPT,
    "cache_read_input_tokens": _OF_PROMPT,
    "cached_tokens": _OF_PROMPT,
    "cache_creation_input_tokens": _OF_PROMPT,
    "completion_tokens_details": _OF_OUTPUT,
    "reasoning_tokens": _OF_OUTPUT,
}
_NO_PROMPT_DETAILS, _NO_OUTPUT_DETAILS = PromptDetails(), OutputDetails()


class UsageReader:
    """Merges the usage objects of one response."""

    __slots__ = ("_excludes_reasoning", "_merged", "tier")

    def __init__(self, profile: Profile) -> None:
        self._excludes_reasoning = profile.output_excludes_reasoning
        self._merged = MergedUsage()
        self.tier = ""  # how the request was served; OpenAI says it beside the usage

    def read(self, raw: msgspec.Raw) -> Usage | None:
        """The usage so far, or None if this object says nothing new."""
        if not self._merged.add(raw):
            return None
        return counted(self._merged.text, excludes_reasoning=self._excludes_reasoning, tier=self.tier)


def counted(text: bytes, *, excludes_reasoning: bool = False, tier: str = "") -> Usage | None:
    """Our five counts of a usage object, whatever way they are written in; `tier` is what the response says beside it."""
    counts, misfits = read_told(text, _counts)
    if counts is None:
        return None
    usage = _usage_of(counts, text, excludes_reasoning=excludes_reasoning)
    usage = with_terms(usage, text, family="openai_chat", tier=tier)
    return marked(usage, is_output_told=counts.completion_tokens is not None, misfits=misfits, counts=MISFITS)


def _usage_of(counts: Counts, text: bytes, *, excludes_reasoning: bool) -> Usage:
    """The output includes reasoning: where the endpoint leaves it out, it is added. Of several places of one count the first
    with more than zero counts, because several shapes come together.

    xAI's `total_tokens` is the sum of three, which no endpoint does that counts reasoning in, so the sum is believed
    before the profile.
    """
    prompt, output, total = counts.prompt_tokens or 0, counts.completion_tokens or 0, counts.total_tokens or 0
    of_prompt = counts.prompt_tokens_details or _NO_PROMPT_DETAILS
    of_output = counts.completion_tokens_details or _NO_OUTPUT_DETAILS
    reasoning = of_output.reasoning_tokens or counts.reasoning_tokens or 0
    cache_read = (
        of_prompt.cached_tokens
        or counts.prompt_cache_hit_tokens
        or counts.cache_read_input_tokens
        or counts.cached_tokens
        or 0
    )
    if total == prompt + output + reasoning or (excludes_reasoning and total != prompt + output):
        output = total_of(output, reasoning)
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        reasoning_tokens=reasoning,
        cache_read_tokens=cache_read,
        cache_write_tokens=of_prompt.cache_write_tokens or counts.cache_creation_input_tokens or 0,
        provider=str(compact(text), "utf-8"),
    )


def encode_usage(usage: Usage) -> msgspec.Raw:
    """The provider's own object where it says the same in this family's words, else one in OpenAI's."""
    if usage.provider:
        text = usage.provider.encode()
        # xAI's object says the same to us, but not to clients that take its output for the whole.
        own = read_counts(text, _counts)
        if own is not None and own.completion_tokens == usage.output_tokens and says_same(counted(text), usage):
            return msgspec.Raw(text)
    prompt_details: dict[str, int] = {"cached_tokens": usage.cache_read_tokens}
    if usage.cache_write_tokens:
        prompt_details["cache_write_tokens"] = usage.cache_write_tokens
    return msgspec.Raw(
        msgspec.json.encode(
            {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.input_tokens + usage.output_tokens,
                "prompt_tokens_details": prompt_details,
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            }
        )
    )
