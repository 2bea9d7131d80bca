"""A child's share of its parent's limits: reserved before it is spent, so that all of them together stay within."""

from collections.abc import Sequence
from decimal import Decimal

from turnwise.rules.limits import (
    LEAST_ANSWER_TOKENS,
    NOTHING_LEFT,
    AllOf,
    Among,
    AnyOf,
    Limit,
    Share,
    Spent,
    folded,
)
from turnwise.rules.pricing import ZERO, PriceRow, add

MILLION = 1_000_000


def least_of(row: PriceRow) -> Decimal:
    """What a request at this price costs at the least, its prompt not counted."""
    tokens = row.tokens[0].output * LEAST_ANSWER_TOKENS / MILLION if row.tokens else ZERO
    return add(add(row.request_usd or ZERO, row.step_usd or ZERO), tokens)


def share_of(limit: Limit, *, spent: Spent, among: int, least_usd: Decimal = ZERO) -> Share:
    """What each of `among` children that run together may spend of what `spent` leaves; what the parent keeps for its own
    answer is to be in `spent`. `least_usd` is what a request of theirs costs at the least."""
    children = Among(count=among, least_usd=least_usd)
    both = _both if among == 1 else _first
    return folded(limit, leaf=lambda one: one.share(spent, among=children), either=_either, both=both)


def _either(found: list[Share]) -> Share:
    kept = tuple([share.limit for share in found if share.limit is not None])
    return Share(_alone(AnyOf(kept))) if all(share.enough for share in found) else NOTHING_LEFT


def _both(shares: list[Share]) -> Share:
    """A limit that is used up stops nothing by itself: the others decide. A limit of None never stops a child."""
    found = [share for share in shares if share.enough]
    if not found:
        return NOTHING_LEFT
    kept = tuple([share.limit for share in found if share.limit is not None])
    return Share(_alone(AllOf(kept)) if len(kept) == len(found) else None)


def _first(shares: list[Share]) -> Share:
    """Children that run together hold the same one of the limits, or one goes beyond the first limit, another beyond the second,
    and both limits are exceeded."""
    return next((share for share in shares if share.enough), NOTHING_LEFT)


def _alone(limit: AnyOf | AllOf) -> Limit | None:
    if not limit.limits:
        return None
    return limit.limits[0] if len(limit.limits) == 1 else limit


def shares_of(limit: Limit, *, spent: Spent, among: int, least_usd: Sequence[Decimal] = ()) -> tuple[Share, int]:
    """The share of each of the first so many of `among` children: of as many as can be given enough for one request. A share
    that is too small for anybody would leave what there is unspent. `least_usd` is what a request of each costs at the least."""
    for count in range(among, 0, -1):
        dearest = max(least_usd[:count], default=ZERO)
        share = share_of(limit, spent=spent, among=count, least_usd=dearest)
        if share.enough:
            return share, count
    return NOTHING_LEFT, 0
