"""`Budget`: many runs, of one agent or of several, under one limit."""

import contextlib
import threading
from collections.abc import Generator, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from turnwise.errors import BudgetSpent
from turnwise.rules.limits import AnyOf, Limit, MaxCost, Spent
from turnwise.rules.pricing import ZERO
from turnwise.rules.reserving import (
    Amount,
    Countable,
    amount_of,
    bound_by,
    check_part,
    countable,
    reserve,
    used_of,
    with_amount,
)

if TYPE_CHECKING:
    from turnwise.drivers.journal.ledger import LedgerEntry
    from turnwise.drivers.running.runner import Runner
    from turnwise.faces.bill import Bill


class Budget:
    """One limit and one bill for many runs: `limits=budget` of several agents and runs, also at once.

        budget = Budget(MaxCost("2.00") | MaxRequests(100), per_run=MaxCost("0.20") | MaxRequests(10))

    Each run reserves its part before it sends anything: `per_run`, or what is left if that is less. What it has not spent is free
    again when it ends. Each run keeps one request of its part for its answer. Sub-agents spend the part of the run that started
    them. `per_run` names a part of each of the budget's limits; steps and time may stand in it, too. Without `per_run` a run
    reserves all that is free, so a second run at the same time raises BudgetSpent.

    A run for which too little is free raises BudgetSpent. Raises CallerError for limits of steps or time, and for `&`. The budget
    lives in this process: another process has its own.
    """

    def __init__(self, limit: Limit, *, per_run: Limit | None = None) -> None:
        self._limits = countable(limit)
        if per_run is not None:
            check_part(per_run, of=self._limits)
        self.limit, self.per_run = limit, per_run
        self._lock = threading.Lock()  # runs of several event loops may share it
        self._used: list[Amount] = [ZERO if isinstance(amount_of(one), Decimal) else 0 for one in self._limits]
        self._reserved: dict[Reservation, tuple[Amount, ...]] = {}
        self._spent = Spent()
        self._entries: dict[tuple[str, int], LedgerEntry] = {}

    @property
    def most_of_a_run(self) -> Limit:
        """All that one run may ever have."""
        return self.limit if self.per_run is None else self.limit | self.per_run

    @property
    def spent(self) -> Spent:
        """What the runs that have ended spent: requests, tokens, tool calls, and dollars if the budget limits cost."""
        return self._spent

    @property
    def left(self) -> Limit:
        """What is neither spent nor reserved, as a limit. A run whose spending is unknown counts with its whole part."""
        with self._lock:
            parts = [with_amount(one, free) for one, free in zip(self._limits, self._free(), strict=True)]
        return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]

    @property
    def ledger(self) -> "Bill":
        """The requests of all runs that have ended, sub-agents' among them, as `RunResult.ledger` has those of one."""
        from turnwise.faces.bill import Bill

        return Bill(self._entries.values())

    @contextlib.contextmanager
    def reserving(
        self, limits: Limit | None, *, least_usd: Decimal = ZERO, whole: bool = False
    ) -> "Generator[Reservation]":
        """A run's part, which is given back at the end. `limits` are the run's own, `per_run` among them; `whole`: it needs all
        that they bound, as a turn that goes on has begun with it. Raises BudgetSpent."""
        reservation = self._reserve(limits, least_usd=least_usd, whole=whole)
        token = _held.set(frozenset([self]))
        try:
            yield reservation
        finally:
            _held.reset(token)
            self._settle(reservation)

    def is_held_above(self) -> bool:
        """Whether the run that starts a sub-agent has reserved for it here."""
        return self in _held.get()

    def _reserve(self, limits: Limit | None, *, least_usd: Decimal, whole: bool) -> "Reservation":
        with self._lock:
            free = self._free()
            found = reserve(self._limits, free=free, asked=limits, least_usd=least_usd)
            if found is None or (whole and self._falls_short(found.amounts, limits)):
                raise BudgetSpent(self._said(free))
            reservation = Reservation(found.limit)
            self._reserved[reservation] = found.amounts
        return reservation

    def _falls_short(self, amounts: Sequence[Amount], limits: Limit | None) -> bool:
        """Whether one of these amounts is less than `limits` allow."""
        bounds = [bound_by(limits, of=one) for one in self._limits]
        return any(bound is not None and amount < bound for amount, bound in zip(amounts, bounds, strict=True))

    def _free(self) -> list[Amount]:
        """Of each limit what is neither spent nor reserved; never below 0."""
        return [
            max(amount_of(limit) - self._used[nth] - sum([one[nth] for one in self._reserved.values()]), 0)
            for nth, limit in enumerate(self._limits)
        ]

    def _settle(self, reservation: "Reservation") -> None:
        spent = reservation.spent
        with self._lock:
            amounts = self._reserved.pop(reservation)
            for nth, limit in enumerate(self._limits):
                self._used[nth] += spent.counted(limit, reserved=amounts[nth])
            self._spent = msgspec.structs.replace(self._spent + spent.known, steps=0, elapsed_s=0.0)
            self._entries.update(reservation.entries)

    def _said(self, free: list[Amount]) -> str:
        left = ", ".join([f"{amount} of `{limit}`" for limit, amount in zip(self._limits, free, strict=True)])
        running = len(self._reserved)
        if not running:
            return f"the budget is spent: {left} left, too little for another run. Raise its limit, or start a new one"
        told = "" if self.per_run is not None else ", or give `Budget(..., per_run=...)`: without it a run reserves all"
        runs = "a run that has" if running == 1 else f"{running} runs that have"
        return (
            f"the budget has {left} free, beside {runs} not ended: too little for another run. Try again when one has "
            f"ended{told}"
        )


class RunSpending(msgspec.Struct, frozen=True):
    """What of a run's spending is known; whether that is all of it, and all of its cost."""

    known: Spent
    is_whole: bool = True
    knows_cost: bool = True

    def counted(self, limit: Countable, *, reserved: Amount) -> Amount:
        """What counts towards the limit: all that was reserved, where the spending is unknown."""
        used = used_of(limit, self.known)
        is_known = self.is_whole and (self.knows_cost or not isinstance(limit, MaxCost))
        return used if is_known else max(used, reserved)


class Reservation:
    """One run's part of a budget, as the limit of the run. `runner` runs its turn, once there is one."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.runner: Runner | None = None
        self.path: tuple[str, ...] = ()  # the sub-agents that lead to the run

    @property
    def spent(self) -> RunSpending:
        if self.runner is None:
            return RunSpending(Spent())
        if self.runner.result is None:
            return RunSpending(Spent(requests=len(self.entries)), is_whole=not self.entries)
        from turnwise.drivers.running.children import spent_with_children

        sums = spent_with_children(self.runner.result)
        known = Spent(
            requests=sums.requests,
            input_tokens=sums.usage.input_tokens,
            output_tokens=sums.usage.output_tokens,
            cost_usd=sums.charged_usd or ZERO,
        )
        return RunSpending(known + self.runner.result.also_spent, knows_cost=sums.charged_usd is not None)

    @property
    def entries(self) -> "dict[tuple[str, int], LedgerEntry]":
        ledger = None if self.runner is None else self.runner.ledger
        entries = () if ledger is None else ledger.entries
        depth = len(self.path)
        return {(one.turn, one.number): one for one in entries if one.path[:depth] == self.path}


_held: "ContextVar[frozenset[Budget]]" = ContextVar("budgets of the run at hand", default=frozenset())
