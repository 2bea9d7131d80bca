"""Money as people read it: US dollars, and what is not known said so."""

from turnwise.faces.cli.text import many
from turnwise.rules.pricing import Cost, usd_said

UNKNOWN = "unknown"


def cost_said(cost: Cost) -> str:
    """`$0.0123`, `unknown`, or `at least $0.0123, 2 requests unknown`."""
    if not cost.unknown:
        return usd_said(cost.usd)
    if cost.unknown == cost.requests:
        return UNKNOWN
    return f"at least {usd_said(cost.usd)}, {many(cost.unknown, 'request')} unknown"


def saved_said(saved: Cost) -> str:
    """`9 requests, $0.0900`; below 0 it took more than it spared."""
    if saved.requests < 0:
        more = Cost(usd=-saved.usd, requests=-saved.requests, unknown=-saved.unknown)
        return f"{many(more.requests, 'request')} more, {cost_said(more)}"
    return f"{many(saved.requests, 'request')}, {cost_said(saved)}"
