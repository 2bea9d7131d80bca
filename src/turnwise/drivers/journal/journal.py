"""The journal: what happened in every turn, in order, in one SQLite file.

One writer per turn. Events are written before they are acted upon, and what is about to touch the outside (a request, a
tool) is written as started before it starts, in one transaction with what has just happened and led to it. The tables are
those that PostgreSQL will have when machines share (`turn` has an epoch, so a writer whose turn was taken over cannot append).

`synchronous=NORMAL` in WAL mode: a commit is in the operating system's hands, so `kill -9` at any moment loses nothing;
a power failure may lose the last commits (never the file). FULL waits for the disk at every append, which costs
milliseconds of wall time on real disks inside the event loop; `synchronous="full"` is there for those who want it.
Appends run in the event loop's thread: at 0.03 ms of CPU (0.11 with FULL) they are cheaper than a hop to another one.
Threads (several event loops) may share one `Journal`: they take turns.
"""

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NoReturn, Self, get_args

import msgspec

from turnwise.drivers.clock import Clock
from turnwise.drivers.journal.direct_ledger import DirectLedger
from turnwise.drivers.journal.ledger import (
    LEAVES,
    LEDGER_CACHES,
    LEDGER_PROGRAMS,
    LEDGER_SCHEMA,
    STAYED,
    LedgerEntry,
    update_of,
    values_before,
)
from turnwise.drivers.journal.ledger_queries import LedgerReader
from turnwise.drivers.journal.owners import is_alive, our_name
from turnwise.drivers.journal.repairs_seen import REPAIRS_SCHEMA, RepairBook
from turnwise.errors import CallerError, JournalFailed, TurnwiseBug
from turnwise.turn.commands import Purpose
from turnwise.turn.config import TurnResult
from turnwise.turn.events import Event
from turnwise.vocab import StopReason

SCHEMA_VERSION = 7
APPLICATION_ID = 0x7475726E  # "turn": tells our files from other SQLite files
BUSY_S = 10.0
SWITCH_AGAIN_S = 0.005
SHORTEST_PREFIX = 4

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
SCHEMA = ";".join(
    (
        FIRST_TABLES.strip().removesuffix(";"),
        LEDGER_SCHEMA,
        *LEDGER_PROGRAMS,
        *RECORDS,
        *LEDGER_CACHES,
        *REPAIRS_SCHEMA,
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
}

SessionStatus = Literal["running", "waiting", "done", "lost"]
"""`waiting`: ended while calls wait for the client or for a person. `lost`: its process went away before the end."""


class RequestSent(msgspec.Struct, frozen=True, kw_only=True, tag="request_sent"):
    """A request is about to leave. The hash stands for the body: the history in it is in the journal already. If it never left,
    the `request_failed` or `interrupted` after it says that it was not sent."""

    number: int
    purpose: Purpose
    url: str  # without its query
    body_sha256: str
    body_bytes: int


class ToolsStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tools_started"):
    """Calls are about to run; without a ToolsFinished after it they may have run, or not, or in part."""

    step: int
    call_ids: tuple[str, ...]


JournalRecord = Event | RequestSent | ToolsStarted
_KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(JournalRecord)}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalRecord).decode


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list of sessions. Times are UTC, seconds since 1970."""

    id: str
    folder: str
    title: str
    created: float
    updated: float
    turns: int
    status: SessionStatus | None  # of the last turn
    stop_reason: StopReason | None
    complete: bool | None


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    session: str
    status: SessionStatus
    created: float
    finished: float | None
    stop_reason: StopReason | None
    complete: bool | None


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    time: float
    record: JournalRecord


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it stands, its turns in order. The turn room folds the events into messages."""

    row: SessionRow
    turns: tuple[TurnRow, ...]


def journal_path(env: Mapping[str, str]) -> Path:
    """TURNWISE_STATE_DIR, else `turnwise` in XDG_STATE_HOME, else in ~/.local/state (XDG Base Directory Specification)."""
    if own := env.get("TURNWISE_STATE_DIR"):
        return Path(own).expanduser() / "journal.db"
    base = env.get("XDG_STATE_HOME")
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return folder / "turnwise" / "journal.db"


