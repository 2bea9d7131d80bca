"""Counts and money as people read them: US dollars, and words for what is not known."""

from collections.abc import Mapping, Sequence

from turnwise.journal.ledger import LedgerEntry
from turnwise.rules.pricing import Cost, usd_said
from turnwise.vocab import Usage

PRICE_WANTED = (
    "to give a missing price for later requests: [prices] in your turnwise.toml; `turnwise usage --help` shows how"
)
UNKNOWN = "unknown"
# The purposes of requests in words: for one request, for several.
PURPOSES = {
    "step": ("step", "steps"),
    "retry": ("retry", "retries"),
    "continue": ("continuation", "continuations"),
    "compact": ("summary", "summaries"),
    "title": ("title", "titles"),
    "child": ("by sub-agents", "by sub-agents"),
    "answer": ("answer", "answers"),
}


def many(count: int, word: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def purposes_said(purposes: Mapping[str, int]) -> str:
    """`2 steps, 1 continuation`; a purpose that this version does not know appears as it was written."""
    return ", ".join([f"{count} {PURPOSES.get(name, (name, name))[count != 1]}" for name, count in purposes.items()])


def cost_said(cost: Cost) -> str:
    """`$0.0123`, `unknown`, or `at least $0.0123, 2 requests unknown, 1 request in part`."""
    if not cost.is_partial:
        return usd_said(cost.usd)
    if cost.is_unknown:
        return UNKNOWN
    unknown = f", {many(cost.unknown, 'request')} unknown" if cost.unknown else ""
    partly = f", {many(cost.at_least, 'request')} in part" if cost.at_least else ""
    return f"at least {usd_said(cost.usd)}{unknown}{partly}"


def tokens_said(usage: Usage, *, entries: Sequence[LedgerEntry]) -> str:
    """`3,542 tokens in, 41 out`, `at least` so many, or `tokens unknown`: a count that no provider told is not 0."""
    untold = sum(_is_untold(entry) for entry in entries)
    if untold and untold == len(entries):
        return f"tokens {UNKNOWN}"
    return f"{'at least ' if untold else ''}{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def _is_untold(entry: LedgerEntry) -> bool:
    """Whether a request's tokens are unknown. A request that cost nothing has used nothing."""
    if entry.usage is None:
        return entry.usd is None or entry.usd != 0
    return bool({"input_tokens", "output_tokens"} & {*entry.usage.untold})


def saved_said(saved: Cost) -> str:
    """`9 requests, $0.0900`: how much was saved; a loss is below 0."""
    requests = many(abs(saved.requests), "request")
    if saved.unknown == saved.requests:
        return f"{requests}, {UNKNOWN}"
    return f"{requests}, {usd_said(abs(saved.usd))}" + (" where the price is known" if saved.unknown else "")
