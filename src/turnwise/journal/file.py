"""The journal's SQLite file: opened, brought up to date, used by one thread at a time, its failures explained."""

import contextlib
import math
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from turnwise.errors import CallerError, JournalDamaged, JournalFailed, TurnwiseBug
from turnwise.journal.budgets import BUDGET_TABLES, GATEWAY_TABLE
from turnwise.journal.direct_ledger import REPAIRS_SCHEMA
from turnwise.journal.ledger import (
    LEAVES,
    LEDGER_CACHES,
    LEDGER_PROGRAMS,
    LEDGER_SCHEMA,
    STAYED,
    update_of,
    values_before,
)
from turnwise.journal.ledger_queries import ExactSum
from turnwise.journal.stores import (
    PROGRESS,
    BatchWritten,
    Dialect,
    JournalConnection,
    Patience,
    PenBatch,
    Statement,
    StoreThread,
    T,
    WouldWait,
)
from turnwise.settings.options import Durability

# SQLite's failures as a caller's: each says what is wrong, with which file, and what to do.


BUSY_S = 10.0
ELSEWHERE = "set TURNWISE_STATE_DIR to another folder (in Python: give `Journal` another path)"
A_FOLDER = "set TURNWISE_STATE_DIR to a folder (in Python: give `Journal` a path in one)"
KEEP_OPEN = "keep it open for as long as its agents and budgets are used"
RESCUE = "`turnwise sessions rescue` puts what can be read into a new file, and keeps this one"

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFREG: "a file", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}

# By the beginning of SQLite's name for the failure. Source: sqlite.org/rescode.html
_REMEDIES = {
    "SQLITE_FULL": f"make room on its disk, or {ELSEWHERE}",
    "SQLITE_READONLY": f"make the file and its folder writable, or {ELSEWHERE}",
    "SQLITE_CANTOPEN": f"make the file and its folder writable, or {ELSEWHERE}",
    "SQLITE_IOERR_SHMSIZE": f"there is no room beside it: make room on its disk, or {ELSEWHERE}",
    "SQLITE_IOERR": f"look at its disk, and at limits of a file's size, or {ELSEWHERE}",
}
_OF_LOCKS = frozenset(
    {
        *("SQLITE_PROTOCOL", "SQLITE_NOLFS", "SQLITE_IOERR_LOCK", "SQLITE_IOERR_RDLOCK", "SQLITE_IOERR_UNLOCK"),
        *("SQLITE_IOERR_CHECKRESERVEDLOCK", "SQLITE_IOERR_SHMLOCK", "SQLITE_IOERR_SHMMAP", "SQLITE_IOERR_SHMOPEN"),
    }
)
_NOT_TEXT = (
    "Could not decode to UTF-8"  # the module's own words, without a code: a page of noise in the middle of a text
)


def refuse_misplaced(path: Path) -> None:
    """Raises JournalFailed where something else stands at the journal's place: a file or a device where a folder of its path
    should be, a folder or a pipe where the file should be. Opening it would say less, or wait without end."""
    for place in (*reversed(path.absolute().parents), path):
        kind = _kind_at(place)
        wanted, way = ("a file", f"move it away, or {ELSEWHERE}") if place is path else ("a folder", A_FOLDER)
        if kind not in ("", wanted):
            raise JournalFailed(f"the journal `{path}` cannot be used: `{place}` is {kind}, not {wanted}; {way}")


def _kind_at(place: Path) -> str:
    """Empty where nothing stands there, or nobody tells."""
    try:
        return _KINDS.get(stat.S_IFMT(place.stat().st_mode), "a device")
    except (OSError, ValueError):
        return "a link that leads nowhere" if os.path.islink(place) else ""  # noqa: PTH114 (never raises)


