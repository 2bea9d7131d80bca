"""Why a Chat Completions response ended: every endpoint's word -> ours, as data."""

from types import MappingProxyType

from turnwise.vocab import FinishReason
from turnwise.wire.finish_words import finish_of_word

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
