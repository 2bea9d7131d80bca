"""The journal's database on PostgreSQL: one connection, used by one thread at a time, and opened again if it was lost.

A pen in an event loop uses it in a thread of the store's (`store_thread.py`): the server may say nothing for seconds.
Every wait is bounded (`connection.Waits`). If a connection is lost, it is unknown whether its last statement
was carried out. So a record that is written again is either the same when written twice, or is looked for first
(`append.py`).
"""

import functools
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import LiteralString, NoReturn, cast

import msgspec
import psycopg
from psycopg import errors

from turnwise.errors import JournalFailed, JournalRefused, TurnwiseBug
from turnwise.journal.file import KEEP_OPEN
from turnwise.journal.ledger import LEAVES, STAYED, Value, update_of, values_before
from turnwise.journal.postgres.connection import (
    STATEMENT_S,
    USUAL_WAITS,
    BoundedConnection,
    DatabaseAddress,
    PostgresRows,
    SpokenConnection,
    Waits,
    bring_up_to_date,
    connect,
    is_lost,
    read_address,
    refuse_newer,
    spoken,
)
from turnwise.journal.postgres.news import NEWS
from turnwise.journal.stores import (
    PROGRESS,
    BatchWritten,
    Dialect,
    EventRow,
    FoundRows,
    JournalConnection,
    PenBatch,
    Statement,
    StoreThread,
    T,
    Values,
    WouldWait,
)
from turnwise.settings.options import Durability

# What a turn writes, as one statement: fenced, all or none, one round trip, and never twice.


def append(batch: PenBatch, *, cursor: PostgresRows) -> BatchWritten:
    """Raises psycopg's UniqueViolation where a record of that number stands already, and writes nothing then."""
    became = [update_of(entry, row_id=row) for entry, row in batch.became]
    values: list[Value] = []
    for _, given in became:
        values += given
    values += batch.stayed
    values += (batch.number, batch.epoch)
    for event in batch.events:
        values += (event.seq, event.kind, event.body, event.time)
    if batch.leaves is not None:
        values += values_before(batch.leaves)
    statement = _statement(
        tuple([update for update, _ in became]), len(batch.stayed), len(batch.events), batch.leaves is not None
    )
    ours, row, _ = cast("tuple[int, int | None, str | None]", cursor.execute(statement, values).fetchone())
    return BatchWritten(ours == 1, row)


@functools.lru_cache(maxsize=256)
def _statement(became: tuple[str, ...], stayed: int, events: int, leaves: bool) -> LiteralString:
    """The row of the turn is locked, so a take-over waits until this stands, and what comes after a take-over finds no row.
    Later parts read the turn only: statements in a `with` do not see what the others change. The row of the turn says whether it
    has followers. A turn without followers tells nobody: a NOTIFY makes all commits of the database wait for each other."""
    parts = [f"b{place} as ({update})" for place, update in enumerate(became)]
    parts += [f"s{place} as ({STAYED})" for place in range(stayed)]
    parts.append(
        "t as (select number, epoch, session, watched_until from turn"
        " where number = ? and epoch = ? and status = 'running' for no key update)"
    )
    if events:
        rows = ", ".join(["(?::integer, ?, ?, ?::double precision)"] * events)
        parts.append(
            "e as (insert into record (turn, seq, epoch, kind, body, t)"
            " select t.number, v.seq, t.epoch, v.kind, v.body, v.t"
            f" from t, (values {rows}) as v (seq, kind, body, t))"
        )
    if leaves:
        parts.append(f"l as ({LEAVES.replace('values (', 'select ').removesuffix(')')} from t returning id)")
    row = "(select id from l)" if leaves else "null::bigint"
    told = f"(select pg_notify('{NEWS}', session) from t where watched_until > clock_timestamp())"
    return spoken(f"with {', '.join(parts)} select (select count(*) from t), {row}, {told}")


def without_what_stands(batch: PenBatch, *, connection: BoundedConnection) -> tuple[PenBatch, BatchWritten | None]:
    """What of the batch is still to be written, and, where all of its records stand, what writing it gave.

    An attempt whose connection was lost stands as a whole or not at all. Raises TurnwiseBug where another record has its number.
    """
    if not batch.events:
        return batch, None
    rows = connection.execute(
        "select seq, epoch, body from record where turn = %s and seq = any(%s)",
        (batch.number, [event.seq for event in batch.events]),
    ).fetchall()
    standing = {seq: (epoch, body) for seq, epoch, body in rows}
    missing: list[EventRow] = []
    for event in batch.events:
        if event.seq not in standing:
            missing.append(event)
        elif standing[event.seq] != (batch.epoch, event.body):
            raise TurnwiseBug(f"another record stands as number {event.seq} of turn `{batch.turn}`")
    if missing or batch.leaves is None:
        return msgspec.structs.replace(batch, events=missing), None if missing else BatchWritten(True)
    row = connection.execute(
        "select max(id) from request where turn = %s and number = %s", (batch.leaves.turn, batch.leaves.number)
    ).fetchone()
    return batch, BatchWritten(True, None if row is None else row[0])


