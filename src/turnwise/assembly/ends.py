"""How a response can end, and what its end means for a call that cannot show a cut itself."""

from turnwise.vocab import FinishReason

# Of several finish reasons the gravest counts: OpenRouter repeats one, some send `stop` and then `tool_calls`.
GRAVITY = {
    reason: gravity
    for gravity, reason in enumerate(
        (
            FinishReason.CUT,
            FinishReason.STOP,
            FinishReason.TOOL_CALLS,
            FinishReason.PAUSE,
            FinishReason.LENGTH,
            FinishReason.CONTENT_FILTER,
            FinishReason.REFUSAL,
            FinishReason.ERROR,
        )
    )
}
# Ends at which a call without arguments is one that had none, rather than one that was cut before they began.
ENDED_BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})