class _Use:
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
            _raise_explained(error)


class _Transaction:
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


class _File:
    """The connection, for one thread at a time: a transaction belongs to the connection, so another thread's statements would
    fall into it, and vanish if it is rolled back."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._use = _Use(connection)

    def statement(self) -> _Use:
        """For a single statement, its rows fetched inside: it is a transaction of its own."""
        return self._use

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with self._use as connection, _Transaction(connection):
            yield connection

    def close(self) -> None:
        with self._use:
            self._connection.close()


class TurnJournal:
    """The pen of one turn. Writing raises JournalFailed where the file takes nothing more (a full disk), or another process
    has taken the turn over. What could not be written waits for the next attempt.

    What has happened may wait for what comes next (`later`), so that a step costs two transactions and not five. Whoever
    holds the pen writes before anything is acted upon: before a request, a tool, a person or time is waited for.
    """

    def __init__(self, file: _File, *, journal: "Journal", turn_id: str, number: int, epoch: int, clock: Clock) -> None:
        self.journal = journal
        self._file = file
        self._turn_id = turn_id
        self._epoch = epoch
        self._clock = clock
        self._last_id = number << SEQ_BITS  # of its records
        self._waiting: list[_EventRow] = []
        self._became: dict[int, LedgerEntry] = {}  # requests whose entries wait, too
        self._rows_of_requests: dict[int, int] = {}  # of the ledger's table, by the request's number
        self._stayed: list[int] = []  # rows of requests that never left, to be struck out
        self._has_ended = False

    def append(self, record: JournalRecord) -> None:
        """On return the record is safe from our own death, and all that waited."""
        self._write((*self._waiting, self._row_of(record)))

    def later(self, record: JournalRecord) -> None:
        """Take the record down, to be written with what comes next."""
        self._waiting.append(self._row_of(record))

    def write(self) -> None:
        """On return nothing waits any more."""
        if self._waiting or self._became or self._stayed:
            self._write(self._waiting)

    def request_leaves(self, record: RequestSent, entry: LedgerEntry) -> None:
        """Write down a request before its first byte leaves: the record and its entry of the ledger, both or none."""
        self._write((*self._waiting, self._row_of(record)), leaves=entry)

    def request_became(self, entry: LedgerEntry) -> None:
        """Complete a request's entry, with what comes next. It is kept even if another process has taken the turn over: it
        was sent."""
        self._became[entry.number] = entry
        self._write_if_ended()

    def request_stayed(self, entry: LedgerEntry) -> None:
        """Strike out the entry of a request that never left, with what comes next."""
        self._stayed.append(self._rows_of_requests.pop(entry.number))
        self._write_if_ended()

    def _write_if_ended(self) -> None:
        """What becomes of a request that was left behind: nothing comes next."""
        if self._has_ended:
            with suppress(JournalFailed):  # nobody is left to be told
                self.write()

    def _row_of(self, record: JournalRecord) -> "_EventRow":
        self._last_id += 1
        body = _encode(record).decode()
        return self._last_id, _KINDS[type(record)], body, self._clock.now(), self._turn_id, self._epoch

    def _write(self, events: Sequence["_EventRow"], *, leaves: LedgerEntry | None = None) -> None:
        """All in one transaction. Where the turn is another's, nothing but what became of our requests is kept."""
        with self._file.statement() as connection:
            if leaves is None and len(events) + len(self._became) + len(self._stayed) == 1:
                is_ours = self._execute(events, connection=connection, leaves=None)
            else:
                with _Transaction(connection):
                    is_ours = self._execute(events, connection=connection, leaves=leaves)
        self._waiting = []
        self._became = {}
        self._stayed = []
        if not is_ours:
            raise JournalFailed("another process has taken this turn over")

    def _execute(
        self, events: Sequence["_EventRow"], *, connection: sqlite3.Connection, leaves: LedgerEntry | None
    ) -> bool:
        """False where the turn is another's."""
        is_ours = True
        for entry in self._became.values():
            connection.execute(*update_of(entry, row_id=self._rows_of_requests[entry.number]))
        for row_id in self._stayed:
            connection.execute(STAYED, (row_id,))
        for values in events:
            is_ours = is_ours and connection.execute(_EVENT, values).rowcount == 1
        if is_ours and leaves is not None:
            row_id = connection.execute(LEAVES, values_before(leaves)).lastrowid
            assert row_id is not None, "it was inserted"
            self._rows_of_requests[leaves.number] = row_id
        return is_ours

    def close(self, result: TurnResult) -> None:
        """The turn has ended: note how, for the list of sessions."""
        self.write()
        self._has_ended = True
        now = self._clock.now()
        status = "waiting" if result.pending else "done"
        with self._file.transaction() as connection:
            connection.execute(
                "update turn set status = ?, finished = ?, stop_reason = ?, complete = ? where id = ? and epoch = ?",
                (status, now, result.stop_reason, result.complete, self._turn_id, self._epoch),
            )
            connection.execute(
                "update session set updated = ? where id = (select session from turn where id = ?)",
                (now, self._turn_id),
            )

    def abandon(self) -> None:
        """The run ended by an exception: the turn is lost, and the session free for the next one, even if the file cannot say
        so now (JournalFailed). Does nothing after `close`."""
        self._has_ended = True
        try:
            self.write()
        finally:
            try:
                with self._file.statement() as connection:
                    connection.execute(
                        "update turn set status = 'lost', finished = ? where id = ? and epoch = ? and status = 'running'",
                        (self._clock.now(), self._turn_id, self._epoch),
                    )
            except JournalFailed:
                self.journal.leave(self._turn_id)
                raise