def name_of(error: sqlite3.Error) -> str:
    """SQLite's own name; empty for failures of Python's module."""
    return getattr(error, "sqlite_errorname", None) or ""


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken, and not the way to it."""
    return name_of(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or _NOT_TEXT in str(error)


def is_held(error: sqlite3.Error) -> bool:
    """Whether somebody else has the file, and it may be free again soon."""
    return name_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def is_of_locks(error: sqlite3.Error, path: Path | None) -> bool:
    """Whether the file system takes no locks. Some say so as if somebody else held one, so those are tried."""
    name = name_of(error)
    return name in _OF_LOCKS or (name.startswith("SQLITE_BUSY") and path is not None and not _takes_locks(path.parent))


def _takes_locks(folder: Path) -> bool:
    """True unless a lock on a file of its own is refused there."""
    if sys.platform == "win32":
        return True
    import fcntl
    import tempfile  # loads much, and is needed where something is wrong

    try:
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed below)
    except OSError:
        return True
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def raise_explained(error: sqlite3.Error, path: Path | None = None, *, tables: tuple[str, ...] = ()) -> NoReturn:
    """`tables` are those that are known to be damaged. Raises JournalDamaged, JournalFailed or TurnwiseBug."""
    name = f"the journal `{path}`" if path else "the journal"
    text, code = str(error), name_of(error)
    if is_damage(error):
        raise JournalDamaged(damage_line(name, text=text, code=code, tables=tables)) from None
    if is_of_locks(error, path):
        raise JournalFailed(
            f"{name} cannot be used: its file system takes no locks ({code}), as some network folders do not; "
            "set TURNWISE_STATE_DIR to a folder on a local disk"
        ) from None
    if is_held(error):
        raise JournalFailed(
            f"{name} is held by another process for more than {BUSY_S:g} s: wait for it, or {ELSEWHERE}"
        ) from None
    if not code and "closed database" in text:
        raise JournalFailed(f"{name} is closed: {KEEP_OPEN}") from None
    if not code or isinstance(error, sqlite3.ProgrammingError | sqlite3.IntegrityError | sqlite3.InterfaceError):
        raise TurnwiseBug(f"{name}: {error}") from error
    remedy = next((said for begin, said in _REMEDIES.items() if code.startswith(begin)), ELSEWHERE)
    shown = f"{text} ({code})" if code.startswith("SQLITE_IOERR") else text
    raise JournalFailed(f"{name} cannot be used: {shown}; {remedy}") from None


def damage_line(name: str, *, text: str, code: str, tables: tuple[str, ...]) -> str:
    """What is said of a damaged file, in one line."""
    if code.startswith("SQLITE_NOTADB"):
        return f"{name} is damaged or no SQLite file ({text}): move it away, or {ELSEWHERE}"
    where = (
        f" in {'table' if len(tables) == 1 else 'tables'} {', '.join([f'`{one}`' for one in tables])}" if tables else ""
    )
    return f"{name} is damaged{where} ({text}), and is not written any more: {RESCUE}"


# Which tables of a journal's file are damaged.
#
# SQLite has no checksums: what can be found is a page that is no page, and not a letter that was changed inside of a text.


SHORT_S = 2.0  # a turn that meets the damage waits for this
_STEPS = 10_000  # of SQLite's machine between two looks at the clock


def damaged_tables(connection: sqlite3.Connection, *, within_s: float | None = None) -> tuple[str, ...]:
    """Their names, the indexes of each included, in the order of the file. Empty where none is, where it cannot be told, or
    where it took longer than `within_s`."""
    try:
        names = [
            name for (name,) in connection.execute("select name from sqlite_schema where type = 'table' order by rowid")
        ]
    except sqlite3.Error:
        return ()
    until_s = None if within_s is None else time.monotonic() + within_s
    if until_s is not None:
        connection.set_progress_handler(_stops(until_s), _STEPS)
    try:
        return tuple([name for name in names if not _is_whole(connection, name)])
    except TimeoutError:
        return ()
    finally:
        connection.set_progress_handler(None, 0)


def _stops(until_s: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > until_s


def _is_whole(connection: sqlite3.Connection, table: str) -> bool:
    quoted = table.replace('"', '""')
    try:
        said = connection.execute(f'pragma quick_check("{quoted}")').fetchall()
    except sqlite3.Error as error:
        if "interrupted" in str(error):
            raise TimeoutError from None
        return False
    return said == [("ok",)]


def is_whole(connection: sqlite3.Connection) -> bool:
    """Whether SQLite's own check of all pages finds nothing. It reads the whole file."""
    try:
        return connection.execute("pragma quick_check(1)").fetchall() == [("ok",)]
    except sqlite3.Error:
        return False


# The tables of the journal's SQLite file, and what brings an older file up to them.
#
# They are those that PostgreSQL will have when machines share (`turn` has an epoch, so a writer whose turn was taken over cannot
# append).


SCHEMA_VERSION = 11
APPLICATION_ID = 0x7475726E  # "turn": tells our files from other SQLite files

