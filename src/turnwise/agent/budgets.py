"""`Budget`: many runs, of one agent or of several, under one limit."""

import contextlib
import logging
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

import msgspec

from turnwise.errors import BudgetSpent, CallerError, JournalFailed
from turnwise.journal.budgets import BudgetRow, BudgetRun, holder_in, process_of
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry, tells_tokens
from turnwise.journal.owners import is_alive, is_here, our_name
from turnwise.rules.limits import Limit, Spent
from turnwise.rules.pricing import ZERO
from turnwise.rules.reservations import (
    Amount,
    BudgetPart,
    BudgetState,
    Reserved,
    RunSpending,
    bound_by,
    check_part,
    leaves_of_budget,
    reserve,
    shown,
    unspent,
)
from turnwise.running.run_context import variable_of_run
from turnwise.vocab import StopReason

if TYPE_CHECKING:
    from turnwise.agent.results import Bill
    from turnwise.journal.journal import Journal
    from turnwise.journal.ledger import LedgerEntry
    from turnwise.running.runner import Runner

# Where a budget is kept: in this process, or in a journal that several processes use.


LONGEST_NAME = 200  # characters

Outcome = TypeVar("Outcome")


class LeftPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part whose process does not run on this machine. `may_live`: the process is on another machine and may still work on the
    run."""

    session: str
    process: str
    may_live: bool


class BudgetAtHand(Protocol):
    """A budget during a change: nobody else changes it meanwhile."""

    def read(self, new: BudgetState, /) -> BudgetState: ...
    def write(self, state: BudgetState, /) -> None: ...
    def keep_run(self, run: BudgetRun, /) -> None: ...
    def runs_of(self, turns: Iterable[str], /) -> list[BudgetRun]: ...
    def spending(self, run: BudgetRun, /) -> RunSpending: ...
    def spent_by_ended(self, parts: Mapping[str, BudgetPart], /, *, begins: BudgetRun) -> dict[str, RunSpending]: ...


class BudgetKeeper(Protocol):
    """Keeps one budget."""

    @property
    def key(self) -> object:
        """Two budgets with the same key are the same budget."""
        ...

    def change(self, work: Callable[[BudgetAtHand], Outcome], /) -> Outcome:
        """Run `work` while nobody else changes the budget. `work` may be called again even if its first call took effect."""
        ...

    async def beside(self, work: Callable[[], Outcome], /) -> Outcome:
        """Run `work` beside the event loop; return its result or raise its error. `work` may be called again. A cancel takes
        effect after it."""
        ...

    def look(self) -> BudgetState: ...
    def bill(self, entries: Mapping[tuple[str, int], LedgerEntry], /) -> None:
        """Keep the requests of a run that has ended."""
        ...

    def billed(self) -> list[LedgerEntry]:
        """The requests of the runs that have ended, in the order in which they were sent."""
        ...

    def left(self, state: BudgetState, /) -> list[LeftPart]:
        """The parts of runs whose process is gone or is on another machine."""
        ...

    @property
    def outlives_processes(self) -> bool:
        """Whether another process may continue a run and settle its part."""
        ...

    def check_journal(self, journal: Journal | None, /) -> None:
        """Raise CallerError for a run whose journal does not hold the budget."""
        ...


class MemoryKeeper:
    """The budget of one process. Runs of several event loops may share it."""

    outlives_processes = False

    def __init__(self, new: BudgetState) -> None:
        self._state = new
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, int], LedgerEntry] = {}

    @property
    def key(self) -> object:
        return self

    def change(self, work: Callable[[BudgetAtHand], Outcome]) -> Outcome:
        with self._lock:
            return work(self)

    async def beside(self, work: Callable[[], Outcome]) -> Outcome:
        """It never waits for another process."""
        return work()

    def read(self, new: BudgetState) -> BudgetState:
        return self._state

    def write(self, state: BudgetState) -> None:
        self._state = state

    def keep_run(self, run: BudgetRun) -> None:
        """Nothing to keep: the run brings its requests when it ends."""

    def spent_by_ended(self, parts: Mapping[str, BudgetPart], *, begins: BudgetRun) -> dict[str, RunSpending]:
        """Empty: every run of this process settles its own part."""
        return {}

    def runs_of(self, turns: Iterable[str]) -> list[BudgetRun]:
        """Empty: no other process has a run to give up."""
        return []

    def spending(self, run: BudgetRun) -> RunSpending:
        """Unknown: only the run itself knows it."""
        return RunSpending(Spent(), is_whole=False)

    def look(self) -> BudgetState:
        return self._state

    def bill(self, entries: Mapping[tuple[str, int], LedgerEntry]) -> None:
        self._entries.update(entries)

    def billed(self) -> list[LedgerEntry]:
        return list(self._entries.values())

    def left(self, state: BudgetState) -> list[LeftPart]:
        return []

    def check_journal(self, journal: Journal | None) -> None:
        """Every journal is accepted."""


class JournalKeeper:
    """The budget that all processes with the same journal share, by its name."""

    outlives_processes = True

    def __init__(self, journal: Journal, *, name: str, new: BudgetState) -> None:
        self._journal, self._name, self._new = journal, name, new
        self._book = journal.budgets

    @property
    def key(self) -> object:
        return self._journal.address() or self._journal, self._name

    def change(self, work: Callable[[BudgetAtHand], Outcome]) -> Outcome:
        def checked(row: BudgetRow) -> Outcome:
            self._check(row.read(self._new))
            return work(row)

        return self._book.change(self._name, checked)

    async def beside(self, work: Callable[[], Outcome]) -> Outcome:
        return await self._journal.beside(work)

    def look(self) -> BudgetState:
        state = self._book.look(self._name, new=self._new)
        self._check(state)
        return state

    def bill(self, entries: Mapping[tuple[str, int], LedgerEntry]) -> None:
        """Nothing to keep: the journal's ledger has the requests."""

    def billed(self) -> list[LedgerEntry]:
        return self._book.entries(self._name, without=self.look().parts)

    def left(self, state: BudgetState) -> list[LeftPart]:
        processes = {turn: process_of(part) for turn, part in state.parts.items()}
        gone = {turn for turn, process in processes.items() if not (is_alive(process) and is_here(process))}
        return [
            LeftPart(
                session=run.root_session,
                process=processes[run.turn],
                may_live=is_alive(processes[run.turn], session=run.root_session),
            )
            for run in self._book.runs_of(self._name, gone)
        ]

    def check_journal(self, journal: Journal | None) -> None:
        if journal is None or not journal.keeps_the_same_as(self._journal):
            has = "has no journal" if journal is None else "has another journal"
            raise CallerError(
                f"the budget `{self._name}` is kept in a journal, and this agent {has}: give it the same one, "
                "`journal=Journal(PATH)`"
            )

    def _check(self, state: BudgetState) -> None:
        if state.counts != self._new.counts:
            raise CallerError(
                f"the budget `{self._name}` was begun with limits of {', '.join(state.counts)}, and this `Budget` has "
                f"{', '.join(self._new.counts)}: give the same kinds in the same order (the amounts may differ), or "
                "another name"
            )


