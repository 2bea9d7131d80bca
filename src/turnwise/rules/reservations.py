"""Many runs within one limit: each reserves its part before it spends, and gives back what is left over. So do sub-agents.

The parts that are reserved and what was spent are together never more than the limit. So no order in which runs begin and end
lets them start a request that the limit forbids; each run is as exact as its own limit is.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, get_args

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.advice import DO_IT_YOURSELF
from turnwise.rules.limits import (
    LEAST_ANSWER_TOKENS,
    NOTHING_LEFT,
    AllOf,
    Among,
    AnyOf,
    Leaf,
    Limit,
    MaxSteps,
    MaxTokens,
    MaxWallTime,
    Share,
    Spent,
    amount_in,
    counted,
    fault_of_limit,
    folded,
    leaves_of,
)
from turnwise.rules.pricing import ZERO, PriceRow, add
from turnwise.vocab.json_values import without

Amount = int | Decimal  # seconds are decimals, too


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """What one run may spend, an amount for each of the budget's limits, and the same as a limit."""

    amounts: tuple[Amount, ...]
    limit: Limit


class RunSpending(msgspec.Struct, frozen=True):
    """What of a run's spending is known; whether that is all of it, all of its cost and of its tokens, and whether its turn told
    of the steps, tool calls and time, which no ledger knows."""

    known: Spent
    is_whole: bool = True
    knows_cost: bool = True
    knows_tokens: bool = True
    knows_turn: bool = True

    def counted(self, limit: Leaf, *, reserved: Amount) -> Amount:
        """What counts towards the limit: all that was reserved, where the spending is unknown."""
        used = used_of(limit, self.known)
        return used if self.is_whole and self._knows(limit) else max(used, reserved)

    def _knows(self, limit: Leaf) -> bool:
        match limit.told_by:
            case "cost":
                return self.knows_cost
            case "tokens":
                return self.knows_tokens
            case "turn":
                return self.knows_turn
            case "requests":
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

    def free(self, limits: Sequence[Leaf]) -> list[Amount]:
        """Of each limit what is neither used nor reserved; never below 0."""
        reserved = [part.amounts for part in self.parts.values()]
        return [
            max(amount_of(limit) - self.used[nth] - sum([amounts[nth] for amounts in reserved]), 0)
            for nth, limit in enumerate(limits)
        ]

    def is_reserved(self, nth: int) -> bool:
        """Whether a run has a part of that limit."""
        return any(part.amounts[nth] > 0 for part in self.parts.values())

    def without(self, turn: str) -> "BudgetState":
        return msgspec.structs.replace(self, parts=without(self.parts, (turn,)))

    def with_part(self, turn: str, part: BudgetPart) -> "BudgetState":
        return msgspec.structs.replace(self, parts={**self.parts, turn: part})

    def settled(self, turn: str, *, limits: Sequence[Leaf], spending: RunSpending) -> "BudgetState":
        """The run has ended: what it spent counts, and the rest of its part is free."""
        amounts, kinds = self.parts[turn].amounts, {type(limit) for limit in limits}
        spent = self.spent + spending.known
        return msgspec.structs.replace(
            self,
            used=tuple(
                [
                    used + spending.counted(limit, reserved=reserved)
                    for limit, used, reserved in zip(limits, self.used, amounts, strict=True)
                ]
            ),
            parts=self.without(turn).parts,
            spent=msgspec.structs.replace(
                spent,
                steps=spent.steps if MaxSteps in kinds else 0,
                elapsed_s=spent.elapsed_s if MaxWallTime in kinds else 0.0,
            ),
        )


def unspent(limits: Sequence[Leaf]) -> BudgetState:
    """A budget of which nothing is used yet."""
    return BudgetState(
        counts=tuple([counted_by(one) for one in limits]),
        used=tuple([ZERO if isinstance(amount_of(one), Decimal) else 0 for one in limits]),
    )


def counted_by(limit: Leaf) -> str:
    """What a limit counts, by name: two with the same name differ in their amounts only."""
    return f"MaxTokens({limit.counts})" if isinstance(limit, MaxTokens) else type(limit).__name__


