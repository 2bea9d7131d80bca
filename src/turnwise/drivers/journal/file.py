"""The journal's SQLite file: opened, brought up to date, used by one thread at a time, its failures explained."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from turnwise.drivers.journal.ledger import LEAVES, STAYED, update_of, values_before
from turnwise.drivers.journal.ledger_queries import ExactSum
from turnwise.drivers.journal.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, SEQ_BITS, UPGRADES
from turnwise.drivers.journal.stores import BatchWritten, Dialect, JournalConnection, PenBatch, Statement, T
from turnwise.errors import CallerError, JournalFailed, TurnwiseBug

BUSY_S = 10.0
SWITCH_AGAIN_S = 0.005
SQLITE = Dialect(
    day="coalesce(strftime('%Y-%m-%d', started, 'unixepoch', 'localtime'), 'unknown')",
    texts="select value from json_each({})",
    next_number="(select coalesce(max(number), 0) + 1 from turn)",
    shell="sqlite3",
    elsewhere="set TURNWISE_STATE_DIR to another folder",
)


class Use:
    """The connection, for as long as one thread has it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        return self._connection

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        self._lock.release()
        if isinstance(error, sqlite3.Error):
            raise_explained(error)


class Transaction:
    """IMMEDIATE: the lock is taken at once, so that waiting for another process happens here and cannot dead-lock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("begin immediate")

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        try:
            if error is None:
                self._connection.execute("commit")
        finally:
            if self._connection.in_transaction:  # SQLite has rolled back by itself where the disk is full
                self._connection.execute("rollback")


class JournalFile:
    """The connection, for one thread at a time: a transaction belongs to the connection, so another thread's statements would
    fall into it, and vanish if it is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._use = Use(connection)
        # typeshed knows sums of integers only
        connection.create_aggregate("exact_sum", -1, ExactSum)  # pyright: ignore[reportArgumentType]

    def statement(self) -> Use:
        """For a single statement, its rows fetched inside: it is a transaction of its own."""
        return self._use

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with self._use as connection, Transaction(connection):
            yield connection

    @property
    def dialect(self) -> Dialect:
        return SQLITE

    def name(self, connection: JournalConnection) -> str:
        """ "" in memory."""
        return connection.execute("pragma database_list").fetchone()[2]

    def attempt(self, work: Callable[[JournalConnection], T]) -> T:
        """`work` in a transaction, once."""
        with self.transaction() as connection:
            return work(connection)

    def execute_all(self, statements: Sequence[Statement]) -> None:
        """All or none."""
        with self.transaction() as connection:
            for sql, values in statements:
                connection.execute(sql, values)

    def append(self, batch: PenBatch) -> BatchWritten:
        """In a transaction of its own where it is more than one statement."""
        with self._use as connection:
            if batch.leaves is None and len(batch.events) + len(batch.became) + len(batch.stayed) == 1:
                return _append(batch, connection=connection)
            with Transaction(connection):
                return _append(batch, connection=connection)

    def check_version(self, connection: JournalConnection) -> None:
        """Raises CallerError where a newer turnwise has changed the file since it was opened."""
        refuse_newer(connection.execute("pragma user_version").fetchone()[0])

    def close(self) -> None:
        with self._use:
            self._connection.close()


_EVENT = (
    "insert into record (id, epoch, kind, body, t)"
    " select ?, epoch, ?, ?, ? from turn where id = ? and epoch = ? and status = 'running'"
)


def _append(batch: PenBatch, *, connection: sqlite3.Connection) -> BatchWritten:
    for entry, row in batch.became:
        connection.execute(*update_of(entry, row_id=row))
    for row in batch.stayed:
        connection.execute(STAYED, (row,))
    first, turn, epoch = batch.number << SEQ_BITS, batch.turn, batch.epoch
    for event in batch.events:
        values = (first + event.seq, event.kind, event.body, event.time, turn, epoch)
        if connection.execute(_EVENT, values).rowcount != 1:
            return BatchWritten(False)
    if batch.leaves is None:
        return BatchWritten(True)
    return BatchWritten(True, connection.execute(LEAVES, values_before(batch.leaves)).lastrowid)


def make_private(path: Path) -> None:
    """SQLite gives its `-wal` and `-shm` files the mode of the file itself."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise CallerError(
            f"the journal `{path}` cannot be written ({error.strerror}); set TURNWISE_STATE_DIR to another folder"
        ) from None


def prepare(connection: sqlite3.Connection, path: Path | None, *, synchronous: str) -> None:
    connection.execute("pragma foreign_keys = on")
    connection.execute(f"pragma synchronous = {synchronous}")
    _check_version(connection, path)
    _switch_to_wal(connection)
    with Transaction(connection):
        version = _check_version(connection, path)
        if version == 0:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
        for older in range(version, SCHEMA_VERSION) if version else ():
            for statement in UPGRADES[older]:
                connection.execute(statement)
        if version != SCHEMA_VERSION:
            connection.execute(f"pragma user_version = {SCHEMA_VERSION}")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait by itself while another process makes the same switch, as when several open a new file at once."""
    give_up_s = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up_s:
                raise
            time.sleep(SWITCH_AGAIN_S)
        else:
            return


def _check_version(connection: sqlite3.Connection, path: Path | None) -> int:
    """The file's version, 0 for an empty one. Raises CallerError for another's or a newer one's."""
    (version,) = connection.execute("pragma user_version").fetchone()
    (application,) = connection.execute("pragma application_id").fetchone()
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise CallerError(f"`{path}` is not a journal of turnwise; set TURNWISE_STATE_DIR to another folder")
    refuse_newer(version, path)
    return version


def refuse_newer(version: int, path: Path | None = None) -> None:
    if version > SCHEMA_VERSION:
        name = f"the journal `{path}`" if path else "the journal"
        raise CallerError(
            f"{name} is from a newer turnwise (version {version}, this one knows {SCHEMA_VERSION}): "
            f"upgrade, or set TURNWISE_STATE_DIR to another folder"
        )


def raise_explained(error: sqlite3.Error, path: Path | None = None) -> NoReturn:
    """SQLite's failures as a caller's: each says what to do."""
    name = f"the journal `{path}`" if path else "the journal"
    match error:
        case sqlite3.OperationalError():
            text = str(error)
            if "locked" in text or "busy" in text:
                raise JournalFailed(f"{name} is held by another process for more than {BUSY_S:g} s") from None
            raise JournalFailed(f"{name} cannot be used: {text}") from None
        case sqlite3.ProgrammingError() | sqlite3.IntegrityError() | sqlite3.InterfaceError():
            raise TurnwiseBug(f"{name}: {error}") from error
        case _:
            raise JournalFailed(
                f"{name} is damaged or no SQLite file ({error}): move it away, or set TURNWISE_STATE_DIR to another folder"
            ) from None
