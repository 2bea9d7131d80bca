"""Many runs within one limit: each reserves its part before it spends, and gives back what is left over.

The parts that are reserved and what was spent are together never more than the limit. So no order in which runs begin and end
lets them start a request that the limit forbids; each run is as exact as its own limit is.
"""

from collections.abc import Mapping, Sequence
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


class RunSpending(msgspec.Struct, frozen=True):
    """What of a run's spending is known; whether that is all of it, all of its cost, of its tokens and of its tool calls."""

    known: Spent
    is_whole: bool = True
    knows_cost: bool = True
    knows_tokens: bool = True
    knows_tool_calls: bool = True

    def counted(self, limit: Countable, *, reserved: Amount) -> Amount:
        """What counts towards the limit: all that was reserved, where the spending is unknown."""
        used = used_of(limit, self.known)
        return used if self.is_whole and self._knows(limit) else max(used, reserved)

    def _knows(self, limit: Countable) -> bool:
        match limit:
            case MaxCost():
                return self.knows_cost
            case MaxTokens():
                return self.knows_tokens
            case MaxToolCalls():
                return self.knows_tool_calls
            case MaxRequests():
                return True


class BudgetPart(msgspec.Struct, frozen=True):
    """What one run has reserved, an amount for each limit of the budget. Only its `holder` settles it."""

    amounts: tuple[Amount, ...]
    holder: str


class BudgetState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a budget stands: what its limits count, what was `used` of each, and the parts of runs that have not ended, by the id
    of their turn. `spent` is the sum of the runs that have ended."""

    counts: tuple[str, ...]
    used: tuple[Amount, ...]
    parts: Mapping[str, BudgetPart] = {}
    spent: Spent = Spent()

    def free(self, limits: Sequence[Countable]) -> list[Amount]:
        """Of each limit what is neither used nor reserved; never below 0."""
        reserved = [part.amounts for part in self.parts.values()]
        return [
            max(amount_of(limit) - self.used[nth] - sum([amounts[nth] for amounts in reserved]), 0)
            for nth, limit in enumerate(limits)
        ]

    def with_part(self, turn: str, part: BudgetPart) -> "BudgetState":
        return msgspec.structs.replace(self, parts={**self.parts, turn: part})

    def settled(self, turn: str, *, limits: Sequence[Countable], spending: RunSpending) -> "BudgetState":
        """The run has ended: what it spent counts, and the rest of its part is free."""
        amounts = self.parts[turn].amounts
        return msgspec.structs.replace(
            self,
            used=tuple(
                [
                    used + spending.counted(limit, reserved=reserved)
                    for limit, used, reserved in zip(limits, self.used, amounts, strict=True)
                ]
            ),
            parts={id: part for id, part in self.parts.items() if id != turn},
            spent=msgspec.structs.replace(self.spent + spending.known, steps=0, elapsed_s=0.0),
        )


def unspent(limits: Sequence[Countable]) -> BudgetState:
    """A budget of which nothing is used yet."""
    return BudgetState(
        counts=tuple([counted_by(one) for one in limits]),
        used=tuple([ZERO if isinstance(amount_of(one), Decimal) else 0 for one in limits]),
    )


def counted_by(limit: Countable) -> str:
    """What a limit counts, by name: two with the same name differ in their amounts only."""
    return f"MaxTokens({limit.counts})" if isinstance(limit, MaxTokens) else type(limit).__name__


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
    return counted_by(one) == counted_by(other)
