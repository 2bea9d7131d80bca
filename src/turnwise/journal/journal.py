"""The journal: what happened in every turn, in order, in one SQLite file or one database of PostgreSQL.

One writer per turn. Events are written before they are acted upon, and what is about to touch the outside (a request, a
tool) is written as started before it starts, in one transaction with what has just happened and led to it. `turn` has an
epoch, so a writer whose turn was taken over cannot append. What follows is of SQLite; `postgres/` tells of the other.

At `durability="normal"` a commit is in the operating system's hands, so `kill -9` at any moment loses nothing; a power failure
may lose the last commits (never the file). `durability="full"` waits for the disk at every commit, which costs milliseconds of
wall time on real disks inside the event loop.
A turn's appends run in its event loop's thread: at 0.03 ms of CPU (0.11 with `full`) they are cheaper than a hop to another one.
Where the file is not free, they wait for it beside the loop (`stores.py`).
Threads (several event loops) may share one `Journal`: they take turns.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self, get_args

import msgspec

from turnwise.base.clock import Clock, SystemClock, TimeOrderedIds
from turnwise.base.extras import require_extras
from turnwise.errors import (
    CallerError,
    JournalFailed,
    NothingToResume,
    SessionBusy,
    SessionLeft,
    UnreadableTurn,
)
from turnwise.journal.budgets import BudgetBook
from turnwise.journal.direct_ledger import DirectLedger, RepairBook
from turnwise.journal.file import BUSY_S, JournalFile, make_private, prepare, raise_explained
from turnwise.journal.ledger import Value
from turnwise.journal.ledger_queries import LedgerReader
from turnwise.journal.owners import (
    WORKER,
    Claim,
    Lease,
    is_alive,
    is_frozen,
    is_here,
    is_of_earlier_boot,
    our_name,
    presume_gone,
    said_to_run,
)
from turnwise.journal.session_rows import (
    HAS_PART,
    NO_LABELS,
    RUNNING_BELOW,
    SESSIONS_WHERE,
    Labels,
    Retention,
    Session,
    SessionColumns,
    SessionRow,
    SessionStatus,
    TurnRow,
    check_session_id,
    labels_text,
    read_labels,
    session_row,
    shown_id,
)
from turnwise.journal.stores import JournalConnection, JournalStore, T, Values, beside
from turnwise.journal.turn_keys import (
    KeyedTurn,
    TurnKey,
    accept,
    as_message,
    asked_digest,
    check_new_id,
    find_key,
    take_key,
)
from turnwise.journal.turn_writer import (
    KINDS,
    JournalEntry,
    TurnJournal,
    begun_calls,
    decode_record,
    encode_record,
    events_of,
)
from turnwise.settings.options import Durability, check_durability
from turnwise.settings.settings import state_folder
from turnwise.turn.config import TurnResult
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionFold, SessionSoFar, rebuilt
from turnwise.vocab import File, Message, StopReason, Text
from turnwise.vocab.file_names import is_text, shown_name

if TYPE_CHECKING:
    from turnwise.journal.gateway_rows import GatewayBook

SHORTEST_PREFIX = 4
# The session that was begun last is the last one, also by a clock that has gone back. A double of today's time tells it apart.
AFTER_S = 1e-6
DATABASES = ("postgresql://", "postgres://")
# Of another database, or of PostgreSQL as a `Path`, which makes one slash of two.
_ADDRESS = re.compile(r"[a-z+]+://|postgres(ql)?:/")


class WrittenPlace(NamedTuple):
    """A record: the number of its turn, and its own in that. A turn's number says when it began, beside those of its session."""

    turn: int = 0
    seq: int = 0


class WrittenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record as it stands, not read yet. `time` is UTC, seconds since 1970."""

    place: WrittenPlace
    turn_id: str
    time: float
    body: str


def journal_path(env: Mapping[str, str]) -> Path:
    """The user's journal, whether it is there or not."""
    return state_folder(env) / "journal.db"


