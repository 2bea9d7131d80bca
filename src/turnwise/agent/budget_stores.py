"""Where a budget stands: in this process, or in a journal that several processes use."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

import msgspec

from turnwise.errors import CallerError
from turnwise.journal.budgets import BudgetRow, BudgetRun, process_of
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.owners import is_alive, is_here
from turnwise.rules.limits import Spent
from turnwise.rules.reservations import BudgetPart, BudgetState, RunSpending

LONGEST_NAME = 200  # characters

Outcome = TypeVar("Outcome")


class LeftPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part that no process of this machine has. `may_live`: the process is on another machine, and may work on the run."""

    session: str
    process: str
    may_live: bool


class BudgetAtHand(Protocol):
    """A budget that nobody else changes meanwhile."""

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
        """Two budgets with the same key are the same one."""
        ...

    def change(self, work: Callable[[BudgetAtHand], Outcome], /) -> Outcome:
        """`work`, while nobody else changes the budget. It may be called again though its first call stands."""
        ...

    async def beside(self, work: Callable[[], Outcome], /) -> Outcome:
        """What `work` gives or raises, while the event loop goes on; it may begin again. A cancel comes behind it."""
        ...

    def look(self) -> BudgetState: ...
    def bill(self, entries: Mapping[tuple[str, int], LedgerEntry], /) -> None:
        """The requests of a run that has ended."""
        ...

    def billed(self) -> list[LedgerEntry]:
        """The requests of the runs that have ended, in the order in which they left."""
        ...

    def left(self, state: BudgetState, /) -> list[LeftPart]:
        """The parts of runs whose process is gone, or runs on another machine if it runs at all."""
        ...

    @property
    def outlives_processes(self) -> bool:
        """Whether another process may go on with a run, and settle its part."""
        ...

    def check_journal(self, journal: Journal | None, /) -> None:
        """Raise CallerError for a run whose journal does not have the budget."""
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
        """Nobody is waited for."""
        return work()

    def read(self, new: BudgetState) -> BudgetState:
        return self._state

    def write(self, state: BudgetState) -> None:
        self._state = state

    def keep_run(self, run: BudgetRun) -> None:
        """The run brings its requests when it ends."""

    def spent_by_ended(self, parts: Mapping[str, BudgetPart], *, begins: BudgetRun) -> dict[str, RunSpending]:
        """Every run of this process settles its own part."""
        return {}

    def runs_of(self, turns: Iterable[str]) -> list[BudgetRun]:
        """No other process has one to give up."""
        return []

    def spending(self, run: BudgetRun) -> RunSpending:
        """Only the run knows it."""
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
        """Any will do."""


class JournalKeeper:
    """The budget of all processes that use the journal, by its name."""

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
        """The journal's ledger has them."""

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
                '`observation={"journal": Journal(PATH)}`'
            )

    def _check(self, state: BudgetState) -> None:
        if state.counts != self._new.counts:
            raise CallerError(
                f"the budget `{self._name}` was begun with limits of {', '.join(state.counts)}, and this `Budget` has "
                f"{', '.join(self._new.counts)}: give the same kinds in the same order (the amounts may differ), or "
                "another name"
            )


def keeper_of(journal: object, *, name: object, new: BudgetState) -> BudgetKeeper:
    """Raises CallerError where only one of the two is given, and for a name that is none."""
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