def keeper_of(journal: object, *, name: object, new: BudgetState) -> BudgetKeeper:
    """The keeper of a budget. Raises CallerError if only one of journal and name is given, or if the name is invalid."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not name.isprintable():
        raise CallerError(f"`name` of a budget must be a text of at most {LONGEST_NAME} printable characters")
    if journal is None:
        if name:
            raise CallerError(
                f"the budget `{name}` has a name and no journal: give `journal=Journal(PATH)` to share it, or leave "
                "`name` out"
            )
        return MemoryKeeper(new)
    if not isinstance(journal, Journal):
        raise CallerError(f"`journal` of a budget must be a `Journal`, not `{type(journal).__name__}`")
    if not name:
        raise CallerError('a budget in a journal needs a name, `name="team-a"`: processes share it by its name')
    return JournalKeeper(journal, name=name, new=new)


_log = logging.getLogger("turnwise")


class Budget:
    """One limit and one bill for many runs: `limits=budget` of several agents and runs, also at once.

        budget = Budget(MaxCost("2.00") | MaxRequests(100), per_run=MaxCost("0.20") | MaxRequests(10))

    Each run reserves its part before it sends anything: `per_run`, or what is left if that is less. What it has not
    spent is free again when it ends. Each run keeps one request of its part for its answer. Sub-agents spend the part of
    the run that started them. A budget takes every limit that an agent takes: `MaxSteps` counts the steps of the runs
    themselves, `MaxWallTime` the time of all runs together. `per_run` names a part of each of the budget's limits, and may
    hold others. Without `per_run` a run reserves all that is free, so a second run at the same time raises BudgetSpent.

    A budget belongs to one process, unless it has a `journal` and a `name`: then all processes that give the same name
    and the same journal share it, and their agents must use that journal, too. Each process gives the limits itself. They
    must be of the same kinds; the amounts may differ, and each process compares with its own. If a process dies, the
    part of its run stays reserved until the session is resumed (`Agent.resume`) or has gone on without that run.

    A run for which too little is free raises BudgetSpent. Raises CallerError for a limit that allows nothing, and for a
    name without a journal.
    """

    def __init__(
        self, limit: Limit, *, per_run: Limit | None = None, journal: "Journal | None" = None, name: str = ""
    ) -> None:
        self._limits = leaves_of_budget(limit)
        if per_run is not None:
            check_part(per_run, of=self._limits)
        self.limit, self.per_run = limit, per_run
        self._new = unspent(self._limits)
        self._keeper = keeper_of(journal, name=name, new=self._new)

    def check_journal(self, journal: "Journal | None") -> None:
        """Raise CallerError for a run whose journal does not have the budget."""
        self._keeper.check_journal(journal)

    @property
    def most_of_a_run(self) -> Limit:
        """The most that one run may ever get."""
        return self.limit if self.per_run is None else self.limit | self.per_run

    @property
    def spent(self) -> Spent:
        """What the runs that have ended spent: requests, tokens, tool calls, and dollars if the budget limits cost."""
        return self._keeper.look().spent

    @property
    def left(self) -> Limit:
        """What is neither spent nor reserved, as a limit. A run whose spending is unknown counts with its whole part."""
        return shown(self.limit, amounts=self._keeper.look().free(self._limits))

    @property
    def ledger(self) -> "Bill":
        """The requests of all runs that have ended, sub-agents' among them, as `RunResult.ledger` has those of one."""
        from turnwise.agent.results import Bill

        return Bill(self._keeper.billed())

    @contextlib.asynccontextmanager
    async def reserving(
        self, run: BudgetRun, limits: Limit | None, *, least_usd: Decimal = ZERO, whole: bool = False
    ) -> "AsyncGenerator[Reservation]":
        """Reserve a run's part, and give it back at the end. `limits` are the run's own, with `per_run` among them. `whole`: a
        continued turn needs everything that its limits allow, because it began with that; the part that it had is still its own.
        Raises BudgetSpent."""
        work = partial(self._reserve, run, limits, least_usd=least_usd, whole=whole)
        reservation = await self._keeper.beside(work)
        token = _held.set(_held.get() | {self._keeper.key})
        try:
            yield reservation
        finally:
            _held.reset(token)
            await self._settle(reservation)

    def is_held_above(self) -> bool:
        """Whether the run that starts a sub-agent has reserved for it in this budget."""
        return self._keeper.key in _held.get()

    def _reserve(self, run: BudgetRun, limits: Limit | None, *, least_usd: Decimal, whole: bool) -> "Reservation":
        holder = holder_in(our_name(), token=secrets.token_hex(8))

        def found_in(state: BudgetState) -> Reserved | None:
            own = state.parts.get(run.turn)
            free = state.free(self._limits) if own is None else own.amounts
            others = state if own is None else state.without(run.turn)
            found = reserve(self.limit, state=others, free=free, asked=limits, least_usd=least_usd)
            return None if found is None or (whole and self._falls_short(found.amounts, limits)) else found

        def reserve_in(budget: BudgetAtHand) -> Reservation | BudgetState:
            state = budget.read(self._new)
            found = found_in(state)
            if found is None:
                state = self._without_ended(budget, state, begins=run)
                found = found_in(state)
            if found is None:
                return state
            own, part = state.parts.get(run.turn), BudgetPart(found.amounts, holder)
            if own is None:
                budget.write(state.with_part(run.turn, part))
                budget.keep_run(run)
            is_taken_over = own is not None and own.holder != holder
            return Reservation(self, run, found.limit, part=part, is_taken_over=is_taken_over)

        reserved = self._keeper.change(reserve_in)
        if isinstance(reserved, BudgetState):
            raise BudgetSpent(self._said(reserved))
        return reserved

    def _without_ended(self, budget: BudgetAtHand, state: BudgetState, *, begins: BudgetRun) -> BudgetState:
        """Settle the parts of runs that ended before their process died, but that it could not settle."""
        settled = state
        for turn, spending in budget.spent_by_ended(state.parts, begins=begins).items():
            settled = settled.settled(turn, limits=self._limits, spending=spending)
        if settled is not state:
            budget.write(settled)
        return settled

    def _falls_short(self, amounts: Sequence[Amount], limits: Limit | None) -> bool:
        """Whether one of these amounts is less than `limits` allow."""
        bounds = [bound_by(limits, of=one) for one in self._limits]
        return any(bound is not None and amount < bound for amount, bound in zip(amounts, bounds, strict=True))

    async def take_over(self, run: BudgetRun, part: BudgetPart) -> None:
        """From now on the part's new holder settles it, and the old process does not. If a third process has given the part back
        meanwhile, it is reserved again, because the run spends it. Raises JournalFailed."""

        def take_in(budget: BudgetAtHand) -> None:
            state = budget.read(self._new)
            amounts = state.parts[run.turn].amounts if run.turn in state.parts else part.amounts
            budget.write(state.with_part(run.turn, BudgetPart(amounts, part.holder)))
            budget.keep_run(run)

        await self._keeper.beside(partial(self._keeper.change, take_in))

    async def _settle(self, reservation: "Reservation") -> None:
        """Settle the part at the end of a run. The part stays reserved if another process continues the turn, or if its journal
        fails."""
        if self._keeper.outlives_processes and reservation.goes_on:
            return
        turn, holder, spending = reservation.run.turn, reservation.part.holder, reservation.spent

        def settle_in(budget: BudgetAtHand) -> None:
            state = budget.read(self._new)
            if (part := state.parts.get(turn)) is not None and part.holder == holder:
                budget.write(state.settled(turn, limits=self._limits, spending=spending))

        try:
            await self._keeper.beside(partial(self._keeper.change, settle_in))
        except JournalFailed as failed:
            _log.warning("a run has ended, and its part of the budget stays reserved: %s", failed)
        self._keeper.bill(reservation.entries)

    def _said(self, state: BudgetState) -> str:
        free = state.free(self._limits)
        left = ", ".join([f"{amount} of `{limit}`" for limit, amount in zip(self._limits, free, strict=True)])
        running, left_parts = len(state.parts), self._keeper.left(state)
        gone = [one.session for one in left_parts if not one.may_live]
        elsewhere = [f"{one.session} ({one.process})" for one in left_parts if one.may_live]
        if not running:
            return f"the budget is spent: {left} left, too little for another run. Raise its limit, or start a new one"
        told = "" if self.per_run is not None else ", or give `Budget(..., per_run=...)`: without it a run reserves all"
        runs = "a run that has" if running == 1 else f"{running} runs that have"
        advice = [f"try again when one has ended{told}"] if len(gone) < running else list[str]()
        if gone:
            advice.append(
                f"resume the sessions whose process is gone, or give them up (`Budget.give_up`): {_listed(gone)}"
            )
        if elsewhere:
            advice.append(f"give up sessions of other machines whose process has died: {_listed(elsewhere)}")
        return f"the budget has {left} free, beside {runs} not ended: too little for another run; {'; '.join(advice)}"

    def give_up(self, session: str) -> None:
        """Settle the parts of a session whose process is gone and that nobody will resume: what its runs spent counts, and
        the rest is free. `session` is the id of a session at the root; BudgetSpent names them.

        Raises CallerError if the session has no part, or if a process of this machine still runs it. If a process of
        another machine runs it, this process goes on, and what it spends from now on is not counted.
        """

        def give_up_in(budget: BudgetAtHand) -> None:
            state = budget.read(self._new)
            runs = [run for run in budget.runs_of(state.parts) if run.root_session == session]
            if not runs:
                raise CallerError(
                    f"no run of session `{session}` has a part of this budget: there is nothing to give up"
                )
            for run in runs:
                process = process_of(state.parts[run.turn])
                if is_here(process) and is_alive(process):
                    raise CallerError(f"session `{session}` is running ({process}): wait for it, or end that process")
                state = state.settled(run.turn, limits=self._limits, spending=budget.spending(run))
            budget.write(state)

        self._keeper.change(give_up_in)

    def _joined(self, other: object) -> NoReturn:
        raise CallerError(
            f"a budget is the whole of `limits`: put `{other}` into its `per_run`, or into the budget itself"
        )

    __or__ = __ror__ = __and__ = __rand__ = _joined


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(set(names)))


