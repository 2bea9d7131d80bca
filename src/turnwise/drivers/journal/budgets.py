"""Budgets that several processes share: where each stands, and which runs belong to it.

A budget is one row. Whoever reserves or settles reads it, decides, and writes it in one transaction, so two processes never give
the same part away.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from turnwise.drivers.journal.ledger import LedgerEntry, cost_of
from turnwise.drivers.journal.ledger_queries import entries_where
from turnwise.drivers.journal.owners import is_alive
from turnwise.drivers.journal.stores import JournalConnection, JournalStore
from turnwise.errors import JournalFailed
from turnwise.rules.limits import Spent
from turnwise.rules.reserving import BudgetPart, BudgetState, RunSpending

BUDGET_TABLES = (
    "create table budget (name text primary key, state text not null, updated real not null) strict",
    """create table budget_run (
        budget text not null, turn text not null, root_session text not null, root_turn text not null, path text not null,
        primary key (budget, turn)
    ) strict""",
)

Outcome = TypeVar("Outcome")


def holder_in(process: str, *, token: str) -> str:
    """Who settles a part: a process, by its name in the journal, and one run of it."""
    return f"{process}#{token}"


def process_of(part: BudgetPart) -> str:
    """The name of the process that has reserved it, for `is_alive`."""
    return part.holder.rpartition("#")[0]


class BudgetRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has a part of a budget: its turn, the turn at the root of its tree, and the sub-agents that lead to it."""

    turn: str
    root_session: str
    root_turn: str
    path: tuple[str, ...] = ()


class BudgetRow:
    """One budget inside of a transaction."""

    def __init__(self, connection: JournalConnection, *, name: str, locked: str, now: float) -> None:
        self._connection, self._name, self._locked, self._now = connection, name, locked, now

    def read(self, new: BudgetState) -> BudgetState:
        """Where it stands: `new` if nobody has used it yet. Until the transaction ends nobody else changes it."""
        values = (self._name, _text_of(new), self._now)
        self._connection.execute(
            "insert into budget (name, state, updated) values (?, ?, ?) on conflict do nothing", values
        )
        row = self._connection.execute(
            f"select state from budget where name = ?{self._locked}", (self._name,)
        ).fetchone()
        return _state_in(row[0], name=self._name)

    def write(self, state: BudgetState) -> None:
        self._connection.execute(
            "update budget set state = ?, updated = ? where name = ?", (_text_of(state), self._now, self._name)
        )

    def keep_run(self, run: BudgetRun) -> None:
        """From now on the run's requests belong to the budget's bill."""
        self._connection.execute(
            "insert into budget_run (budget, turn, root_session, root_turn, path) values (?, ?, ?, ?, ?)"
            " on conflict do nothing",
            (self._name, run.turn, run.root_session, run.root_turn, msgspec.json.encode(run.path).decode()),
        )

    def spent_by_ended(self, parts: Mapping[str, BudgetPart]) -> dict[str, RunSpending]:
        """What the ledger says of those turns that nobody can go on with, though their parts are still reserved."""
        ended = [turn for turn, part in parts.items() if self._has_ended(turn, part=part)]
        return {run.turn: _spending(self.entries([run])) for run in self.runs() if run.turn in ended} if ended else {}

    def _has_ended(self, turn: str, *, part: BudgetPart) -> bool:
        """Whether it is done, its session has gone on without it, or it is not there and its process is gone."""
        row = self._connection.execute(
            "select status, exists (select 1 from turn later where later.session = turn.session"
            " and later.number > turn.number) from turn where id = ?",
            (turn,),
        ).fetchone()
        if row is None:  # deleted, or about to begin
            return not is_alive(process_of(part))
        status, has_gone_on = row
        return status == "done" or (bool(has_gone_on) and status in ("lost", "waiting"))

    def runs(self) -> list[BudgetRun]:
        rows = self._connection.execute(
            "select turn, root_session, root_turn, path from budget_run where budget = ? order by turn", (self._name,)
        ).fetchall()
        return [
            BudgetRun(
                turn=turn,
                root_session=session,
                root_turn=root,
                path=msgspec.json.decode(path, type=tuple[str, ...]),
            )
            for turn, session, root, path in rows
        ]

    def entries(self, runs: Iterable[BudgetRun]) -> list[LedgerEntry]:
        """The requests of these runs and of the sub-agents below them, in the order in which they left."""
        found: dict[tuple[str, int], LedgerEntry] = {}
        for run in runs:
            for entry in entries_where(
                "root_session = ? and root_turn = ?", (run.root_session, run.root_turn), connection=self._connection
            ):
                if entry.path[: len(run.path)] == run.path:
                    found[entry.turn, entry.number] = entry
        return sorted(found.values(), key=lambda one: one.started)


class BudgetBook:
    """The budgets of one journal, by name."""

    def __init__(self, store: JournalStore, *, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    def change(self, name: str, work: Callable[[BudgetRow], Outcome]) -> Outcome:
        """`work` in a transaction. Where the connection to a server is lost, it is done again though it may stand."""

        def attempted(connection: JournalConnection) -> Outcome:
            self._store.check_version(connection)
            return work(self._row(connection, name))

        return self._store.attempt(attempted)

    def look(self, name: str, *, new: BudgetState) -> BudgetState:
        """Where the budget stands."""
        with self._store.statement() as connection:
            row = connection.execute("select state from budget where name = ?", (name,)).fetchone()
        return new if row is None else _state_in(row[0], name=name)

    def runs(self, name: str) -> list[BudgetRun]:
        """All that have ever had a part of it."""
        with self._store.statement() as connection:
            return self._row(connection, name).runs()

    def entries(self, name: str, *, without: Iterable[str]) -> list[LedgerEntry]:
        """The requests of the budget's runs, but for those turns."""
        left_out = set(without)
        with self._store.statement() as connection:
            row = self._row(connection, name)
            return row.entries([run for run in row.runs() if run.turn not in left_out])

    def _row(self, connection: JournalConnection, name: str) -> BudgetRow:
        return BudgetRow(connection, name=name, locked=self._store.dialect.locked, now=self._now())


def _text_of(state: BudgetState) -> str:
    return msgspec.json.encode(state).decode()


def _state_in(text: str, *, name: str) -> BudgetState:
    try:
        return msgspec.json.decode(text, type=BudgetState)
    except msgspec.DecodeError as error:
        raise JournalFailed(
            f"the budget `{name}` cannot be read from the journal ({error}): it is damaged, or from a newer turnwise; "
            "give the budget another name to begin anew"
        ) from None


def _spending(entries: Sequence[LedgerEntry]) -> RunSpending:
    """What requests in a ledger tell. They do not tell how many tool calls ran, nor, of a request without usage, its tokens."""
    cost = cost_of(entries)
    told = [one.usage for one in entries if one.usage is not None]
    known = Spent(
        requests=len(entries),
        input_tokens=sum([usage.input_tokens for usage in told]),
        output_tokens=sum([usage.output_tokens for usage in told]),
        cost_usd=cost.usd,
    )
    return RunSpending(
        known, knows_tokens=len(told) == len(entries), knows_cost=cost.exact_usd is not None, knows_tool_calls=False
    )