def leaves_of_budget(limit: Limit) -> tuple[Leaf, ...]:
    """The limits that it is made of. Raises CallerError for what is no limit, and for one that allows nothing."""
    _check_is_limit(limit, name="limit")
    if fault := fault_of_limit(limit):
        raise CallerError(f"`limit` of a budget cannot hold: {fault}")
    return leaves_of(limit)


def check_part(part: Limit, *, of: Sequence[Leaf]) -> None:
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


def bound_by(limit: Limit | None, *, of: Leaf) -> Amount | None:
    """What `limit` allows of that which `of` counts, whatever else is spent; None if it does not bound it."""
    found = [
        amount_of(part) for part in parts_of(limit) if isinstance(part, Leaf) and counted_by(part) == counted_by(of)
    ]
    return min(found, default=None)


def parts_of(limit: Limit | None) -> tuple[Limit, ...]:
    """Those of which each stops a run by itself."""
    if limit is None:
        return ()
    return limit.limits if isinstance(limit, AnyOf) else (limit,)


def amount_of(limit: Leaf) -> Amount:
    return _exact(limit, amount_in(limit))


def used_of(limit: Leaf, spent: Spent) -> Amount:
    """What counts towards it."""
    return _exact(limit, limit.used(spent))


def _exact(limit: Leaf, amount: Any) -> Amount:
    return Decimal(str(amount)) if isinstance(limit, MaxWallTime) else amount


def reserve(
    whole: Limit, *, state: BudgetState, free: Sequence[Amount], asked: Limit | None, least_usd: Decimal = ZERO
) -> Reserved | None:
    """The part of one run: what is `free` of each limit, and no more than `asked` bounds. None if that is too little for one
    request, which costs `least_usd` at the least.

    A run alone may go beyond one side of `&` as long as it keeps to the other. Runs that begin beside others keep to each side:
    with one of them beyond the first side, and another beyond the second, the whole would be exceeded.
    """
    among, limits = Among(count=1, least_usd=least_usd), leaves_of(whole)
    amounts, shares = list[Amount](), list[Share]()
    for limit, left in zip(limits, free, strict=True):
        bound = bound_by(asked, of=limit)
        part = with_amount(limit, left if bound is None else min(left, bound))
        is_enough = part.fault() is None and part.share(Spent(), among=among).enough
        amounts.append(amount_of(part))
        shares.append(Share(part, enough=is_enough))
    alone = not state.parts
    used_up = [not one.enough and (alone or not state.is_reserved(nth)) for nth, one in enumerate(shares)]
    coming = iter(zip(shares, used_up, strict=True))
    found, _ = folded(whole, leaf=lambda _: next(coming), either=_either, both=_all if alone else _each)
    if not found.enough or found.limit is None:
        return None
    others = [part for part in parts_of(asked) if not _is_counted(part, parts_of(whole))]
    limit = AnyOf((*others, *parts_of(found.limit))) if others else found.limit
    return Reserved(amounts=tuple(amounts), limit=limit)


Side = tuple[Share, bool]  # and whether it is used up, with no run that has a part of it


def _either(sides: list[Side]) -> Side:
    limits = [part for share, _ in sides for part in parts_of(share.limit)]
    limit = limits[0] if len(limits) == 1 else AnyOf(tuple(limits))
    return Share(limit, enough=all(share.enough for share, _ in sides)), any(used for _, used in sides)


def _all(sides: list[Side]) -> Side:
    """A side that is used up stops nothing by itself: the others decide."""
    left = [share.limit for share, used in sides if not used and share.enough and share.limit is not None]
    if not left:
        return sides[0][0], True
    return Share(left[0] if len(left) == 1 else AllOf(tuple(left))), False


def _each(sides: list[Side]) -> Side:
    left = [side for side in sides if not side[1]]
    return _either(left) if left else (sides[0][0], True)


def shown(whole: Limit, *, amounts: Sequence[Amount]) -> Limit:
    """The same formula with these amounts."""
    parts = iter([with_amount(one, amount) for one, amount in zip(leaves_of(whole), amounts, strict=True)])
    return folded(
        whole,
        leaf=lambda _: next(parts),
        either=lambda found: AnyOf(tuple(found)),
        both=lambda found: AllOf(tuple(found)),
    )


def with_amount(limit: Leaf, amount: Amount) -> Leaf:
    """The same limit of so much."""
    own = float(amount) if isinstance(limit, MaxWallTime) else amount
    return msgspec.structs.replace(limit, **{limit.__struct_fields__[0]: own})


