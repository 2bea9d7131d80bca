"""Counts and money as people read them: US dollars, and what is not known said so."""

from turnwise.rules.pricing import Cost, usd_said

UNKNOWN = "unknown"


def many(count: int, word: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def cost_said(cost: Cost) -> str:
    """`$0.0123`, `unknown`, or `at least $0.0123, 2 requests unknown`."""
    if not cost.unknown:
        return usd_said(cost.usd)
    if cost.is_unknown:
        return UNKNOWN
    return f"at least {usd_said(cost.usd)}, {many(cost.unknown, 'request')} unknown"


def saved_said(saved: Cost) -> str:
    """`9 requests, $0.0900`: how much was saved, or lost where it is below 0."""
    requests = many(abs(saved.requests), "request")
    if saved.unknown == saved.requests:
        return f"{requests}, {UNKNOWN}"
    return f"{requests}, {usd_said(abs(saved.usd))}" + (" where the price is known" if saved.unknown else "")