_EventRow = tuple[int, str, str, float, str, int]
"""The values of `_EVENT`."""
_EVENT = (
    "insert into record (id, epoch, kind, body, t)"
    " select ?, epoch, ?, ?, ? from turn where id = ? and epoch = ? and status = 'running'"
)


class Journal:
    """The file. Several processes may have it open at once."""

    def __init__(self, file: _File, *, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._left: set[str] = set()  # turns of this process that have ended, whatever the file says

    @classmethod
    def open(cls, path: Path | str | None, *, clock: Clock, synchronous: Literal["normal", "full"] = "normal") -> Self:
        """Open or make the file (mode 0600, its folder 0700); None keeps it in memory.

        Raises CallerError where the file is no journal, is damaged, is from a newer turnwise, or cannot be written.
        """
        path = None if path is None else Path(path)
        try:
            if path is not None:
                _make_private(path)
            connection = sqlite3.connect(
                ":memory:" if path is None else path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                _prepare(connection, path, synchronous=synchronous)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            _raise_explained(error, path)
        return cls(_File(connection), clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def begin_turn(
        self,
        *,
        turn_id: str,
        session_id: str,
        folder: Path | str,
        title: str,
        parent: tuple[str, str] | None = None,
    ) -> TurnJournal:
        """A new turn of a session, which is made if it is new; `title` is kept from its first turn. `parent` are the turn and
        the call that a sub-agent's session belongs to.

        Raises CallerError while a living process (this one too) runs a turn of that session, or where a newer turnwise has
        changed the file since it was opened: its turns may stand where we do not look. A turn that a dead one left is
        marked as lost: see `Session.turns`.
        """
        now = self._clock.now()
        with self._file.transaction() as connection:
            _refuse_newer(connection.execute("pragma user_version").fetchone()[0])
            connection.execute(
                "insert into session (id, folder, title, created, updated, parent_turn, parent_call)"
                " values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set updated = excluded.updated",
                (session_id, str(folder), title, now, now, *(parent or (None, None))),
            )
            for running, owner in connection.execute(
                "select id, owner from turn where session = ? and status = 'running'", (session_id,)
            ).fetchall():
                if running not in self._left and is_alive(owner):
                    raise CallerError(
                        f"session `{session_id}` is running already ({owner}): wait for it, or start a new session"
                    )
            connection.execute(
                "update turn set status = 'lost', epoch = epoch + 1, finished = ? where session = ? and status = 'running'",
                (now, session_id),
            )
            (number,) = connection.execute(
                "insert into turn (id, session, status, owner, created, number)"
                " values (?, ?, 'running', ?, ?, (select coalesce(max(number), 0) + 1 from turn)) returning number",
                (turn_id, session_id, our_name(), now),
            ).fetchone()
        return TurnJournal(self._file, journal=self, turn_id=turn_id, number=number, epoch=1, clock=self._clock)

    def leave(self, turn_id: str) -> None:
        """Nobody works on that turn any more, though the file may still call it running."""
        self._left.add(turn_id)

    def sessions(self, *, limit: int = 100) -> list[SessionRow]:
        """The latest first, without those of sub-agents."""
        with self._file.statement() as connection:
            return [_session_row(row) for row in connection.execute(f"{_ROOTS} limit ?", (limit,))]

    def count_sessions(self) -> int:
        """Without those of sub-agents."""
        with self._file.statement() as connection:
            (count,) = connection.execute("select count(*) from session where parent_turn is null").fetchone()
        return count

    def children(self, turn_id: str) -> list[tuple[str, Session]]:
        """The sessions of the sub-agents that a turn started, each with the call that it belongs to, in order."""
        with self._file.statement() as connection:
            calls = dict(
                connection.execute("select id, parent_call from session where parent_turn = ?", (turn_id,)).fetchall()
            )
            rows = connection.execute(_SESSIONS_WHERE.format("parent_turn = ?"), (turn_id,)).fetchall()
        found = sorted([_session_row(row) for row in rows], key=lambda row: (row.created, row.id))
        return [(calls[row.id], self._load(row)) for row in found]

    def find_session(self, id_or_part: str) -> Session:
        """By its id, or by the beginning or end of it. Raises CallerError where none or several match."""
        if len(id_or_part) < SHORTEST_PREFIX or not id_or_part.isalnum():
            raise CallerError(
                f"`{id_or_part}` is no session id: give at least {SHORTEST_PREFIX} letters or digits of it"
            )
        with self._file.statement() as connection:
            rows = connection.execute(
                f"{_SESSIONS_WHERE.format('id = ?1 or id glob ?2 or id glob ?3')} limit 20",
                (id_or_part, f"{id_or_part}*", f"*{id_or_part}"),
            ).fetchall()
        rows = [row for row in rows if row[0] == id_or_part] or rows
        if not rows:
            raise CallerError(f"there is no session `{id_or_part}`; `turnwise sessions list` shows them")
        if len(rows) > 1:
            raise CallerError(f"`{id_or_part}` fits several sessions: {', '.join([row[0] for row in rows])}")
        return self._load(_session_row(rows[0]))

    def last_session(self, folder: Path | str) -> Session | None:
        """The one of that folder that was used last."""
        with self._file.statement() as connection:
            row = connection.execute(
                f"{_SESSIONS_WHERE.format('folder = ? and parent_turn is null')} limit 1", (str(folder),)
            ).fetchone()
        return None if row is None else self._load(_session_row(row))

    def entries(self, turn_id: str) -> list[JournalEntry]:
        """Everything written about a turn, in order. Raises CallerError where the text is damaged."""
        with self._file.statement() as connection:
            rows = connection.execute(
                "select seq, t, body from written where turn = ? order by seq", (turn_id,)
            ).fetchall()
        try:
            return [JournalEntry(seq=seq, time=t, record=_decode(body)) for seq, t, body in rows]
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CallerError(f"the journal of turn `{turn_id}` cannot be read: {error}") from None

    def events(self, turn_id: str) -> list[Event]:
        """The events alone: from them the turn is rebuilt."""
        return [
            entry.record for entry in self.entries(turn_id) if not isinstance(entry.record, RequestSent | ToolsStarted)
        ]

    def requests_by_purpose(self, turn_id: str) -> dict[str, int]:
        """How many requests of each purpose a turn has sent, in the order of the first of each."""
        with self._file.statement() as connection:
            rows = connection.execute(
                "select kind, case kind when 'request_sent' then json_extract(body, '$.purpose')"
                " when 'response_received' then null else json_extract(body, '$.sent') end from written where turn = ?"
                " and kind in ('request_sent', 'response_received', 'request_failed', 'interrupted') order by seq",
                (turn_id,),
            ).fetchall()
        purposes: list[str] = []
        before = ""
        for kind, said in rows:
            if kind == "request_sent":
                purposes.append(said)
            elif said == 0 and before == "request_sent":
                purposes.pop()  # it was about to leave, and never did
            before = kind
        return dict(Counter(purposes))

    @property
    def ledger(self) -> LedgerReader:
        """What all requests were, and what they cost."""
        return LedgerReader(self._file.statement)

    @property
    def direct(self) -> DirectLedger:
        """For requests that belong to no turn."""
        return DirectLedger(self._file.transaction)

    @property
    def repairs(self) -> RepairBook:
        """What the gateway had to mend."""
        return RepairBook(transaction=self._file.transaction, statement=self._file.statement)

    def _load(self, row: SessionRow) -> Session:
        with self._file.statement() as connection:
            rows = connection.execute(
                "select id, session, status, created, finished, stop_reason, complete, owner from turn"
                " where session = ? order by created, id",
                (row.id,),
            ).fetchall()
        turns = [
            TurnRow(
                id=id,
                session=session,
                status="lost" if status == "running" and not is_alive(owner) else status,
                created=created,
                finished=finished,
                stop_reason=None if stop_reason is None else StopReason(stop_reason),
                complete=None if complete is None else bool(complete),
            )
            for id, session, status, created, finished, stop_reason, complete, owner in rows
        ]
        return Session(row=row, turns=tuple(turns))


_SESSIONS_WHERE = """
select id, folder, title, created, updated, (select count(*) from turn where session = session.id),
    last.status, last.stop_reason, last.complete, last.owner
from session left join (
    select session as of, status, stop_reason, complete, owner, max(created) from turn group by session
) last on last.of = session.id
where {} order by updated desc, id desc"""
_ROOTS = _SESSIONS_WHERE.format("parent_turn is null")

SessionColumns = tuple[str, str, str, float, float, int, SessionStatus | None, str | None, int | None, str | None]


def _session_row(columns: SessionColumns) -> SessionRow:
    id, folder, title, created, updated, turns, status, stop_reason, complete, owner = columns
    return SessionRow(
        id=id,
        folder=folder,
        title=title,
        created=created,
        updated=updated,
        turns=turns,
        status="lost" if status == "running" and owner and not is_alive(owner) else status,
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        complete=None if complete is None else bool(complete),
    )


def _make_private(path: Path) -> None:
    """SQLite gives its `-wal` and `-shm` files the mode of the file itself."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise CallerError(
            f"the journal `{path}` cannot be written ({error.strerror}); set TURNWISE_STATE_DIR to another folder"
        ) from None


def _prepare(connection: sqlite3.Connection, path: Path | None, *, synchronous: str) -> None:
    connection.execute("pragma foreign_keys = on")
    connection.execute(f"pragma synchronous = {synchronous}")
    _check_version(connection, path)
    _switch_to_wal(connection)
    with _Transaction(connection):
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
    _refuse_newer(version, path)
    return version


def _refuse_newer(version: int, path: Path | None = None) -> None:
    if version > SCHEMA_VERSION:
        name = f"the journal `{path}`" if path else "the journal"
        raise CallerError(
            f"{name} is from a newer turnwise (version {version}, this one knows {SCHEMA_VERSION}): "
            f"upgrade, or set TURNWISE_STATE_DIR to another folder"
        )


def _raise_explained(error: sqlite3.Error, path: Path | None = None) -> NoReturn:
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