def _check_is_limit(limit: object, *, name: str) -> None:
    if not isinstance(limit, get_args(Limit)):
        raise CallerError(f"`{name}` of a budget must be a limit, `MaxRequests(100)`, not `{type(limit).__name__}`")


def _is_counted(limit: Limit, by: Sequence[Limit]) -> bool:
    """Whether a limit that stops the run by itself counts the same."""
    return isinstance(limit, Leaf) and any(isinstance(one, Leaf) and counted_by(limit) == counted_by(one) for one in by)


# A child's share of its parent's limits: reserved before it is spent, so that all of them together stay within.


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
    return folded(limit, leaf=lambda one: one.share(spent, among=children), either=_larger_share, both=both)


def _larger_share(found: list[Share]) -> Share:
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
    """The share of each child, and how many of the `among` children get one: as many as can pay for one request. If shares were
    too small for a request, the rest would stay unspent. `least_usd` is the least that one request of each child costs."""
    for count in range(among, 0, -1):
        dearest = max(least_usd[:count], default=ZERO)
        share = share_of(limit, spent=spent, among=count, least_usd=dearest)
        if share.enough:
            return share, count
    return NOTHING_LEFT, 0


# The bounds on a turn's whole tree: how many sub-agents it has, and how many requests they make together (promise safe:bounded).
#
# Each sub-agent is given its places before it starts, for itself and for those that it starts in turn, so the bounds hold
# however many run at once. What it leaves comes back when it has ended.


MAX_SUBAGENTS = (
    32  # one prompt started 118 that made 884 requests in 15 s; a person cannot look through more than these
)
MAX_SUBAGENT_REQUESTS = 300  # nine each for all of them, or fifteen whole turns of 20 steps


class SubagentBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn's sub-agents may be and do together, theirs included; None: nothing bounds it."""

    subagents: int | None = None
    requests: int | None = None


class Used(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sub-agents of a turn so far, theirs included, and the requests that they made."""

    subagents: int = 0
    requests: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one sub-agent may use: so many of its own below it, and so many requests with them; None: nothing bounds it."""

    subagents: int | None = None
    requests: int | None = None


def places_of(bounds: SubagentBounds, *, used: Used, among: int) -> tuple[Place, ...]:
    """The places of as many of the first of `among` sub-agents as there is room for: each has a request at the least. What
    does not divide evenly goes to the first ones."""
    count = among
    if bounds.subagents is not None:
        count = min(count, bounds.subagents - used.subagents)
    if bounds.requests is not None:
        count = min(count, bounds.requests - used.requests)
    if count <= 0:
        return ()
    below = _divided(None if bounds.subagents is None else bounds.subagents - used.subagents - count, among=count)
    requests = _divided(None if bounds.requests is None else bounds.requests - used.requests, among=count)
    return tuple([Place(subagents=own, requests=most) for own, most in zip(below, requests, strict=True)])


def paid(used: Used, *, subagents: int, requests: int, place: Place | None, has_ended: bool) -> Used:
    """What is used once a sub-agent has come back, with `subagents` below it and `requests` of all of them. One that was left
    behind may go on, so its whole place is used."""
    if place is not None and not has_ended:
        subagents, requests = max(subagents, place.subagents or 0), max(requests, place.requests or 0)
    return Used(subagents=used.subagents + 1 + subagents, requests=used.requests + requests)


def no_place(bounds: SubagentBounds, *, used: Used, started: int) -> str:
    """The result of a call whose sub-agent has no place; `started` are those that start beside it."""
    have = used.subagents + started
    if bounds.subagents is not None and have >= bounds.subagents:
        which = f"the limit of {counted(bounds.subagents, 'sub-agent')} is reached ({have} started, theirs included)"
    else:
        rest = f", the rest is for {counted(started, 'sub-agent')} beside it" if started else ""
        most = counted(bounds.requests or 0, "request")
        which = f"the limit of {most} by sub-agents leaves none for this one ({used.requests} made{rest})"
    return f"Not run: {which}. {DO_IT_YOURSELF}"


def _divided(amount: int | None, *, among: int) -> list[int | None]:
    if amount is None:
        return [None] * among
    each, extra = divmod(amount, among)
    return [each + (place < extra) for place in range(among)]
