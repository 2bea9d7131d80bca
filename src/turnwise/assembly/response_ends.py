"""How a response can end, and what its end means for a call that cannot show a cut itself."""

from collections.abc import Collection

from turnwise.assembly.argument_text import says_nothing
from turnwise.assembly.blocks import BlockKind, OpenBlock
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
WORDS = (BlockKind.TEXT, BlockKind.REFUSAL)
# Ends at which a call without arguments is one that had none, rather than one that was cut before they began.
ENDED_BY_ITSELF = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})


def is_closed(blocks: Collection[OpenBlock], *, open_texts: bool = False) -> bool:
    """Whether the response has content, and every call and text in it has its own end on the wire. Every call is known to be
    complete.

    A wire that names its blocks marks the end of each; a block without that mark means that more was coming. Chat Completions
    has no such mark: there a call ends where its arguments are whole, and a text beside such calls is over. Arguments that
    say nothing may still be coming. Behind reasoning, or a tool that ran at the provider, the model has more to say.
    `open_texts`: a text needs no end of its own.
    """
    calls = [block.call for block in blocks if block.call is not None]
    placed = [call for call in calls if call.placed]
    if any(says_nothing(call.text.joined()) for call in placed):
        return False
    others = [block for block in blocks if block.call is None or not block.call.placed]
    if placed:
        return all(block.ended for block in others if block.call is not None)
    held = [block for block in others if block.kind not in WORDS or block.has_words]
    ended = all(block.ended or (open_texts and block.kind in WORDS) for block in others)
    return bool(held) and held[-1].kind in (BlockKind.CALL, *WORDS) and ended