class Reservation:
    """One run's part of a budget, as the limit of the run. `runner` runs its turn, once the turn has begun."""

    def __init__(self, budget: Budget, run: BudgetRun, limit: Limit, *, part: BudgetPart, is_taken_over: bool) -> None:
        self._budget, self.run, self.limit, self.part = budget, run, limit, part
        self._is_taken_over = is_taken_over
        self.runner: Runner | None = None

    async def begins(self, runner: "Runner") -> None:
        """The turn runs here: no other process can run it any more."""
        self.runner = runner
        if self._is_taken_over:
            try:
                await self._budget.take_over(self.run, self.part)
            except JournalFailed as failed:
                _log.warning("a run goes on, and its part of the budget will stay reserved: %s", failed)

    @property
    def goes_on(self) -> bool:
        """Whether the turn has begun but not ended: it was handed over, or its journal failed."""
        result = None if self.runner is None else self.runner.result
        return self.runner is not None and (result is None or result.stop_reason is StopReason.JOURNAL_FAILED)

    @property
    def spent(self) -> RunSpending:
        """What the run has spent, as far as it is known."""
        if self.runner is None:
            return RunSpending(Spent())
        if self.runner.result is None:
            return RunSpending(Spent(requests=len(self.entries)), is_whole=not self.entries)
        from turnwise.running.children import spent_with_children

        sums = spent_with_children(self.runner.result)
        known = Spent(
            steps=self.runner.result.steps,
            elapsed_s=round(self.runner.elapsed_s, 3),
            requests=sums.requests,
            input_tokens=sums.usage.input_tokens,
            output_tokens=sums.usage.output_tokens,
            cost_usd=sums.charged_usd or ZERO,
        )
        return RunSpending(
            known + self.runner.result.also_spent,
            knows_tokens=all(map(tells_tokens, self.entries.values())),
            knows_cost=sums.charged_usd is not None,
        )

    @property
    def entries(self) -> "dict[tuple[str, int], LedgerEntry]":
        """The requests of the run and of the sub-agents below it."""
        ledger = None if self.runner is None else self.runner.ledger
        if ledger is None:
            return {}
        found = ledger.entries_below(self.run.turn) if self.run.path else ledger.entries
        return {(one.turn, one.number): one for one in found}


_held: ContextVar[frozenset[object]] = variable_of_run("budgets_held", default=frozenset[object]())
