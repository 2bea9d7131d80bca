"""Budgets that several processes share: where each stands, and which runs belong to it.

A budget is one row. To reserve or settle, a process reads the row, decides, and writes it in one transaction. So two processes
never give the same part away.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from turnwise.errors import JournalFailed
from turnwise.journal.ledger import LedgerEntry, cost_of, tells_tokens
from turnwise.journal.ledger_queries import entries_where
from turnwise.journal.owners import is_alive
from turnwise.journal.stores import Dialect, JournalConnection, JournalStore
from turnwise.rules.limits import Spent
from turnwise.rules.reservations import BudgetPart, BudgetState, RunSpending

BUDGET_TABLES = (
    "create table budget (name text primary key, state text not null, updated real not null) strict",
    """create table budget_run (
        budget text not null, turn text not null, root_session text not null, root_turn text not null, path text not null,
        primary key (budget, turn)
    ) strict""",
)

# Version 11: what gateways share (`gateway_rows.py`).
GATEWAY_TABLE = (
    "create table gateway (kind text, name text, body text not null, primary key (kind, name)) strict, without rowid"
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

    def __init__(self, connection: JournalConnection, *, name: str, dialect: Dialect, now: float) -> None:
        self._connection, self._name, self._dialect, self._now = connection, name, dialect, now

    def read(self, new: BudgetState) -> BudgetState:
        """Where it stands: `new` if nobody has used it yet. Until the transaction ends nobody else changes it."""
        row = self._found()
        if row is None:
            values = (self._name, _text_of(new), self._now)
            self._connection.execute(
                "insert into budget (name, state, updated) values (?, ?, ?) on conflict do nothing", values
            )
            row = self._found()
        assert row is not None, "it is there by now"
        return _state_in(row[0], name=self._name)

    def _found(self) -> tuple[str] | None:
        select = f"select state from budget where name = ?{self._dialect.locked}"
        return self._connection.execute(select, (self._name,)).fetchone()

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

    def spent_by_ended(self, parts: Mapping[str, BudgetPart], *, begins: BudgetRun) -> dict[str, RunSpending]:
        """What the ledger says of those turns that nobody can go on with, though their parts are still reserved. The run that
        `begins` ends those of its own session whose process is gone."""
        left = [run for run in self.runs_of(parts) if self._has_ended(run, part=parts[run.turn], begins=begins)]
        return {run.turn: self.spending(run) for run in left}

    def spending(self, run: BudgetRun) -> RunSpending:
        """What the ledger says of a run that no process continues."""
        is_known = not run.path or self._status(run.turn) is not None
        return spending_of(self.entries([run]), is_whole=is_known)

    def _has_ended(self, run: BudgetRun, *, part: BudgetPart, begins: BudgetRun) -> bool:
        """A sub-agent's turn continues with the turn at its root, and never without it."""
        own, root = self._status(run.turn), self._status(run.root_turn)
        if own == "done" or root in ("done", "given up"):
            return True
        if is_alive(process_of(part), session=run.root_session):
            return False
        goes_on_by_itself = run.root_session == begins.root_session and run.root_turn != begins.root_turn
        return root is None or goes_on_by_itself

    def _status(self, turn: str) -> str | None:
        """`done` also of a turn that waits for its client; `given up` where its session has gone on without it. None: it is not
        there, because it was deleted or is about to begin."""
        row = self._connection.execute(
            f"select status, {self._dialect.waits_elsewhere}, (select count(*) from turn later where"
            " later.session = turn.session and later.number > turn.number and later.status <> 'queued')"
            " from turn where id = ?",
            (turn,),
        ).fetchone()
        if row is None:
            return None
        status, waits_elsewhere, later = row
        if status == "waiting" and not waits_elsewhere:
            return "done"
        return "given up" if status in ("lost", "waiting") and later else status

    def runs(self) -> list[BudgetRun]:
        """All that have ever had a part."""
        return self._runs_where("budget = ?", (self._name,))

    def runs_of(self, turns: Iterable[str]) -> list[BudgetRun]:
        """Those of these turns, each by the index: a budget may have had many."""
        return [run for turn in turns for run in self._runs_where("budget = ? and turn = ?", (self._name, turn))]

    def _runs_where(self, where: str, values: Sequence[str]) -> list[BudgetRun]:
        rows = self._connection.execute(
            f"select turn, root_session, root_turn, path from budget_run where {where} order by turn", values
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
            below = self._turns_below(run.turn) if run.path else None
            for entry in entries_where(
                "root_session = ? and root_turn = ?", (run.root_session, run.root_turn), connection=self._connection
            ):
                if below is None or entry.turn in below:
                    found[entry.turn, entry.number] = entry
        return sorted(found.values(), key=lambda one: one.started)

    def _turns_below(self, turn: str) -> set[str]:
        """The turn, and those of the sub-agents below it that are still there."""
        rows = self._connection.execute(
            "with recursive below (id) as (select turn from budget_run where budget = ? and turn = ?"
            " union select turn.id from below join session on session.parent_turn = below.id"
            " join turn on turn.session = session.id) select id from below",
            (self._name, turn),
        ).fetchall()
        return {id for (id,) in rows}


def begin_states(connection: JournalConnection, names: Sequence[str], *, new: BudgetState, now: float) -> None:
    """Where no row stands yet, one does."""
    marks = ", ".join(["(?, ?, ?)"] * len(names))
    values = [value for name in names for value in (name, _text_of(new), now)]
    connection.execute(f"insert into budget (name, state, updated) values {marks} on conflict do nothing", values)


class KnownStates:
    """Rows that stand, each with its text, what that says, and the version of the database in which that stood. A text that is
    the same is not read again; where nobody else has written since, no row is. It belongs to one connection, and to nobody
    after a transaction of it has failed."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, BudgetState, object] | None] = {}
        self.version: object = None


def read_states(
    connection: JournalConnection, names: Sequence[str], *, dialect: Dialect, known: KnownStates
) -> dict[str, BudgetState]:
    """Those that stand, in one statement, each locked in the order of names until the transaction ends."""
    if dialect.others:
        version = known.version = connection.execute(dialect.others).fetchone()
        seen = [(name, row[1]) for name in names if (row := known.rows.get(name)) is not None and row[2] == version]
        if len(seen) == len(names):
            return dict(seen)
    marks = ", ".join("?" * len(names))
    select = f"select name, state from budget where name in ({marks}) order by name{dialect.locked}"
    found: dict[str, BudgetState] = {}
    for name, text in connection.execute(select, names).fetchall():
        before = known.rows.get(name)
        found[name] = _state_in(text, name=name) if before is None or before[0] != text else before[1]
        known.rows[name] = text, found[name], known.version
    return found


def write_states(
    connection: JournalConnection, states: Mapping[str, BudgetState], *, now: float, known: KnownStates
) -> None:
    """In one statement."""
    marks = ", ".join(["(?, ?, ?)"] * len(states))
    texts = {name: _text_of(state) for name, state in states.items()}
    known.rows.update([(name, (text, states[name], known.version)) for name, text in texts.items()])
    values = [value for name, text in texts.items() for value in (name, text, now)]
    connection.execute(
        f"insert into budget (name, state, updated) values {marks}"
        " on conflict (name) do update set state = excluded.state, updated = excluded.updated",
        values,
    )


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

    def runs_of(self, name: str, turns: Iterable[str]) -> list[BudgetRun]:
        """Those of its runs whose turns these are."""
        with self._store.statement() as connection:
            return self._row(connection, name).runs_of(turns)

    def entries(self, name: str, *, without: Iterable[str]) -> list[LedgerEntry]:
        """The requests of the budget's runs, but for those turns."""
        left_out = set(without)
        with self._store.statement() as connection:
            row = self._row(connection, name)
            return row.entries([run for run in row.runs() if run.turn not in left_out])

    def _row(self, connection: JournalConnection, name: str) -> BudgetRow:
        return BudgetRow(connection, name=name, dialect=self._store.dialect, now=self._now())


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


def spending_of(entries: Sequence[LedgerEntry], *, is_whole: bool) -> RunSpending:
    """What requests in a ledger tell. They do not tell of steps, tool calls and time."""
    cost = cost_of(entries)
    told = [one.usage for one in entries if one.usage is not None]
    known = Spent(
        requests=len(entries),
        input_tokens=sum([usage.input_tokens for usage in told]),
        output_tokens=sum([usage.output_tokens for usage in told]),
        cost_usd=cost.usd,
    )
    return RunSpending(
        known,
        is_whole=is_whole,
        knows_tokens=all(map(tells_tokens, entries)),
        knows_cost=cost.exact_usd is not None,
        knows_turn=False,
    )
