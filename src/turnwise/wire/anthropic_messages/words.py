"""Why a response of the Messages API ended: its words <-> ours, as data.

Source: API reference, `stop_reason` of Message and BetaMessage (anthropic-python 2.12, types/stop_reason.py and
types/beta/beta_stop_reason.py); "Handling stop reasons".
"""

from types import MappingProxyType

from turnwise.vocab import Finished, FinishReason, Mended
from turnwise.wire.finish_words import finish_frames, finish_of_word, says_nothing

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

_WORDS = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.PAUSE: "pause_turn",
}


def read_finish(word: str | None, *, explanation: str | None = None) -> list[Mended | Finished]:
    """An unknown word is kept and told."""
    if word is None or says_nothing(word):
        return []
    reason = finish_of_word(word, own=FINISH_REASONS)
    return finish_frames(Finished(reason, provider_reason=word, explanation=explanation), own=FINISH_REASONS)


def stop_word(reason: FinishReason, provider_reason: str | None, *, limit_reached: bool = False) -> str | None:
    """The API's word; None for `error` and `cut`, for which it has none."""
    if limit_reached:
        return "max_tokens"
    if provider_reason is not None and FINISH_REASONS.get(provider_reason) == reason:
        return provider_reason
    return _WORDS.get(reason)
