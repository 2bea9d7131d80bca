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
