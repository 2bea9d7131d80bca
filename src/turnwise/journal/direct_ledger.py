"""Entries of the ledger for requests that belong to no turn: the gateway sends them for its clients.

They stand in the same table as those of turns. `turn` is the id of the client's request, and `session` says whose it was;
that is no session of the journal, so no list of sessions shows it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from turnwise.assembly.evidence import KeptEvent, example_of
from turnwise.journal.ledger import LEAVES, STAYED, LedgerEntry, update_of, values_before
from turnwise.journal.stores import JournalConnection, JournalStore

if TYPE_CHECKING:
    from turnwise.journal.budgets import KnownStates
    from turnwise.journal.request_budgets import BudgetRefusal, RequestPart

GATEWAY = "gateway"


def gateway_session(client: str) -> str:
    """What stands as the session of a request that the gateway sent: whose key its client showed."""
    return f"{GATEWAY}:{client}" if client else GATEWAY


def is_gateways(session: str) -> bool:
    """Sessions of the journal have ids without a colon."""
    return session == GATEWAY or session.startswith(f"{GATEWAY}:")


class LedgerLine:
    """The place of one entry: its row, once that is written, and its part of its client's budgets."""

    __slots__ = ("part", "row_id")

    def __init__(self, part: "RequestPart | None" = None) -> None:
        self.row_id: int | None = None
        self.part = part


class EntryLeaves(msgspec.Struct, frozen=True, kw_only=True):
    """The request is about to leave. `has_left`: it did, while nothing could be written, so no budget refuses it any more."""

    line: LedgerLine
    entry: LedgerEntry
    has_left: bool = False


class EntryBecame(msgspec.Struct, frozen=True, kw_only=True):
    """The request is over, and this is its entry."""

    line: LedgerLine
    entry: LedgerEntry


class EntryStayed(msgspec.Struct, frozen=True, kw_only=True):
    """The request never left: its entry is struck out. `entry` finds it, if its row is not known."""

    line: LedgerLine
    entry: LedgerEntry | None = None


LedgerChange = EntryLeaves | EntryBecame | EntryStayed


