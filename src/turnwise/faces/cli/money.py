"""Money as people read it: US dollars, and what is not known said so."""

from decimal import Decimal

from turnwise.faces.cli.text import many
from turnwise.rules.pricing import Cost

UNKNOWN = "unknown"


def usd_said(amount: Decimal) -> str:
    """Cents from a dollar on, three digits that mean something below: `$1.23`, `$0.0456`, `-$0.000125`."""
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    places = 2 if size >= 1 or not size else 2 - size.adjusted()
    return f"{sign}${size:,.{places}f}"


def cost_said(cost: Cost) -> str:
    """`$0.0123`, `unknown`, or `at least $0.0123, 2 requests unknown`."""
    if not cost.unknown:
        return usd_said(cost.usd)
    if cost.unknown == cost.requests:
        return UNKNOWN
    return f"at least {usd_said(cost.usd)}, {many(cost.unknown, 'request')} unknown"
