"""A child's share of its parent's limits: reserved before it is spent, so that all of them together stay within."""

from collections.abc import Sequence
from decimal import Decimal
from typing import assert_never

import msgspec

from turnwise.rules.limits import (
    ANSWER_TOKENS,
    LEAST_ANSWER_TOKENS,
    AllOf,
    AnyOf,
    Limit,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxWallTime,
    Spent,
    is_over,
    tokens_left,
)
from turnwise.rules.pricing import ZERO, PriceRow, add, part_of, subtract


class Share(msgspec.Struct, frozen=True):
    """What one child may spend; None: nothing limits it. Not `enough`: too little for one request, so it is not begun."""

    limit: Limit | None
    enough: bool = True


MILLION = 1_000_000
NOTHING_LEFT = Share(None, enough=False)


def least_of(row: PriceRow) -> Decimal:
    """What a request at this price costs at the least, its prompt not counted."""
    tokens = row.tokens[0].output * LEAST_ANSWER_TOKENS / MILLION if row.tokens else ZERO
    return add(add(row.request_usd or ZERO, row.step_usd or ZERO), tokens)


def share_of(limit: Limit, *, spent: Spent, among: int, least_usd: Decimal = ZERO) -> Share:
    """What each of `among` children that run together may spend of what `spent` leaves; what the parent keeps for its own
    answer is to be in `spent`. Requests, tokens and money are divided, time is not, as it passes for all at once; steps are each
    turn's own. `least_usd` is what a request of theirs costs at the least."""
    match limit:
        case MaxSteps():
            return NOTHING_LEFT if is_over(limit, spent=spent) else Share(None)
        case MaxRequests(requests):
            left = (requests - spent.requests) // among
            return Share(MaxRequests(left)) if left > 0 else NOTHING_LEFT
        case MaxTokens(counts=counts):
            left = tokens_left(limit, spent=spent) // among
            return Share(MaxTokens(left, counts)) if left >= ANSWER_TOKENS else NOTHING_LEFT
        case MaxWallTime(seconds):
            left_s = seconds - spent.elapsed_s
            return Share(MaxWallTime(left_s)) if left_s > 0 else NOTHING_LEFT
        case MaxCost(usd):
            # What its prompts cost only the child knows: with too little for them it answers without a request.
            left_usd = part_of(subtract(usd, spent.cost_usd), among=among)
            return Share(MaxCost(left_usd)) if left_usd > 0 and left_usd >= least_usd else NOTHING_LEFT
        case AnyOf(limits):
            found = [share_of(one, spent=spent, among=among, least_usd=least_usd) for one in limits]
            kept = tuple([share.limit for share in found if share.limit is not None])
            if not all(share.enough for share in found):
                return NOTHING_LEFT
            return Share(_of(AnyOf(kept)))
        case AllOf(limits):
            # One that is used up stops nothing by itself: the others decide. One that is none of a child's never stops it.
            shares = [share_of(one, spent=spent, among=among, least_usd=least_usd) for one in limits]
            found = [share for share in shares if share.enough]
            if not found:
                return NOTHING_LEFT
            kept = tuple([share.limit for share in found if share.limit is not None])
            return Share(_of(AllOf(kept)) if len(kept) == len(found) else None)
        case _:
            assert_never(limit)


def shares_of(limit: Limit, *, spent: Spent, among: int, least_usd: Sequence[Decimal] = ()) -> tuple[Share, int]:
    """The share of each of the first so many of `among` children: of as many as can be given enough for one request. A share
    that is too small for anybody would leave what there is unspent. `least_usd` is what a request of each costs at the least."""
    for count in range(among, 0, -1):
        dearest = max(least_usd[:count], default=ZERO)
        share = share_of(limit, spent=spent, among=count, least_usd=dearest)
        if share.enough:
            return share, count
    return NOTHING_LEFT, 0


def _of(limit: AnyOf | AllOf) -> Limit | None:
    if not limit.limits:
        return None
    return limit.limits[0] if len(limit.limits) == 1 else limit