def _opened(path: Path | str | None, *, durability: Durability) -> JournalStore:
    if isinstance(path, str) and path.startswith(DATABASES):
        database = _database_at(path)
        if durability == "full":
            database.keep("full")
        return database
    if path is not None and _ADDRESS.match(str(path)):
        raise CallerError(  # without quoting it: it may hold a password
            "the journal's address is neither a path nor one of PostgreSQL: give `postgresql://USER@HOST/DATABASE` as a text"
        )
    path = None if path is None else Path(path)
    try:
        if path is not None:
            make_private(path)
        connection = sqlite3.connect(
            ":memory:" if path is None else path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
        )
        try:
            prepare(connection, path, durability=durability)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise_explained(error, path)
    return JournalFile(connection, path=path)


def _database_at(dsn: str) -> JournalStore:
    require_extras("postgres")
    from turnwise.journal.postgres.store import PostgresStore

    return PostgresStore.open(dsn)


class Journal:
    """The record of all turns: a SQLite file (`Journal("turns.db")`) or a PostgreSQL database.

    - `path` is the file, made with mode 0600 if it is missing (its folder with 0700); None keeps the journal in memory.
      `postgresql://USER@HOST/DATABASE` opens a database and needs `turnwise[postgres]`.
    - `durability="full"` makes records survive a power failure, too. `normal` survives a killed process.
    - `clock` is for tests.

    Several processes may use one journal. It is a context manager that closes itself. Raises CallerError if the file is
    no journal, is damaged, comes from a newer turnwise, or cannot be written.
    """

    def __init__(
        self,
        path: Path | str | None,
        *,
        clock: Clock | None = None,
        durability: Durability = "normal",
        **unknown: object,
    ) -> None:
        """The file or database at `path` is open, and made if it was missing.

        In a database "normal" survives a power failure, too, unless its server does not wait for its disk
        (`synchronous_commit = off`).
        """
        check_durability(durability, others=unknown)
        self._begin(_opened(path, durability=durability), clock=clock or SystemClock())

    @classmethod
    def over(cls, store: JournalStore, *, clock: Clock, claim: Claim | None = None, lease: Lease | None = None) -> Self:
        """A journal in a store that is open."""
        journal = cls.__new__(cls)
        journal._begin(store, clock=clock, claim=claim, lease=lease)
        return journal

    def _begin(
        self, store: JournalStore, *, clock: Clock, claim: Claim | None = None, lease: Lease | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._claim = claim
        self._lease = lease
        self.notes: tuple[str, ...] = ()
        self._left: set[str] = set()  # turns of this process that have ended, whatever the file says

    @classmethod
    def open_to_read(cls, path: Path | str, *, clock: Clock) -> Self:
        """Open the file for reading alone. Nothing is written, so this works in a read-only folder; a missing file is
        not made.

        `notes` lists warnings for the reader. Raises CallerError if the file cannot be read.
        """
        from turnwise.journal.read_only import open_to_read  # loads what runs do not need

        try:
            opened = open_to_read(Path(path))
        except sqlite3.Error as error:
            raise_explained(error, Path(path))
        journal = cls.over(JournalFile(opened.connection, path=Path(path)), clock=clock)
        journal.notes = opened.notes
        return journal

    @classmethod
    def open_rescued(cls, path: Path | str, *, clock: Clock) -> Self:
        """Open a copy of what is readable in a damaged file. The copy is gone when it is closed.

        `notes` says what was lost. Raises CallerError if nothing is readable.
        """
        from turnwise.journal.read_only import open_rescued  # loads what runs do not need

        try:
            connection, rescued = open_rescued(Path(path))
        except sqlite3.Error as error:
            raise_explained(error, Path(path))
        journal = cls.over(JournalFile(connection), clock=clock)
        journal.notes = (f"the journal `{path}` is {rescued.said()}",)
        return journal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file or the connection. The journal cannot be used afterwards."""
        self._store.close()

    async def beside(self, work: Callable[[], T]) -> T:
        """What `work` gives or raises, while the event loop goes on if the database has to be waited for.

        `work` may begin again if it had to wait, and may run in another thread. A cancel of this task comes behind it.
        """
        return await beside(work, store=self._store)

    def is_whole(self) -> bool:
        """Whether SQLite finds no damaged page. This reads the whole file."""
        return self._store.is_whole()

    def keep(self, durability: Durability) -> None:
        """Use this durability from the next commit on."""
        self._store.keep(durability)

    def under(self, claim: Claim, *, lease: Lease) -> "Journal":
        """The same journal for a worker that has claimed a turn.

        That turn begins or continues under the worker's lease. Turns of its sub-agents are taken over from any owner.
        """
        return Journal.over(self._store, clock=self._clock, claim=claim, lease=lease)

    def begin_turn(
        self,
        *,
        turn_id: str,
        session_id: str,
        folder: Path | str,
        title: str,
        parent: tuple[str, str] | None = None,
        started: TurnStarted | None = None,
        labels: Labels = NO_LABELS,
        key: TurnKey | None = None,
        drop_left: bool = True,
    ) -> TurnJournal:
        """Begin a turn of a session and return the pen that writes it. A new session is made.

        `title` and `labels` are kept from the session's first turn. `parent` is the turn and the call that a sub-agent's session
        belongs to. `started` is written as the first record, so that no turn is without its beginning. With a `key`, an accepted
        turn of that key begins; raises KeyTaken if another one has begun.

        Raises SessionBusy if a living process (this one included) runs a turn of that session, and CallerError if a newer
        turnwise has changed the file since it was opened. A turn that a dead process left is marked as lost (see
        `Session.turns`); without `drop_left` it raises SessionLeft.
        """
        if self._claim is not None and parent is None:
            assert started is not None, "an agent begins with its first record"
            return self._begin_claimed(self._claim, turn_id=turn_id, started=started)
        now = self._clock.now()

        def begin(connection: JournalConnection) -> int:
            self._store.check_version(connection)
            (latest,) = connection.execute("select max(updated) from session").fetchone()
            used = now if latest is None or latest <= now else latest + AFTER_S
            connection.execute(
                "insert into session (id, folder, title, created, updated, parent_turn, parent_call, labels)"
                " values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set updated = excluded.updated",
                (session_id, shown_name(str(folder)), title, now, used, *(parent or (None, None)), labels_text(labels)),
            )
            for running, number, owner in connection.execute(
                "select id, number, owner from turn where session = ? and status = 'running'", (session_id,)
            ).fetchall():
                if running == turn_id and owner == our_name():
                    return number  # the attempt before this one stands, though its connection was lost
                if running not in self._left and is_alive(owner, session=session_id):
                    raise SessionBusy(f"{said_to_run(session_id, owner=owner)}, or start a new session")
            accepted = None if key is None else take_key(connection, key, session=session_id)
            if not drop_left and connection.execute(_HAS_LEFT, (session_id, session_id)).fetchone() is not None:
                raise SessionLeft(said_left(session_id))
            connection.execute(
                "update turn set status = 'lost', epoch = epoch + 1, finished = ? where session = ? and status = 'running'",
                (now, session_id),
            )
            named = (None, None) if key is None else (key.text, key.asked)
            begins = (
                f"update turn set id = ?, status = 'running', owner = ?, asked = ?, number = {self._store.dialect.next_number}"
                " where id = ? returning number"
                if accepted
                else "insert into turn (id, session, status, owner, created, key, asked, number)"
                f" values (?, ?, 'running', ?, ?, ?, ?, {self._store.dialect.next_number}) returning number"
            )
            begun = (
                (turn_id, our_name(), named[1], accepted)
                if accepted
                else (turn_id, session_id, our_name(), now, *named)
            )
            (number,) = connection.execute(begins, begun).fetchone()
            if started is not None:
                connection.execute(
                    self._store.dialect.record, (number, 1, 1, KINDS[TurnStarted], encode_record(started).decode(), now)
                )
            return number

        number = self._store.attempt(begin)
        begun = 0 if started is None else 1
        return self._pen(turn_id, number=number, epoch=1, last_seq=begun)

    def _pen(
        self, turn_id: str, *, number: int, epoch: int, last_seq: int, requests: Mapping[int, int] | None = None
    ) -> TurnJournal:
        return TurnJournal(
            self._store,
            turn_id=turn_id,
            number=number,
            epoch=epoch,
            clock=self._clock,
            leave=partial(self.leave, turn_id),
            last_seq=last_seq,
            requests=requests or {},
            lease=self._lease,
            may_be_let_go=self._claim is not None and self._claim.number == number,
        )

    def _begin_claimed(self, claim: Claim, *, turn_id: str, started: TurnStarted) -> TurnJournal:
        """The row that was claimed becomes the turn, with its first record. Raises JournalFailed if it is no longer ours."""
        values = {
            "turn": turn_id,
            "number": claim.number,
            "epoch": claim.epoch,
            "kind": KINDS[TurnStarted],
            "body": encode_record(started).decode(),
            "now": self._clock.now(),
        }
        with self._store.statement() as connection:
            self._store.check_version(connection)
            (ours,) = connection.execute(_BEGIN_CLAIMED, values).fetchone()
        if not ours:
            raise JournalFailed("another process has taken this turn over")
        return self._pen(turn_id, number=claim.number, epoch=claim.epoch, last_seq=1)

    def _resume_claimed(self, claim: Claim) -> TurnJournal:
        with self._store.statement() as connection:
            (last,) = connection.execute("select max(seq) from written where turn = ?", (claim.turn_id,)).fetchone()
        with self._store.statement() as connection:
            found = connection.execute("select number, id from request where turn = ?", (claim.turn_id,)).fetchall()
        return self._pen(
            claim.turn_id, number=claim.number, epoch=claim.epoch, last_seq=last or 0, requests=dict(found)
        )

    def resume_turn(self, turn_id: str) -> TurnJournal:
        """Take over a turn that was left, and return the pen that continues after its last record. The old pen writes
        nothing more.

        Raises CallerError if the turn has ended, a living process runs it, its session has continued without it, or an
        older turnwise has written it.
        """
        if self._claim is not None and turn_id == self._claim.turn_id:
            return self._resume_claimed(self._claim)
        tried: list[int] = []  # the epoch that an attempt has given it, which may stand

        def take_over(connection: JournalConnection) -> TurnJournal:
            self._store.check_version(connection)
            row = connection.execute(
                "select session, status, owner, epoch, number, exists (select 1 from turn later where"
                " later.session = turn.session and later.number > turn.number and later.status not in ('queued', 'accepted'))"
                " from turn where id = ?" + self._store.dialect.locked,
                (turn_id,),
            ).fetchone()
            if row is None:
                raise CallerError(f"there is no turn `{shown_id(turn_id)}`")
            session, status, owner, epoch, number, has_gone_on = row
            is_ours = status == "running" and owner == our_name() and [epoch] == tried
            if not is_ours:
                self._check_left(turn_id, session=session, status=status, owner=owner)
                if has_gone_on:
                    raise CallerError(
                        f"session `{session}` has continued without that turn: nothing of it is left to resume"
                    )
                if number is None:
                    raise CallerError("an older turnwise has written that turn: it can be read, and not resumed")
                epoch += 1
                tried[:] = [epoch]
                connection.execute(
                    "update turn set status = 'running', epoch = ?, owner = ?, finished = null where id = ?",
                    (epoch, our_name(), turn_id),
                )
            (last,) = connection.execute("select max(seq) from written where turn = ?", (turn_id,)).fetchone()
            found = connection.execute("select number, id from request where turn = ?", (turn_id,)).fetchall()
            return self._pen(turn_id, number=number, epoch=epoch, last_seq=last or 0, requests=dict(found))

        pen = self._store.attempt(take_over)
        self._left.discard(turn_id)
        return pen

    def _check_left(self, turn_id: str, *, session: str, status: str, owner: str) -> None:
        if status not in ("running", "lost"):
            raise NothingToResume(f"the last turn of session `{session}` has ended: there is nothing to resume")
        if (
            status == "running"
            and turn_id not in self._left
            and self._claim is None
            and is_alive(owner, session=session)
        ):
            raise SessionBusy(said_to_run(session, owner=owner))

    def tries_in_vain(self, turn_id: str) -> int:
        """How many times in a row the turn was resumed without progress."""
        with self._store.statement() as connection:
            epoch, number = connection.execute("select epoch, number from turn where id = ?", (turn_id,)).fetchone()
            last = connection.execute(self._store.dialect.last_epoch, {"number": number}).fetchone()
        if last is None:
            return 0
        claim = self._claim
        return epoch - max(last[0], claim.tried_from if claim is not None and claim.number == number else 0)

    def is_cancelled(self, turn_id: str) -> bool:
        """Whether the turn was cancelled before a worker claimed it."""
        return self._claim is not None and self._claim.cancel and self._claim.turn_id == turn_id

    def may_lack_last(self, turn_id: str) -> bool:
        """Whether the machine has started again since a process wrote that turn: what was not on the disk by then is gone.

        Of a turn in a file, that is. What the server of a database lost is not known, and its own settings decide.
        """
        if not isinstance(self._store, JournalFile):
            return False
        with self._store.statement() as connection:
            row = connection.execute("select owner from turn where id = ?", (turn_id,)).fetchone()
        return row is not None and is_of_earlier_boot(row[0])

    def leave(self, turn_id: str) -> None:
        """Mark the turn as left by this process, even if the file still says that it runs."""
        self._left.add(turn_id)

    def refuse_running(self, session: Session) -> None:
        """Raise CallerError if the session's last turn runs, or may run where this process cannot see it."""
        if session.turns and session.turns[-1].status == "running":
            with self._store.statement() as connection:
                (owner,) = connection.execute("select owner from turn where id = ?", (session.turns[-1].id,)).fetchone()
            raise SessionBusy(said_to_run(session.row.id, owner=owner))

    def take_over(self, session_id: str) -> Session:
        """The session, with its turns as those of a process that is gone, by the caller's word.

        This is for a process that cannot be seen from here (it ran before the last boot, in another container or on another
        machine), or that is frozen. If it still lives, it writes nothing more once the turn is resumed.

        Raises SessionBusy if the process is seen to work, and CallerError if a worker has the turn: its lease decides.
        """
        session = self.find_session(session_id)
        with self._store.statement() as connection:
            rows = connection.execute(RUNNING_BELOW, {"session": session_id}).fetchall()
        for owner, _ in rows:
            if is_alive(owner) and is_here(owner) and not is_frozen(owner):
                raise SessionBusy(said_to_run(session_id, owner=owner))
            if owner.startswith(WORKER):
                raise CallerError(
                    f"session `{session_id}` is with a worker: another worker continues it when its lease has ended"
                )
        for owner, below in rows:
            presume_gone(owner, session=below)
        return self.find_session(session.row.id)

    def sessions(
        self,
        *,
        limit: int = 100,
        labels: Labels = NO_LABELS,
        state: SessionStatus | None = None,
        before: SessionRow | None = None,
    ) -> list[SessionRow]:
        """The sessions that were used last, latest first, without those of sub-agents. At most `limit`.

        With `labels`, only sessions that have all of them; with a `state`, only sessions whose last turn has it (`accepted`: that
        have such a turn). `before` is the last row of the page before this one.
        """
        found: list[SessionRow] = []
        where, values = ["parent_turn is null"], list[Value]()
        for name, text in labels.items():
            where.append(f"{self._store.dialect.label} = ?")
            values += [name, text]
        if state is not None and state not in get_args(SessionStatus):
            raise CallerError(f"`state` is one of {', '.join(get_args(SessionStatus))}, not `{shown_id(str(state))}`")
        if state == "accepted":
            where.append("exists (select 1 from turn where turn.session = session.id and turn.status = 'accepted')")
        with self._store.statement() as connection:
            while len(found) < limit:
                after = [] if before is None else [_AFTER]
                place = [] if before is None else [before.id, before.updated, before.id]
                sql = f"{self._rows_of(' and '.join([*where, *after]))} limit ?"
                rows = connection.execute(sql, (*values, *place, limit)).fetchall()
                read = [session_row(row) for row in rows]
                found += [row for row in read if state in (None, "accepted", row.status)]
                if len(rows) < limit:
                    break
                before = read[-1]
        return sorted(found[:limit], key=lambda row: (row.updated, row.id), reverse=True)

    def accept(
        self, session: str, key: str, prompt: str | Sequence[str | Text | File] | Message, *, labels: Labels = NO_LABELS
    ) -> bool:
        """Keep a turn that has not begun. Later, in any process, `agent.run(session=session, key=key)` begins it.

        `session` and `key` are 1 to 128 of the characters `A-Z a-z 0-9 . _ : -`; an unknown session begins, with these `labels`.
        False: the session has a turn of that key and prompt already. Raises KeyReused if its prompt is another one.
        """
        message = as_message(prompt)
        named = TurnKey(text=check_new_id(key, what="the key"), asked=asked_digest(message))
        return accept(
            self._store,
            named,
            session=check_new_id(session, what="the session's id"),
            turn_id=TimeOrderedIds(self._clock).new(),
            prompt=message,
            now=self._clock.now(),
            labels=read_labels(labels),
        )

    def find_key(self, session: str, key: str) -> KeyedTurn | None:
        """The turn of that key in that session. None: there is none."""
        found = find_key(self._store, session=session, key=key)
        if found is not None and found.state == "running" and found.turn_id in self._left:
            return msgspec.structs.replace(found, state="left")
        return found

    def result(self, session: str, key: str) -> TurnResult | None:
        """How the turn of that key ended, rebuilt from its records. None: it has not begun, or it goes on.

        Raises CallerError if the session has no turn of that key. The output is JSON here; `await agent.run(session=session,
        key=key)` gives it as a value.
        """
        if (found := self.find_key(session, key)) is None:
            raise CallerError(f"session `{shown_id(session)}` has no turn with the key `{shown_id(key)}`")
        if found.state != "ended":
            return None
        turns = self.find_session(session).turns
        place = next((at for at, turn in enumerate(turns) if turn.id == found.turn_id), len(turns))
        return self.result_of(found.turn_id, carried=session_so_far(self, turns[:place]).carried)

    def result_of(self, turn_id: str, *, carried: Carried) -> TurnResult | None:
        """How that turn ended, behind what its session had `carried` to it. None: its records do not hold its end."""
        return rebuilt(self.events(turn_id), earlier=carried).result

    def _rows_of(self, which: str) -> str:
        """SQL of the sessions, the latest first as far as their own rows say."""
        return SESSIONS_WHERE.format(which)

    def count_sessions(self) -> int:
        """The number of sessions, without those of sub-agents."""
        with self._store.statement() as connection:
            (count,) = connection.execute("select count(*) from session where parent_turn is null").fetchone()
        return count

    def children(self, turn_id: str) -> list[tuple[str, Session]]:
        """The sessions of the sub-agents that a turn started, in order, each with the id of its call."""
        with self._store.statement() as connection:
            calls = dict(
                connection.execute("select id, parent_call from session where parent_turn = ?", (turn_id,)).fetchall()
            )
            rows = connection.execute(self._rows_of("parent_turn = ?"), (turn_id,)).fetchall()
        found = sorted([session_row(row) for row in rows], key=lambda row: (row.created, row.id))
        return [(calls[row.id], self._load(row)) for row in found]

    def parent_of(self, session_id: str) -> str | None:
        """The id of the session that started this sub-agent's session. None: it is not a sub-agent's."""
        with self._store.statement() as connection:
            row = connection.execute(
                "select turn.session from session join turn on turn.id = session.parent_turn where session.id = ?",
                (session_id,),
            ).fetchone()
        return None if row is None else row[0]

    def find_session(self, id: str) -> Session:
        """The session with exactly this id. Raises CallerError if there is none."""
        check_session_id(id)
        if not (rows := self._sessions_where("session.id = ?", (id,))):
            raise CallerError(f"there is no session `{shown_id(id)}`: give the whole id of a session")
        return self._load(session_row(rows[0]))

    def known_session(self, id: str) -> Session | None:
        """The session with exactly this id. None: there is none."""
        rows = self._sessions_where("session.id = ?", (id,)) if is_text(id) else []
        return self._load(session_row(rows[0])) if rows else None

    def check_free(self, session_id: str, *, drop_left: bool) -> None:
        """Raise SessionBusy if a turn of the session runs, and SessionLeft if its last turn was left (unless `drop_left`).
        Workers run the turns of a session as they come."""
        if self._claim is not None:
            return
        with self._store.statement() as connection:
            rows = connection.execute(
                "select id, owner from turn where session = ? and status = 'running'", (session_id,)
            ).fetchall()
        for turn_id, owner in rows:
            if turn_id not in self._left and is_alive(owner, session=session_id):
                raise SessionBusy(f"{said_to_run(session_id, owner=owner)}, or start a new session")
        if not drop_left:
            with self._store.statement() as connection:
                has_left = connection.execute(_HAS_LEFT, (session_id, session_id)).fetchone() is not None
            if has_left:
                raise SessionLeft(said_left(session_id))

    def find_session_by_part(self, id_or_part: str) -> Session:
        """The session with this id, or with this beginning or end of an id: for what a person types at a terminal. A program
        uses `find_session`, so that no session is taken for another user's.

        Raises CallerError if none or several match.
        """
        rows = self._sessions_where("session.id = ?", (id_or_part,)) if is_text(id_or_part) else []
        if not rows and (len(id_or_part) < SHORTEST_PREFIX or not id_or_part.isalnum()):
            raise CallerError(
                f"`{shown_id(id_or_part)}` is no session id: give at least {SHORTEST_PREFIX} letters or digits of it"
            )
        if not rows:  # among all sessions, by no index
            rows = self._sessions_where(f"({HAS_PART})", {"part": id_or_part, "length": len(id_or_part)}, limit=20)
        if not rows:
            raise CallerError(f"there is no session `{shown_id(id_or_part)}`; `turnwise sessions list` shows them")
        if len(rows) > 1:
            raise CallerError(f"`{id_or_part}` fits several sessions: {', '.join([row[0] for row in rows])}")
        return self._load(session_row(rows[0]))

    def _sessions_where(self, which: str, values: Values, *, limit: int = 1) -> list[SessionColumns]:
        with self._store.statement() as connection:
            return connection.execute(f"{self._rows_of(which)} limit {limit}", values).fetchall()

    def last_session(self, folder: Path | str) -> Session | None:
        """The session of this folder that was used last. None: there is none."""
        with self._store.statement() as connection:
            row = connection.execute(
                f"{self._rows_of('folder = ? and parent_turn is null')} limit 1", (shown_name(str(folder)),)
            ).fetchone()
        return None if row is None else self._load(session_row(row))

    def entries(self, turn_id: str) -> list[JournalEntry]:
        """All records of a turn, in order.

        Raises UnreadableTurn if a record is damaged or was written by a newer turnwise.
        """
        with self._store.statement() as connection:
            rows = connection.execute(
                "select seq, t, body from written where turn = ? order by seq", (turn_id,)
            ).fetchall()
        try:
            return [JournalEntry(seq=seq, time=t, record=decode_record(body)) for seq, t, body in rows]
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UnreadableTurn(
                f"the journal of turn `{turn_id}` cannot be read: {error}; it is damaged, or from a newer turnwise"
            ) from None

    def written_since(self, session_id: str, place: WrittenPlace, *, most: int) -> list[WrittenRecord]:
        """The records of a session's turns after that place, in order, at most `most` of them."""
        with self._store.statement() as connection:
            rows = connection.execute(
                "select turn.number, written.turn, written.seq, written.t, written.body from written"
                " join turn on turn.id = written.turn where turn.session = :session and"
                " (turn.number > :number or turn.number = :number and written.seq > :seq)"
                " order by turn.number, written.seq limit :most",
                {"session": session_id, "number": place.turn, "seq": place.seq, "most": most},
            ).fetchall()
        return [
            WrittenRecord(place=WrittenPlace(number, seq), turn_id=turn, time=t, body=body)
            for number, turn, seq, t, body in rows
        ]

    def events(self, turn_id: str) -> list[Event]:
        """The events of a turn, in order. The turn can be rebuilt from them. Raises UnreadableTurn as `entries` does."""
        return events_of(self.entries(turn_id))

    def requests_by_purpose(self, turn_id: str) -> dict[str, int]:
        """How many requests of each purpose a turn has sent. The order is that of the first request of each."""
        with self._store.statement() as connection:
            rows = connection.execute(
                "select kind, case kind when 'response_received' then '{}' else body end from written where turn = ?"
                " and kind in ('request_sent', 'response_received', 'request_failed', 'interrupted') order by seq",
                (turn_id,),
            ).fetchall()
        purposes: list[str] = []
        before = ""
        for kind, body in rows:
            said = _read_sending(body)
            if kind == "request_sent":
                purposes.append(said.purpose)
            elif said.sent is False and before == "request_sent":
                purposes.pop()  # it was about to leave, and never did
            before = kind
        return dict(Counter(purposes))

    @property
    def ledger(self) -> LedgerReader:
        """All requests in this journal and their cost."""
        return LedgerReader(self._store)

    @property
    def direct(self) -> DirectLedger:
        """The ledger of requests that belong to no turn."""
        return DirectLedger(self._store, now=self._clock.now)

    @property
    def gateway(self) -> "GatewayBook":
        """The keys, users and teams of gateways."""
        from turnwise.journal.gateway_rows import GatewayBook  # only a gateway needs it

        return GatewayBook(self._store, now=self._clock.now)

    @property
    def repairs(self) -> RepairBook:
        """What the gateway had to mend."""
        return RepairBook(transaction=self._store.transaction, statement=self._store.statement)

    @property
    def budgets(self) -> BudgetBook:
        """The budgets that processes share."""
        return BudgetBook(self._store, now=self._clock.now)

    def keeps_the_same_as(self, other: "Journal") -> bool:
        """Whether both are the same file or database, as far as their paths or addresses tell."""
        if self._store is other._store:
            return True
        own = self.address()
        return bool(own) and own == other.address()

    def address(self) -> str:
        """The file, or the address of the database without its password. "" for a journal in memory."""
        return self._store.name

    @property
    def retention(self) -> Retention:
        """Finds sessions to delete."""
        return Retention(self._store)

    def _load(self, row: SessionRow) -> Session:
        is_claimed = self._claim is not None and row.id == self._claim.session
        # thousands may be queued behind the current one; an accepted turn has not begun
        begun = "and status not in ('queued', 'accepted')" if is_claimed else "and status <> 'accepted'"
        with self._store.statement() as connection:
            rows = connection.execute(
                "select id, session, status, created, finished, stop_reason, complete, owner, key from turn"
                f" where session = ? {begun} order by number nulls first, created, id",
                (row.id,),
            ).fetchall()
        turns = [
            TurnRow(
                id=id,
                session=session,
                status="lost" if status == "running" and not is_alive(owner, session=session) else status,
                created=created,
                finished=finished,
                stop_reason=None if stop_reason is None else StopReason(stop_reason),
                complete=None if complete is None else bool(complete),
                key=key,
            )
            for id, session, status, created, finished, stop_reason, complete, owner, key in rows
        ]
        if self._claim is not None and row.id == self._claim.session:
            turns = _up_to(self._claim, turns=turns)
        return Session(row=row, turns=tuple(turns))


def _up_to(claim: Claim, *, turns: Sequence[TurnRow]) -> list[TurnRow]:
    """What has begun of a session as the worker finds it that has claimed a turn: that is the last, left by its process, or is to
    begin."""
    before = [turn for turn in turns if turn.id != claim.turn_id]
    if claim.is_new:
        return before
    return [*before, *[msgspec.structs.replace(turn, status="lost") for turn in turns if turn.id == claim.turn_id]]


def said_left(session_id: str) -> str:
    """What a caller reads whose session has a turn that was left."""
    return (
        f"a process left the last turn of session `{session_id}`, and it can go on: `await agent.resume({session_id!r})`; to go "
        "on without it, give the run `drop_left=True`"
    )


# A session behind another one in the list, which may be deleted by now.
_AFTER = "(updated, session.id) < (coalesce((select updated from session where id = ?), ?), ?)"
# The last turn that has begun, if its process has let go of it or is gone (its status is then the process's last word).
_HAS_LEFT = """
select id from turn where session = ? and status in ('lost', 'running') and stop_reason is null and complete is null
    and number = (select max(number) from turn where session = ? and status not in ('queued', 'accepted'))
    and exists (select 1 from written where written.turn = turn.id)"""


class _Sending(msgspec.Struct):
    """What a record says of the sending of a request."""

    purpose: str = ""
    sent: bool | None = None


_read_sending = msgspec.json.Decoder(_Sending).decode

# In one statement, for a transaction of several would be six round trips. After a lost connection it is executed again: then its
# record may stand. Only PostgreSQL has claimed turns.
_BEGIN_CLAIMED = """
with t as (
    update turn set id = :turn where number = :number and epoch = :epoch and status = 'running' returning number, epoch
), r as (
    insert into record (turn, seq, epoch, kind, body, t)
    select number, 1, epoch, cast(:kind as text), cast(:body as text), cast(:now as double precision) from t
    on conflict do nothing
)
select count(*) from t"""


def session_so_far(journal: Journal, turns: Iterable[TurnRow]) -> SessionSoFar:
    """What was said in these turns, and what the next one starts from. Calls of a turn that its process left are answered: one
    that had started may have run, one that was only planned has not, unless a damaged journal has lost records of the turn."""
    fold = SessionFold()
    for turn in turns:
        entries = journal.entries(turn.id)
        fold.take_events(events_of(entries), begun=None if turn.has_lost_records else begun_calls(entries))
    return fold.so_far