FIRST_TABLES = """
create table session (
    id text primary key, folder text not null, title text not null, created real not null, updated real not null,
    parent_turn text, parent_call text
) strict;
create index session_by_folder on session (folder, updated);
create index session_by_parent on session (parent_turn);
create table turn (
    id text primary key, session text not null references session (id), status text not null,
    epoch integer not null default 1, owner text not null, created real not null, finished real,
    stop_reason text, complete integer
) strict;
create index turn_by_session on turn (session, id);
create table event (
    turn text not null references turn (id), seq integer not null, epoch integer not null, kind text not null,
    body text not null, t real not null, primary key (turn, seq)
) strict;
"""
# Version 5 keeps the records of a turn in the table itself, in order, behind the turn's number: an index beside it took a third
# of all pages that were written. Turns of older files, and of older processes that have one open, stay in `event`; `written`
# is both. Requests are found by their row, so `request_by_turn` is gone.
SEQ_BITS = 32
RECORDS = (
    "alter table turn add column number integer",
    "create unique index turn_by_number on turn (number)",
    """create table record (
        id integer primary key, epoch integer not null, kind text not null, body text not null, t real not null
    ) strict""",
    f"""create view written as select turn, seq, kind, body, t from event
        union all select turn.id, record.id - (turn.number << {SEQ_BITS}), record.kind, record.body, record.t
        from turn join record on record.id > turn.number << {SEQ_BITS} and record.id < (turn.number + 1) << {SEQ_BITS}""",
    "drop index if exists request_by_turn",
)
# Version 9 keeps budgets, and the labels of a session as a JSON object.
SHARED = (*BUDGET_TABLES, "alter table session add column labels text not null default '{}'")
# Version 10 keeps the caller's key of a turn, and what it is asked. One index serves both ways to find a turn in its session. The
# schema stays within the first page, so that no other broken page costs the whole file.
KEYS = (
    "alter table turn add column key text",
    "alter table turn add column asked text",
    "drop index if exists turn_by_session",
    "create unique index turn_by_key on turn (session, key)",
)
SCHEMA = ";".join(
    (
        FIRST_TABLES.strip().removesuffix(";"),
        LEDGER_SCHEMA,
        *LEDGER_PROGRAMS,
        *RECORDS,
        *LEDGER_CACHES,
        *REPAIRS_SCHEMA,
        *SHARED,
        *KEYS,
        GATEWAY_TABLE,  # version 11
    )
)

# What brings an older file up to the next version, by its version.
UPGRADES = {
    1: (
        "alter table session add column parent_turn text",
        "alter table session add column parent_call text",
        "create index session_by_parent on session (parent_turn)",
    ),
    2: tuple(LEDGER_SCHEMA.split(";")),
    3: LEDGER_PROGRAMS,
    4: RECORDS,
    5: LEDGER_CACHES,
    6: REPAIRS_SCHEMA,
    7: (),  # the records of a turn that went on after a crash: an older turnwise would replay them wrongly
    8: SHARED,
    9: KEYS,
    10: (GATEWAY_TABLE,),
}


SWITCH_AGAIN_S = 0.005
FIRST_BUSY_MS = 200
BUSY_MS = int(BUSY_S * 1000)
BUSY_STEP_MS = 100  # a limit that is set again each time costs as much as a write
SQLITE = Dialect(
    day="coalesce(strftime('%Y-%m-%d', started, 'unixepoch', 'localtime'), 'unknown')",
    texts="select value from json_each({})",
    next_number="(select coalesce(max(number), 0) + 1 from turn)",
    shell="sqlite3",
    elsewhere=ELSEWHERE,
    record=f"insert into record (id, epoch, kind, body, t) values ((? << {SEQ_BITS}) + ?, ?, ?, ?, ?)",
    last_epoch=f"select epoch from record where id > (:number << {SEQ_BITS}) and id < ((:number + 1) << {SEQ_BITS})"
    f" and {PROGRESS} order by id desc limit 1",
    waits_elsewhere="0",
    forget=(
        "delete from event where turn = :turn",
        f"delete from record where id > (:number << {SEQ_BITS}) and id < ((:number + 1) << {SEQ_BITS})",
    ),
    before_deleting="pragma secure_delete = on",
    after_deleting="pragma wal_checkpoint(truncate)",
    locked="",
    unless_locked="",
    label="case when json_valid(session.labels) then (select value from json_each(session.labels) where key = ?) end",
    others="pragma data_version",
)


