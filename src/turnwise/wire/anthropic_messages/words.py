"""Why a response of the Messages API ended: its words <-> ours, as data.

Source: API reference, `stop_reason` of Message and BetaMessage (anthropic-python 2.12, types/stop_reason.py and
types/beta/beta_stop_reason.py); "Handling stop reasons".
"""

from types import MappingProxyType

from turnwise.vocab import Finished, FinishReason, Mended
from turnwise.wire.finish_words import finish_frames, guess_reason, says_nothing

FINISH_REASONS = MappingProxyType(
    {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "refusal": FinishReason.REFUSAL,
        "pause_turn": FinishReason.PAUSE,
        "compaction": FinishReason.PAUSE,  # paused after compacting: send the content back and it goes on
    }
)

# Other families' words that compatible servers let through (none of the API's own, so no encoder writes them).
GATEWAY_WORDS = MappingProxyType(
    {
        "stop": FinishReason.STOP,
        "eos": FinishReason.STOP,
        "tool_calls": FinishReason.TOOL_CALLS,
        "function_call": FinishReason.TOOL_CALLS,
        "length": FinishReason.LENGTH,
        "max_output_tokens": FinishReason.LENGTH,
        "content_filter": FinishReason.CONTENT_FILTER,
        "safety": FinishReason.CONTENT_FILTER,
        "error": FinishReason.ERROR,
        "timeout": FinishReason.ERROR,
    }
)

_WORDS = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.PAUSE: "pause_turn",
}


def read_finish(word: str | None, *, explanation: str | None = None) -> list[Mended | Finished]:
    """An unknown word is guessed (`guess_reason`), kept and told."""
    if word is None or says_nothing(word):
        return []
    known = FINISH_REASONS.get(word) or GATEWAY_WORDS.get(word.casefold())
    finished = Finished(known or guess_reason(word), provider_reason=word, explanation=explanation)
    return finish_frames(finished, is_known=known is not None)


def stop_word(reason: FinishReason, provider_reason: str | None, *, limit_reached: bool = False) -> str | None:
    """The API's word; None for `error` and `cut`, for which it has none."""
    if limit_reached:
        return "max_tokens"
    if provider_reason is not None and FINISH_REASONS.get(provider_reason) == reason:
        return provider_reason
    return _WORDS.get(reason)
