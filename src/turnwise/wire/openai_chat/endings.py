"""How a Chat Completions response ends: every endpoint's word for that, and the many shapes of usage -> our five counts, and
back."""

from types import MappingProxyType

import msgspec

from turnwise.vocab import FinishReason, Untold, Usage
from turnwise.wire.endings import (
    AMOUNT,
    APART,
    AT_ITS_PRICE,
    COUNT,
    OPENROUTER,
    REST,
    SEARCHES,
    SECONDS,
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
    with_missing,
    with_terms,
)
from turnwise.wire.json_fields import compact
from turnwise.wire.profiles import Profile

USAGE = usage_table(
    {
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "prompt_tokens_details.cached_tokens": COUNT,
        "prompt_tokens_details.cache_write_tokens": COUNT,
        "completion_tokens_details.reasoning_tokens": COUNT,
        "reasoning_tokens": COUNT,
        "prompt_cache_hit_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
        "cached_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "cache_creation.ephemeral_5m_input_tokens": COUNT,
        "cache_creation.ephemeral_1h_input_tokens": COUNT,
        "total_tokens": SUM,
        "prompt_cache_miss_tokens": REST,
        "prompt_tokens_details.text_tokens": REST,
        "completion_tokens_details.text_tokens": REST,
        "prompt_tokens_details.image_tokens": AT_ITS_PRICE,
        "completion_tokens_details.accepted_prediction_tokens": AT_ITS_PRICE,
        "completion_tokens_details.rejected_prediction_tokens": AT_ITS_PRICE,
        "service_tier": TERM,
        "prompt_tokens_details.audio_tokens": APART,
        "completion_tokens_details.audio_tokens": APART,
        **SEARCHES,
        **OPENROUTER,
        "cost_in_usd_ticks": AMOUNT,
        "market_cost": AMOUNT,
        **dict.fromkeys(("queue_time", "prompt_time", "completion_time", "total_time"), SECONDS),  # Groq
        **dict.fromkeys(
            ("total_time_sec", "total_prompt_time_sec", "total_completion_time_sec"), SECONDS
        ),  # mistral.rs
        **dict.fromkeys(("avg_tok_per_sec", "avg_prompt_tok_per_sec", "avg_compl_tok_per_sec"), SECONDS),
    }
)


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
    usage = with_terms(usage, text, table=USAGE, tier=tier)
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
    sums = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.provider:
        text = usage.provider.encode()
        # xAI's object says the same to us, but not to clients that take its output for the whole.
        own = read_counts(text, _counts)
        if own is not None and own.completion_tokens == usage.output_tokens and says_same(counted(text), usage):
            return with_missing(msgspec.Raw(text), sums)
    prompt_details: dict[str, int] = {"cached_tokens": usage.cache_read_tokens}
    if usage.cache_write_tokens:
        prompt_details["cache_write_tokens"] = usage.cache_write_tokens
    return msgspec.Raw(
        msgspec.json.encode(
            {
                **sums,
                "prompt_tokens_details": prompt_details,
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            }
        )
    )


# --- words


FINISH_REASONS = MappingProxyType(
    {
        # OpenAI API reference, "The chat completion object"
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
        "tool_calls": FinishReason.TOOL_CALLS,
        "content_filter": FinishReason.CONTENT_FILTER,
        "function_call": FinishReason.TOOL_CALLS,  # deprecated with `functions`
        # OpenRouter API reference, "Finish Reason"; Mistral API reference, "Chat Completion"
        "error": FinishReason.ERROR,
        "model_length": FinishReason.LENGTH,
        # DeepSeek API reference, "Create Chat Completion"
        "insufficient_system_resource": FinishReason.ERROR,
        # Z.ai API reference, "Chat Completion"
        "sensitive": FinishReason.CONTENT_FILTER,
        "network_error": FinishReason.ERROR,
        "model_context_window_exceeded": FinishReason.LENGTH,
        # Text Generation Inference, `FinishReason`
        "eos_token": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        # Together API reference, "Create Chat Completion"
        "eos": FinishReason.STOP,
        # vLLM and SGLang: the engine gave the request up
        "abort": FinishReason.ERROR,
        # Ollama: a request that only loads or unloads the model
        "load": FinishReason.STOP,
        "unload": FinishReason.STOP,
        # Upstream words that gateways let through (Anthropic, Gemini, Cohere)
        "end_turn": FinishReason.STOP,
        "max_tokens": FinishReason.LENGTH,
        "tool_use": FinishReason.TOOL_CALLS,
        "pause_turn": FinishReason.PAUSE,
        "refusal": FinishReason.REFUSAL,
        "STOP": FinishReason.STOP,
        "MAX_TOKENS": FinishReason.LENGTH,
        "SAFETY": FinishReason.CONTENT_FILTER,
        "RECITATION": FinishReason.CONTENT_FILTER,
        "COMPLETE": FinishReason.STOP,
        "max_output_tokens": FinishReason.LENGTH,
        # IBM watsonx.ai API reference, "Text generation", `stop_reason`
        "not_finished": FinishReason.CUT,
        "cancelled": FinishReason.ERROR,
        "time_limit": FinishReason.LENGTH,
        "token_limit": FinishReason.LENGTH,
        # Other spellings of the same, from compatible servers
        "end": FinishReason.STOP,
        "complete": FinishReason.STOP,
        "completed": FinishReason.STOP,
        "tool_call": FinishReason.TOOL_CALLS,
        "length_limit": FinishReason.LENGTH,
        "max_length": FinishReason.LENGTH,
        "safety": FinishReason.CONTENT_FILTER,
        "recitation": FinishReason.CONTENT_FILTER,
        "timeout": FinishReason.ERROR,
        "failed": FinishReason.ERROR,
        "canceled": FinishReason.ERROR,
    }
)

# What our encoder writes for a reason whose own word is not of this family.
WORDS = MappingProxyType(
    {
        FinishReason.STOP: "stop",
        FinishReason.TOOL_CALLS: "tool_calls",
        FinishReason.LENGTH: "length",
        FinishReason.REFUSAL: "content_filter",
        FinishReason.CONTENT_FILTER: "content_filter",
        FinishReason.PAUSE: "stop",
        FinishReason.ERROR: "error",
    }
)


def finish_of(word: str, *, refused: bool) -> FinishReason:
    """The reason for a provider's word. A refusal ends with `stop` in this family; `refused` says that there was one."""
    reason = finish_of_word(word, own=FINISH_REASONS)
    return FinishReason.REFUSAL if refused and reason is FinishReason.STOP else reason


def says_limit(word: str | None) -> bool:
    """True where an upstream's own word means that the output limit cut the response."""
    return word is not None and FINISH_REASONS.get(word, FINISH_REASONS.get(word.lower())) is FinishReason.LENGTH


def word_of(reason: FinishReason, provider_word: str | None, *, refused: bool) -> str | None:
    """The word to write; None for a response that was cut (the API writes null until it knows)."""
    if reason is FinishReason.CUT:
        return None
    if (
        provider_word is not None
        and provider_word in FINISH_REASONS
        and finish_of(provider_word, refused=refused) is reason
    ):
        return provider_word
    return "stop" if reason is FinishReason.REFUSAL and refused else WORDS[reason]
