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

import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import msgspec

from turnwise.drivers.clock import Clock
from turnwise.drivers.journal.direct_ledger import DirectLedger
from turnwise.drivers.journal.file import BUSY_S, JournalFile, make_private, prepare, raise_explained, refuse_newer
from turnwise.drivers.journal.ledger_queries import LedgerReader
from turnwise.drivers.journal.owners import is_alive, our_name
from turnwise.drivers.journal.pen import TurnJournal
from turnwise.drivers.journal.records import JournalRecord, RequestSent, ToolsStarted, decode_record
from turnwise.drivers.journal.repairs_seen import RepairBook
from turnwise.drivers.journal.retention import Retention
from turnwise.errors import CallerError
from turnwise.turn.events import Event
from turnwise.vocab import StopReason

SHORTEST_PREFIX = 4

SessionStatus = Literal["running", "waiting", "done", "lost"]
"""`waiting`: ended while calls wait for the client or for a person. `lost`: its process went away before the end."""


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


class Journal:
    """The file. Several processes may have it open at once."""

    def __init__(self, file: JournalFile, *, clock: Clock) -> None:
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
                make_private(path)
            connection = sqlite3.connect(
                ":memory:" if path is None else path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                prepare(connection, path, synchronous=synchronous)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise_explained(error, path)
        return cls(JournalFile(connection), clock=clock)

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
            refuse_newer(connection.execute("pragma user_version").fetchone()[0])
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
            return [JournalEntry(seq=seq, time=t, record=decode_record(body)) for seq, t, body in rows]
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

    @property
    def retention(self) -> Retention:
        """Which sessions there are to delete."""
        return Retention(transaction=self._file.transaction, statement=self._file.statement)

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