class DirectLedger:
    """Writes entries. `transaction` opens the journal's database for one."""

    def __init__(self, store: JournalStore, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._known: KnownStates | None = None

    def wait_until(self, ends: float) -> None:
        """From now on this thread's work waits for the database until then (monotonic)."""
        self._store.thread.patience.ends = ends

    def forget(self) -> None:
        """Others have used the connection: budgets are read again."""
        self._known = None

    def write(self, changes: Sequence[LedgerChange]) -> dict[LedgerLine, "BudgetRefusal"]:
        """All of them in this order, or none, but for those whose budget has no room: which, is returned. On return they are safe
        from our own death. Raises JournalFailed."""
        tried = 0

        def attempted(connection: JournalConnection) -> tuple[dict[LedgerLine, int], dict[LedgerLine, "BudgetRefusal"]]:
            nonlocal tried
            tried += 1
            return self._written(changes, connection=connection, is_first=tried == 1)

        try:
            rows, refused = self._store.attempt(attempted)
        except BaseException:
            self.forget()  # what it says may have been taken back
            raise
        for line, row_id in rows.items():
            line.row_id = row_id
        return refused

    def _written(
        self, changes: Sequence[LedgerChange], *, connection: JournalConnection, is_first: bool
    ) -> tuple[dict[LedgerLine, int], dict[LedgerLine, "BudgetRefusal"]]:
        from turnwise.journal.budgets import KnownStates  # only a gateway needs them
        from turnwise.journal.request_budgets import RequestBudgets

        rows: dict[LedgerLine, int] = {}
        refused: dict[LedgerLine, BudgetRefusal] = {}
        parts = [part for change in changes if (part := change.line.part) is not None]
        known = self._known = self._known or KnownStates()
        budgets = RequestBudgets(connection, dialect=self._store.dialect, now=self._now(), known=known)
        budgets.open(parts)
        for change in changes:
            line, part = change.line, change.line.part
            row_id = rows.get(line, line.row_id)
            match change:
                case EntryLeaves(entry=entry, has_left=has_left):
                    if part is not None and (no := budgets.reserve(part, must=has_left)) is not None:
                        refused[line] = no
                    elif (is_first and not has_left) or (found := _standing(entry, connection=connection)) is None:
                        (rows[line],) = connection.execute(f"{LEAVES} returning id", values_before(entry)).fetchone()
                    else:
                        rows[line] = found
                case EntryBecame(entry=entry):
                    if row_id is not None:
                        connection.execute(*update_of(entry, row_id=row_id))
                    if part is not None:
                        budgets.settle(part, entry)
                case EntryStayed(entry=entry):
                    if row_id is None and entry is not None:
                        row_id = _standing(entry, connection=connection)
                    if row_id is not None:
                        connection.execute(STAYED, (row_id,))
                    if part is not None:
                        budgets.settle(part, None)
        budgets.write()
        return rows, refused


def _standing(entry: LedgerEntry, *, connection: JournalConnection) -> int | None:
    """The row of an entry that an attempt has written whose connection was lost."""
    row = connection.execute(
        "select id from request where root_session = ? and started = ? and root_turn = ? and number = ?",
        (entry.root_session, entry.started, entry.root_turn, entry.number),
    ).fetchone()
    return None if row is None else row[0]


# What the gateway had to mend, by day, provider, model and kind: what a user can take to the vendor.
#
# Of each there is one example, without content (`relay.evidence`). The number of rows is bounded: a client may name any model.


# Version 7. `kind` is `ANY` for requests with at least one repair that the provider causes.
REPAIRS_SCHEMA = (
    """create table repair_seen (
        day text not null, provider text not null, family text not null, model text not null, kind text not null,
        times integer not null, requests integer not null, example text not null default '',
        primary key (provider, family, model, kind, day)
    ) strict, without rowid""",
    "create index repair_seen_by_day on repair_seen (day)",
)

ANY = "*"
OTHER_MODELS = "(other)"
LONGEST_MODEL = 100  # characters of its name
MOST_A_DAY = 300  # rows; past it further models share one name
MOST_ROWS = 6_000  # past it the oldest day goes

_ADD = """update repair_seen set times = times + ?, requests = requests + ?
    where provider = ? and family = ? and model = ? and kind = ? and day = ? returning example = ''"""
_EXAMPLE = """update repair_seen set example = ?
    where provider = ? and family = ? and model = ? and kind = ? and day = ?"""
_NEW = "insert into repair_seen (times, requests, provider, family, model, kind, day, example) values (?, ?, ?, ?, ?, ?, ?, ?)"
_OF_GATEWAY = f"(root_session = '{GATEWAY}' or substr(root_session, 1, {len(GATEWAY) + 1}) = '{GATEWAY}:')"
_REQUESTS = f"""select provider, substr(model, 1, {LONGEST_MODEL}), count(*), count(*) filter (where outcome != 'ok')
    from request where {_OF_GATEWAY} and started >= ? and outcome is not null and outcome not in ('cancelled', 'joined')
    group by 1, 2"""


class RepairSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Repairs of one kind in one request. `day` is of UTC, `family` the upstream's; `events` are those around the first one."""

    day: str
    provider: str
    family: str
    model: str
    kind: str
    times: int
    events: tuple[KeptEvent, ...] = ()


class RepairSum(msgspec.Struct, frozen=True, kw_only=True):
    """Repairs of one kind, over all days. `example` is empty where there is none."""

    provider: str
    family: str
    model: str
    kind: str
    times: int
    requests: int
    first_day: str
    last_day: str
    example: str


class RequestSum(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway sent to one model: those whose outcome is known and that no client left. `failed` got no whole answer."""

    provider: str
    model: str
    requests: int
    failed: int


class RepairBook:
    """Writes and reads what was mended. `transaction` and `statement` open the journal's database for one."""

    def __init__(
        self,
        *,
        transaction: Callable[[], AbstractContextManager[JournalConnection]],
        statement: Callable[[], AbstractContextManager[JournalConnection]],
    ) -> None:
        self._transaction = transaction
        self._statement = statement

    def write(self, seen: Sequence[RepairSeen]) -> None:
        """All of them or none. Raises JournalFailed."""
        with self._transaction() as connection:
            for one in seen:
                _add(one, connection=connection)

    def sums(self, *, since_day: str = "") -> list[RepairSum]:
        """By provider, family, model and kind; the latest example of each."""
        with self._statement() as connection:
            rows = connection.execute(
                "select provider, family, model, kind, times, requests, day, example from repair_seen where day >= ?"
                " order by provider, family, model, kind, day",
                (since_day,),
            ).fetchall()
        found: dict[tuple[str, str, str, str], RepairSum] = {}
        for provider, family, model, kind, times, requests, day, example in rows:
            before = found.get((provider, family, model, kind))
            found[provider, family, model, kind] = RepairSum(
                provider=provider,
                family=family,
                model=model,
                kind=kind,
                times=times + (before.times if before else 0),
                requests=requests + (before.requests if before else 0),
                first_day=before.first_day if before else day,
                last_day=day,
                example=example or (before.example if before else ""),
            )
        return list(found.values())

    def requests(self, *, since_s: float = 0.0) -> list[RequestSum]:
        """What the gateway sent, from the ledger."""
        with self._statement() as connection:
            rows = connection.execute(_REQUESTS, (since_s,)).fetchall()
        return [
            RequestSum(provider=provider, model=model, requests=requests, failed=failed)
            for provider, model, requests, failed in rows
        ]


def _add(one: RepairSeen, *, connection: JournalConnection) -> None:
    model = one.model[:LONGEST_MODEL]
    if _added(one, model=model, connection=connection):
        return
    (of_day,) = connection.execute("select count(*) from repair_seen where day = ?", (one.day,)).fetchone()
    if of_day >= MOST_A_DAY:
        model = OTHER_MODELS
        if _added(one, model=model, connection=connection):
            return
    (in_all,) = connection.execute("select count(*) from repair_seen").fetchone()
    if in_all >= MOST_ROWS:
        connection.execute("delete from repair_seen where day = (select min(day) from repair_seen)")
    connection.execute(_NEW, (one.times, 1, *_key(one, model=model), example_of(one.events)))


def _added(one: RepairSeen, *, model: str, connection: JournalConnection) -> bool:
    """Whether there is a row for it; its example is made where that has none."""
    key = _key(one, model=model)
    row = connection.execute(_ADD, (one.times, 1, *key)).fetchone()
    if row is not None and row[0] and one.events:
        connection.execute(_EXAMPLE, (example_of(one.events), *key))
    return row is not None


def _key(one: RepairSeen, *, model: str) -> tuple[str, str, str, str, str]:
    return one.provider, one.family, model, one.kind, one.day
