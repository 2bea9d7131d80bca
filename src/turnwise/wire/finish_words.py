"""Finish words that say nothing, and those that nobody documented: the same in every family."""

from turnwise.vocab import NO_FINISH_REASON, Finished, FinishReason, Mended, Repair
from turnwise.wire.healing import printable

# `str(None)` of three languages, as gateways were seen to write it where nothing has been said yet.
_SAY_NOTHING = frozenset(["", "null", "none", "undefined"])

# For words that nobody documented: a part of the word -> its best sense. The first that is found decides.
_HINTS = (
    ("length", FinishReason.LENGTH),
    ("max", FinishReason.LENGTH),
    ("limit", FinishReason.LENGTH),
    ("filter", FinishReason.CONTENT_FILTER),
    ("safety", FinishReason.CONTENT_FILTER),
    ("prohibited", FinishReason.CONTENT_FILTER),
    ("block", FinishReason.CONTENT_FILTER),
    ("malformed", FinishReason.ERROR),
    ("error", FinishReason.ERROR),
    ("fail", FinishReason.ERROR),
    ("cancel", FinishReason.ERROR),
    ("tool", FinishReason.TOOL_CALLS),
    ("function", FinishReason.TOOL_CALLS),
)


def says_nothing(word: str | None) -> bool:
    """True where the provider has not said (yet) why the response ended; a stream that ends so was cut."""
    return word is None or word.strip().casefold() in _SAY_NOTHING


def guess_reason(word: str) -> FinishReason:
    """The reason for a word that is in no family's table: by a part of it that tells, else by what the response holds. `stop`
    says the latter: the assembler makes `tool_calls` of it where there are calls, and an empty response is asked for again."""
    folded = word.casefold()
    return next((sense for hint, sense in _HINTS if hint in folded), FinishReason.STOP)


def unknown_finish(word: str, reason: FinishReason) -> Mended:
    """The record of a word that is in no provider's documentation, so that whoever reads the answer can be told."""
    return Mended(
        Repair("unknown_finish", "response", f"the finish word `{printable(word)}` is not known: taken for `{reason}`")
    )


def unsaid_finish(mark: str) -> Mended:
    """The record of a response that has the end mark of its API and no finish reason: it did not break off."""
    return Mended(Repair(NO_FINISH_REASON, "response", f"it ended with {mark}, without a word about why"))


def finish_frames(finished: Finished, *, is_known: bool) -> list[Mended | Finished]:
    if is_known or finished.provider_reason is None:
        return [finished]
    return [unknown_finish(finished.provider_reason, finished.reason), finished]
