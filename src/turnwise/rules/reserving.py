"""Many runs within one limit: each reserves its part before it spends, and gives back what is left over.

The parts that are reserved and what was spent are together never more than the limit. So no order in which runs begin and end
lets them start a request that the limit forbids; each run is as exact as its own limit is.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import get_args

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.limits import (
    Among,
    AnyOf,
    Limit,
    MaxCost,
    MaxRequests,
    MaxTokens,
    MaxToolCalls,
    Spent,
    fault_of_limit,
)
from turnwise.rules.pricing import ZERO

Countable = MaxRequests | MaxTokens | MaxCost | MaxToolCalls
Amount = int | Decimal

ONLY_EITHER = (
    "`limit` of a budget takes limits of requests, tokens, cost and tool calls, joined with `|`, not `{limit}`. Time and steps "
    "are each run's own: give them in `per_run`"
)


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """What one run may spend, an amount for each of the budget's limits, and the same as a limit."""

    amounts: tuple[Amount, ...]
    limit: Limit


def countable(limit: Limit) -> tuple[Countable, ...]:
    """The limits of a budget. Raises CallerError for one that many runs cannot share, and for one that allows nothing."""
    _check_is_limit(limit, name="limit")
    if fault := fault_of_limit(limit):
        raise CallerError(f"`limit` of a budget cannot hold: {fault}")
    parts = parts_of(limit)
    for part in parts:
        if not isinstance(part, Countable):
            raise CallerError(ONLY_EITHER.format(limit=part))
    return tuple([part for part in parts if isinstance(part, Countable)])


def check_part(part: Limit, *, of: Sequence[Countable]) -> None:
    """Raise CallerError for a part of each run that cannot hold, or that leaves one of the budget's limits open: the first run
    would then reserve all of it."""
    _check_is_limit(part, name="per_run")
    if fault := fault_of_limit(part):
        raise CallerError(f"`per_run` of a budget cannot hold: {fault}")
    for limit in of:
        if bound_by(part, of=limit) is None:
            raise CallerError(
                f"`per_run` says nothing about `{limit}`, so one run would reserve all of it: name a part, joined with `|`"
            )


def bound_by(limit: Limit | None, *, of: Countable) -> Amount | None:
    """What `limit` allows of that which `of` counts, whatever else is spent; None if it does not bound it."""
    found = [amount_of(part) for part in parts_of(limit) if isinstance(part, Countable) and _counts_the_same(part, of)]
    return min(found, default=None)


def parts_of(limit: Limit | None) -> tuple[Limit, ...]:
    """Those of which each stops a run by itself."""
    if limit is None:
        return ()
    return limit.limits if isinstance(limit, AnyOf) else (limit,)


def amount_of(limit: Countable) -> Amount:
    match limit:
        case MaxRequests(amount) | MaxToolCalls(amount):
            return amount
        case MaxTokens():
            return limit.tokens
        case MaxCost(usd):
            return usd


def used_of(limit: Countable, spent: Spent) -> Amount:
    """What counts towards it."""
    match limit:
        case MaxRequests():
            return spent.requests
        case MaxTokens():
            return limit.used(spent)
        case MaxCost():
            return spent.cost_usd
        case MaxToolCalls():
            return spent.tool_calls


def reserve(
    limits: Sequence[Countable], *, free: Sequence[Amount], asked: Limit | None, least_usd: Decimal = ZERO
) -> Reserved | None:
    """The part of one run: what is `free`, and no more than `asked` bounds. None if that is too little for one request,
    which costs `least_usd` at the least."""
    among, amounts, parts = Among(count=1, least_usd=least_usd), list[Amount](), list[Countable]()
    for limit, left in zip(limits, free, strict=True):
        bound = bound_by(asked, of=limit)
        amount = left if bound is None else min(left, bound)
        part = with_amount(limit, amount)
        if not part.share(Spent(), among=among).enough:
            return None
        amounts.append(amount)
        parts.append(part)
    others = [part for part in parts_of(asked) if not _is_counted(part, limits)]
    whole = AnyOf((*others, *parts))
    return Reserved(amounts=tuple(amounts), limit=whole if len(whole.limits) > 1 else parts[0])


def with_amount(limit: Countable, amount: Amount) -> Countable:
    """The same limit of so much."""
    return msgspec.structs.replace(limit, **{limit.__struct_fields__[0]: amount})


def _check_is_limit(limit: object, *, name: str) -> None:
    if not isinstance(limit, get_args(Limit)):
        raise CallerError(f"`{name}` of a budget must be a limit, `MaxRequests(100)`, not `{type(limit).__name__}`")


def _is_counted(limit: Limit, by: Sequence[Countable]) -> bool:
    return isinstance(limit, Countable) and any(_counts_the_same(limit, one) for one in by)


def _counts_the_same(one: Countable, other: Countable) -> bool:
    if isinstance(one, MaxTokens) and isinstance(other, MaxTokens):
        return one.counts == other.counts
    return type(one) is type(other)