AGAIN_S = 0.05
GIVEN_UP = "gave no answer: what came before waited for it in vain"
# Any other setting waits for more than the disk of this server.
WAITS_FOR_THE_DISK = (
    "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
)
POSTGRES = Dialect(
    day="coalesce(to_char(to_timestamp(started), 'YYYY-MM-DD'), 'unknown')",
    texts="select value from json_array_elements_text(cast({} as json)) as found (value)",
    next_number="default",
    shell="psql",
    elsewhere="give the address of another database",
    record="insert into record (turn, seq, epoch, kind, body, t) values (?, ?, ?, ?, ?, ?)",
    last_epoch=f"select epoch from record where turn = :number and {PROGRESS} order by seq desc limit 1",
    waits_elsewhere="case when asks is null then 0 else 1 end",
    forget=("delete from record where turn = :number",),
    before_deleting="",
    after_deleting="",
    locked=" for update",
    unless_locked=" for no key update skip locked",
    label="cast(session.labels as json) ->> ?",
)


class PostgresStore:
    """`close` it at the end."""

    def __init__(self, address: DatabaseAddress, connection: BoundedConnection, *, waits: Waits) -> None:
        self._address = address
        self._waits = waits
        self.thread = StoreThread(limit_s=waits.all_s)
        self._connection: BoundedConnection | None = None
        self._lock = threading.Lock()
        self._ends = math.inf  # when the work of the lock's holder has to end
        self._is_closed = False
        self._is_full = False
        self._use(connection)

    @classmethod
    def open(cls, dsn: str, *, waits: Waits = USUAL_WAITS) -> "PostgresStore":
        """With the tables of this version. Raises CallerError where the database cannot be reached or used."""
        address = read_address(dsn)
        connection = None
        try:
            connection = connect(address, waits=waits)
            bring_up_to_date(connection, name=address.name)
        except psycopg.Error as error:
            if connection is not None:
                connection.close()
            raise_explained(error, address)
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return cls(address, connection, waits=waits)

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.name!r})"

    @property
    def dialect(self) -> Dialect:
        return POSTGRES

    @property
    def name(self) -> str:
        """The address without its password."""
        return self._address.name

    def at_once(self, work: Callable[[], T]) -> T:
        """A server always is waited for."""
        raise WouldWait

    @contextmanager
    def _held(self) -> Generator[None]:
        """For one piece of work. The time until its turn comes counts towards its limit."""
        ends = self.thread.patience.until(self._waits.all_s)
        with self._lock:
            self._ends = ends
            yield

    @contextmanager
    def statement(self) -> Generator[JournalConnection]:
        """For reading: a statement whose connection was lost is executed again."""
        with self._held():
            try:
                yield _Reading(self)
            except psycopg.Error as error:
                raise_explained(error, self._address)

    @contextmanager
    def transaction(self) -> Generator[JournalConnection]:
        """For several statements. One whose connection is lost in the middle fails, and may stand all the same."""
        with self._held():
            try:
                connection = self._begun()
                try:
                    yield SpokenConnection(connection)
                    connection.execute("commit")
                except BaseException:
                    _roll_back(connection)
                    raise
            except psycopg.Error as error:
                raise_explained(error, self._address)

    def attempt(self, work: Callable[[JournalConnection], T]) -> T:
        """`work` in a transaction; again where the connection was lost."""

        def attempted(connection: BoundedConnection) -> T:
            connection.execute("begin")
            try:
                result = work(SpokenConnection(connection))
                connection.execute("commit")
            except BaseException:
                _roll_back(connection)
                raise
            return result

        return self._bounded(attempted)

    def execute_all(self, statements: Sequence[Statement]) -> None:
        """As one statement, so none sees what another changes. Of a process that is frozen in the middle of a pipeline the
        server would keep the locks without end: none of its time limits holds there (tried)."""
        parts = [f"s{place} as ({sql})" for place, (sql, _) in enumerate(statements)]
        whole = spoken(f"with {', '.join(parts)} select 1")
        values = [value for _, given in statements for value in given]
        self._bounded(lambda connection: connection.execute(whole, values))

    def append(self, batch: PenBatch) -> BatchWritten:
        """In one statement. After a lost connection its records are looked for before they are written again."""
        rest, is_sure = batch, True

        def write(connection: BoundedConnection) -> BatchWritten:
            nonlocal rest, is_sure
            for _ in range(3):
                if not is_sure:
                    rest, standing = without_what_stands(rest, connection=connection)
                    if standing is not None:
                        return standing
                try:
                    is_sure = False
                    return append(rest, cursor=self._cursor)
                except errors.UniqueViolation:
                    continue  # an attempt of before stands after all
            raise TurnwiseBug(f"records of turn `{batch.turn}` can neither be found nor written")

        return self._bounded(write)

    def check_version(self, connection: JournalConnection) -> None:
        """Raises CallerError where a newer turnwise has changed the tables since they were opened."""
        (found,) = connection.execute("select max(version) from schema_version").fetchone()
        refuse_newer(found, name=self._address.name)

    def is_whole(self) -> bool:
        """The server looks after its own pages."""
        return True

    def keep(self, durability: Durability) -> None:
        """With "full", a commit waits for the server's disk even where the server's own setting is not to wait. Otherwise that
        setting decides (`synchronous_commit`)."""
        with self._lock:
            self._is_full = durability == "full"
            self._drop()  # the next connection is made so

    def close(self) -> None:
        self.thread.finish()
        with self._lock:
            self._is_closed = True
            self._drop()

    def read(self, sql: str, values: Values) -> FoundRows:
        """Only for the holder of the lock."""
        return self._again(lambda connection: SpokenConnection(connection).execute(sql, values))

    def _begun(self) -> BoundedConnection:
        """A connection in a transaction; nothing is lost where the first one was dead."""

        def begin(connection: BoundedConnection) -> BoundedConnection:
            connection.execute("begin")
            return connection

        return self._again(begin)

    def _bounded(self, work: Callable[[BoundedConnection], T]) -> T:
        with self._held():
            try:
                return self._again(work)
            except psycopg.Error as error:
                raise_explained(error, self._address)

    def _again(self, work: Callable[[BoundedConnection], T]) -> T:
        """What `work` gives; with new connections for `reconnect_s` where one is lost, and within `all_s` in all."""
        if self._is_closed:
            raise JournalFailed(f"the journal `{self._address.name}` is closed: {KEEP_OPEN}")
        ends = give_up = self._ends
        if time.monotonic() >= ends:
            raise JournalFailed(f"the journal `{self._address.name}` {GIVEN_UP}")
        while True:
            left_s = max(ends - time.monotonic(), AGAIN_S)
            answer_s = min(self._waits.answer_s, left_s)
            try:
                connection = self._connection
                if connection is None or connection.closed:
                    connection = self._use(connect(self._address, waits=self._waits, within_s=answer_s))
                connection.answer_s = answer_s
                return work(connection)
            except psycopg.Error as error:
                if not is_lost(error, self._connection) or not _may_pass(error):
                    raise
                give_up = min(give_up, time.monotonic() + self._waits.reconnect_s)
                if time.monotonic() >= give_up:
                    raise
                self._drop()
                time.sleep(AGAIN_S)

    def _use(self, connection: BoundedConnection) -> BoundedConnection:
        if self._is_full:
            connection.execute(WAITS_FOR_THE_DISK)
        self._connection = connection
        self._cursor: PostgresRows = connection.cursor()
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Reading:
    """Statements of their own, on whichever connection there is."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def execute(self, sql: str, values: Values = (), /) -> FoundRows:
        return self._store.read(sql, values)


def _roll_back(connection: BoundedConnection) -> None:
    """A connection that cannot is closed: the server rolls back then."""
    if connection.closed:
        return
    try:
        connection.execute("rollback")
    except psycopg.Error:
        connection.close()


def _may_pass(error: psycopg.Error) -> bool:
    """A wrong password and a database that does not exist stay so."""
    text = str(error)
    return not ("authentication failed" in text or "does not exist" in text or "no pg_hba.conf entry" in text)


def raise_explained(error: psycopg.Error, address: DatabaseAddress) -> NoReturn:
    """PostgreSQL's failures as a caller's: each says what to do."""
    name = f"the journal `{address.name}`"
    said = str(error).partition("\nCONTEXT:")[0]  # that is where in the server's own functions
    text = address.hide(" ".join(said.split()))
    match error:
        case errors.InsufficientPrivilege():
            raise JournalRefused(f"{name}: {text}; its user needs the rights of docs/postgres.md") from None
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedColumn():
            raise JournalFailed(f"{name} lost tables while it was open: {text}") from None
        case errors.QueryCanceled() | errors.LockNotAvailable():
            raise JournalFailed(f"{name} gave no answer within {STATEMENT_S} s: {text}") from None
        case errors.DataError():
            raise JournalFailed(f"{name} holds or was given a value that cannot be read: {text}") from None
        case psycopg.ProgrammingError() | psycopg.IntegrityError() | psycopg.NotSupportedError():
            raise TurnwiseBug(f"{name}: {text}") from None
        case _:
            raise JournalFailed(f"{name} cannot be used: {text}") from None