class Use:
    """The connection, for as long as one thread has it. Once it has met damage, it writes no more.

    Who may not wait gets WouldWait where another thread or another process has it. All others wait for both, within one limit.
    """

    def __init__(self, connection: sqlite3.Connection, *, path: Path | None, patience: Patience) -> None:
        self._connection = connection
        self._path = path
        self._lock = threading.Lock()
        self._damage = ""
        self._patience = patience
        self._busy_ms = -1  # of the connection; nobody has said yet

    def __enter__(self) -> sqlite3.Connection:
        patience = self._patience
        ends = patience.until(BUSY_S) if patience.ends is not None else None
        if not self._lock.acquire(blocking=False):
            if not patience.may_wait:
                raise WouldWait
            ends = patience.until(BUSY_S)
            self._lock.acquire()
        left_s = BUSY_S if ends is None else max(ends - time.monotonic(), 0.0)
        busy_ms = math.ceil(left_s * 1000 / BUSY_STEP_MS) * BUSY_STEP_MS if patience.may_wait else 0
        if busy_ms != self._busy_ms:
            with contextlib.suppress(sqlite3.Error):  # it is closed: what it is wanted for says so
                self._connection.execute(f"pragma busy_timeout = {busy_ms}")
                self._busy_ms = busy_ms
        return self._connection

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        try:
            if isinstance(error, sqlite3.Error):
                if not self._patience.may_wait and is_held(error):
                    raise WouldWait from None
                self._explain(error)
        finally:
            self._lock.release()

    def _explain(self, error: sqlite3.Error) -> NoReturn:
        if self._damage:
            raise JournalDamaged(self._damage) from None
        if not is_damage(error):
            raise_explained(error, self._path)
        self._connection.execute("pragma query_only = on")
        try:
            raise_explained(error, self._path, tables=damaged_tables(self._connection, within_s=SHORT_S))
        except JournalDamaged as damage:
            self._damage = str(damage)
            raise


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

    def __init__(self, connection: sqlite3.Connection, *, path: Path | None = None) -> None:
        self._connection = connection
        self._name: str = connection.execute("pragma database_list").fetchone()[2]
        self.thread = StoreThread(limit_s=BUSY_S)
        self._use = Use(connection, path=path, patience=self.thread.patience)
        # typeshed knows sums of integers only
        connection.create_aggregate("exact_sum", -1, ExactSum)  # pyright: ignore[reportArgumentType]

    def at_once(self, work: Callable[[], T]) -> T:
        """Raises WouldWait where another thread or another process has the file."""
        patience = self.thread.patience
        patience.may_wait = False
        try:
            return work()
        finally:
            patience.may_wait = True

    def statement(self) -> Use:
        """For a single statement, its rows fetched inside: it is a transaction of its own."""
        return self._use

    @contextlib.contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with self._use as connection, Transaction(connection):
            yield connection

    @property
    def dialect(self) -> Dialect:
        return SQLITE

    @property
    def name(self) -> str:
        """ "" in memory."""
        return self._name

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

    def is_whole(self) -> bool:
        """Whether SQLite finds no broken page. It reads the whole file."""
        with self._use as connection:
            return is_whole(connection)

    def keep(self, durability: Durability) -> None:
        """SQLite takes this between two transactions, and there is none while `statement` is free."""
        with self._use as connection:
            connection.execute(f"pragma synchronous = {durability}")

    def close(self) -> None:
        self.thread.finish()
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
    """SQLite gives its `-wal` and `-shm` files the mode of the file itself. Raises JournalFailed."""
    refuse_misplaced(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_or_find(path)
    except OSError as error:
        raise JournalFailed(
            f"the journal `{path}` cannot be written ({error.strerror}): make it writable, or {ELSEWHERE}; "
            "`turnwise sessions` and `turnwise usage` can still read it"
        ) from None


def _make_or_find(path: Path) -> None:
    """A file that is there is not opened: closing it again would take the locks away that this process may hold on it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir() or not os.access(path, os.R_OK | os.W_OK):
            os.close(os.open(path, os.O_RDWR))  # raises what is in the way


def prepare(connection: sqlite3.Connection, path: Path | None, *, durability: Durability) -> None:
    connection.execute("pragma foreign_keys = on")
    connection.execute(f"pragma synchronous = {durability}")
    first_look(connection, path)
    _switch_to_wal(connection)
    with Transaction(connection):
        version = check_version(connection, path)
        if version == 0:
            for statement in SCHEMA.split(";"):
                connection.execute(" ".join(statement.split()))  # SQLite keeps the text, blanks included
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


def first_look(connection: sqlite3.Connection, path: Path | None, *, newer: bool = False) -> int:
    """As `check_version`, but a file system without locks is told at once: some look as if another process held the file."""
    connection.execute(f"pragma busy_timeout = {FIRST_BUSY_MS}")
    try:
        return check_version(connection, path, newer=newer)
    except sqlite3.OperationalError as error:
        if not name_of(error).startswith("SQLITE_BUSY") or is_of_locks(error, path):
            raise
    finally:
        connection.execute(f"pragma busy_timeout = {BUSY_MS}")
    return check_version(connection, path, newer=newer)


def check_version(connection: sqlite3.Connection, path: Path | None, *, newer: bool = False) -> int:
    """The file's version, 0 for an empty one. Raises CallerError for another's, or a newer one's unless `newer` may be."""
    (version,) = connection.execute("pragma user_version").fetchone()
    (application,) = connection.execute("pragma application_id").fetchone()
    (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise CallerError(f"`{path}` is not a journal of turnwise; {ELSEWHERE}")
    if not newer:
        refuse_newer(version, path)
    return version


def refuse_newer(version: int, path: Path | None = None) -> None:
    if version > SCHEMA_VERSION:
        name = f"the journal `{path}`" if path else "the journal"
        raise JournalFailed(
            f"{name} is from a newer turnwise (version {version}, this one knows {SCHEMA_VERSION}): upgrade, or {ELSEWHERE}"
        )
