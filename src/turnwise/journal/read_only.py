"""A journal opened to be read: its file is never written, and a place that cannot be written is no obstacle.

Where SQLite cannot read the file in its place, a private copy is read: in a folder that cannot be written beside a write-ahead
log that was left, on a disk that is full, on a file system without locks, of an older version, or of a file that lost its end.
What can be read of a damaged file is rescued into a new one, which can take its place (`replace_damaged`).
"""

import itertools
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.file import (
    BUSY_S,
    ELSEWHERE,
    SCHEMA_VERSION,
    SEQ_BITS,
    check_version,
    damaged_tables,
    first_look,
    is_damage,
    is_of_locks,
    is_whole,
    make_private,
    name_of,
    prepare,
    raise_explained,
    refuse_misplaced,
)
from turnwise.journal.turn_writer import decode_record
from turnwise.settings.options import Durability
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import StopReason

# What can be read of a damaged journal, put into a new one.
#
# Rows are read by their number, so a broken page costs the rows on it and no others. A turn of which a record is missing keeps
# those before it, as if its process had ended there.


LOST_TITLE = "(title lost)"
# Of a turn whose last records are gone: what came after them may have run, so it is never resumed.
LOST_RECORDS = StopReason.JOURNAL_FAILED.value
_SAID = 10  # sessions that are named
_AT_ONCE = 500
_ONE_BY_ONE = 1_000  # rows that a broken page may cost; past them steps grow
_LAST = 2**63 - 1
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError, OverflowError)

Row = tuple[object, ...]
"""Its number first."""


class Rescued(msgspec.Struct, frozen=True, kw_only=True):
    """`tables` are those that were damaged; `affected` the ids of sessions that lost something, `sessions` how many there are."""

    tables: tuple[str, ...]
    sessions: int
    affected: tuple[str, ...]

    def said(self) -> str:
        """In a few words, for people."""
        where = ", ".join([f"`{name}`" for name in self.tables]) or "pages of no table"
        more = ", ..." if len(self.affected) > _SAID else ""
        lost = f": {', '.join([id[-8:] for id in self.affected[:_SAID]])}{more}" if self.affected else ""
        ledger = "; the ledger lost entries, so its sums are too small" if "request" in self.tables else ""
        return f"damaged: {where}; {len(self.affected)} of {self.sessions} sessions lost something{lost}{ledger}"


def rescue(source: sqlite3.Connection, target: sqlite3.Connection) -> Rescued:
    """Put what can be read into an empty journal. Raises sqlite3.Error where the list of tables itself is broken."""
    tables = damaged_tables(source)
    source.text_factory = bytes.decode
    names = [name for (name,) in source.execute("select name from sqlite_schema where type = 'table'")]
    cut: set[int] = set()  # numbers of turns
    target.execute("pragma foreign_keys = off")
    target.execute("begin immediate")
    for name in [name for name in _tables_of(target) if name in names]:
        cut |= _copy(name, source=source, target=target)
    affected = _mend_turns(target, cut=cut, has_gaps="record" in tables) | _mend_sessions(target)
    target.execute("commit")
    target.execute("pragma foreign_keys = on")
    (sessions,) = target.execute("select count(*) from session").fetchone()
    return Rescued(tables=tables, sessions=sessions, affected=tuple(sorted(affected)))


def _tables_of(target: sqlite3.Connection) -> list[str]:
    return [name for (name,) in target.execute("select name from sqlite_schema where type = 'table' order by rowid")]


def _copy(table: str, *, source: sqlite3.Connection, target: sqlite3.Connection) -> set[int]:
    """Copy a table's rows; the numbers of the turns in whose records something could not be read."""
    there = {name for (name,) in source.execute("select name from pragma_table_info(?)", (table,))}
    ours = [name for (name,) in target.execute("select name from pragma_table_info(?)", (table,)) if name in there]
    columns = ", ".join([f'"{name}"' for name in ours])
    (kind,) = target.execute("select wr from pragma_table_list where name = ? and schema = 'main'", (table,)).fetchone()
    if kind:  # without numbers: what comes before the damage
        _insert(target, table, columns, _until_damage(source, f"select {columns} from {table}"))
        return set()
    reading = _Reading(
        source, f"select rowid, {columns} from {table} where rowid > ? and rowid < ? order by rowid limit ?"
    )
    cut: set[int] = set()
    for start, end in _spans(table, target=target):
        whole = True
        for rows in reading.rows(start, end):
            whole = whole and rows is not None
            _insert(target, table, columns, [row[1:] for row in rows or ()])
        if not whole:
            cut.add(start >> SEQ_BITS)
    return cut if table == "record" else set()


def _spans(table: str, *, target: sqlite3.Connection) -> list[tuple[int, int]]:
    """Where a table's rows may be: those of a turn are looked for by themselves. Turns are copied before records."""
    if table != "record":
        return [(-1, _LAST)]
    (most,) = target.execute("select coalesce(max(number), 0) from turn").fetchone()
    turns = [(number << SEQ_BITS, (number + 1) << SEQ_BITS) for number in range(1, most + 1)]
    return [*turns, ((most + 1) << SEQ_BITS, _LAST)]


def _until_damage(source: sqlite3.Connection, select: str) -> list[Row]:
    found: list[Row] = []
    with suppress(*_UNREADABLE):
        found.extend(source.execute(select))  # keeps what came before
    return found


def _insert(target: sqlite3.Connection, table: str, columns: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    marks = ", ".join("?" * len(rows[0]))
    for row in rows:
        try:
            target.execute(f"insert or ignore into {table} ({columns}) values ({marks})", row)
        except (sqlite3.Error, OverflowError):
            continue  # noise that looks like a row


class _Reading:
    """A table read by its rows' numbers, around what is broken. `select` takes two numbers that its rows lie between, and how
    many."""

    def __init__(self, source: sqlite3.Connection, select: str) -> None:
        self._source = source
        self._select = select

    def rows(self, after: int, end: int) -> Iterator[list[Row] | None]:
        """The rows between two numbers, some at once; None where some could not be read."""
        most = _AT_ONCE
        while after < end:
            found = self._read(after, end, most=most)
            if found is None and most > 1:
                most = max(1, most // 8)
            elif found is None:
                yield None
                after = self._next_readable(after, end)
            elif found:
                yield found
                after, most = int(str(found[-1][0])), _AT_ONCE
            else:
                return

    def _read(self, after: int, end: int, *, most: int) -> list[Row] | None:
        try:
            found: list[Row] = self._source.execute(self._select, (after, end, most)).fetchall()
        except _UNREADABLE:
            return None
        numbers = [after, *[int(str(row[0])) for row in found]]
        is_in_order = all(before < later for before, later in itertools.pairwise(numbers))
        return found if is_in_order else None  # SQLite follows a broken page without a look at the order

    def _next_readable(self, after: int, end: int) -> int:
        """The first number from which on a row can be read, or none is left; `end` if there is none."""
        step = 1
        for tried in range(_ONE_BY_ONE + 64):
            at = min(after + step, end)
            if at >= end or self._read(at, end, most=1) is not None:
                return at
            step = step + 1 if tried < _ONE_BY_ONE else step * 2
        return end


def _mend_turns(target: sqlite3.Connection, *, cut: set[int], has_gaps: bool) -> set[str]:
    """Turns keep the records before the first missing one, and those whose row is gone come back; the sessions concerned.
    `has_gaps`: a number that is left out is a record that is gone, and not one that a full disk refused."""
    affected = _turns_back(target)
    for id, number, session in target.execute(
        "select id, number, session from turn where number is not null"
    ).fetchall():
        first = number << SEQ_BITS
        ids = [
            one
            for (one,) in target.execute(
                "select id from record where id > ? and id < ?", (first, first + (1 << SEQ_BITS))
            )
        ]
        whole = _leading(target, ids, first=first, has_gaps=has_gaps)
        if number not in cut and whole == len(ids):
            continue
        affected.add(session)
        target.execute("delete from record where id > ? and id < ?", (([first, *ids])[whole], first + (1 << SEQ_BITS)))
        target.execute(
            f"update turn set status = 'lost', stop_reason = '{LOST_RECORDS}', complete = 0 where id = ?", (id,)
        )
    return affected


def _leading(target: sqlite3.Connection, ids: Sequence[int], *, first: int, has_gaps: bool) -> int:
    """How many records from the first on are there and can be decoded."""
    for place, id in enumerate(ids):
        (body,) = target.execute("select body from record where id = ?", (id,)).fetchone()
        if (has_gaps and id != first + place + 1) or not _is_record(body):
            return place
    return len(ids)


def _is_record(body: str) -> bool:
    try:
        decode_record(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    return True


def _turns_back(target: sqlite3.Connection) -> set[str]:
    """Rows of turns that are gone, made again from their first record, which names them. Records that nobody names go."""
    orphans = target.execute(
        f"select distinct id >> {SEQ_BITS} from record"
        f" where id >> {SEQ_BITS} not in (select number from turn where number is not null)"
    ).fetchall()
    affected: set[str] = set()
    for (number,) in orphans:
        begun = _beginning(target, number)
        if begun is None:
            target.execute(f"delete from record where id >> {SEQ_BITS} = ?", (number,))
            continue
        config, t = begun
        target.execute(
            "insert or ignore into turn (id, session, status, owner, created, number, stop_reason, complete)"
            f" values (?, ?, 'lost', '', ?, ?, '{LOST_RECORDS}', 0)",
            (config.turn_id, config.session_id, t, number),
        )
        affected.add(config.session_id)
    return affected


def _beginning(target: sqlite3.Connection, number: int) -> tuple[TurnConfig, float] | None:
    """How a turn began, and when; None where its first record is gone."""
    found: tuple[str, float] | None = target.execute(
        "select body, t from record where id = ?", ((number << SEQ_BITS) + 1,)
    ).fetchone()
    if found is None or not _is_record(found[0]):
        return None
    record = decode_record(found[0])
    return (record.config, found[1]) if isinstance(record, TurnStarted) else None


def _mend_sessions(target: sqlite3.Connection) -> set[str]:
    """Rows of sessions that are gone are made again, as far as their turns tell; their ids."""
    lost = target.execute(
        "select session, min(created), max(coalesce(finished, created)) from turn"
        " where session not in (select id from session) group by session"
    ).fetchall()
    target.executemany(
        f"insert into session (id, folder, title, created, updated) values (?, '', '{LOST_TITLE}', ?, ?)", lost
    )
    return {row[0] for row in lost}


WHOLE: Durability = "normal"
_HEADER = 100  # bytes; sqlite.org/fileformat.html, "The Database Header"
_MAGIC = b"SQLite format 3\0"
_LOCKLESS = "" if sys.platform == "win32" else "?vfs=unix-none"
_WRITTEN_BESIDE = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR_SHMSIZE")  # the last one: a full disk


class ReadableFile(msgspec.Struct, frozen=True):
    """A connection that cannot change the file, and what its reader ought to know."""

    connection: sqlite3.Connection
    notes: tuple[str, ...] = ()


def open_to_read(path: Path) -> ReadableFile:
    """A file that is not there reads as an empty journal, and is not made. Raises CallerError, sqlite3.Error."""
    refuse_misplaced(path)
    if not os.path.lexists(path):
        return ReadableFile(_empty())
    try:
        return _in_place(path)
    except sqlite3.Error as error:
        if is_of_locks(error, path):
            why = "its file system takes no locks, so a copy is read; if a run writes there now, the copy may be torn"
        elif name_of(error).startswith(_WRITTEN_BESIDE):
            why = "nothing can be written beside it, so a copy is read"
        else:
            raise
    return ReadableFile(_upgraded_copy(path), (f"the journal `{path}`: {why}",))


def open_rescued(path: Path) -> tuple[sqlite3.Connection, Rescued]:
    """What can be read of a damaged file, in a new one that lasts as long as the connection. Raises CallerError, sqlite3.Error.

    Use it once this process no longer has the file open: to read it as a file takes the locks of an open one away.
    """
    target = _connect("")
    try:
        with _room_for(path):
            prepare(target, None, durability=WHOLE)
            return target, rescue_into(target, path)
    except BaseException:
        target.close()
        raise


def rescue_into(target: sqlite3.Connection, path: Path) -> Rescued:
    """Put what can be read of the file into an empty journal. Raises CallerError, sqlite3.Error."""
    with tempfile.TemporaryDirectory(prefix="turnwise-") as folder:
        source = _open_copy(path, folder=Path(folder))
        try:
            return rescue(source, target)
        finally:
            source.close()


@contextmanager
def _room_for(path: Path) -> Generator[None]:
    """A copy that finds no room is not told as a full disk of the journal's."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if name_of(error).startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")):
            raise JournalFailed(
                f"the journal `{path}` cannot be read: there is no room for a copy in `{tempfile.gettempdir()}`; make room "
                "there, or set TMPDIR to another folder"
            ) from None
        raise


def _in_place(path: Path) -> ReadableFile:
    connection = _connect(f"{path.absolute().as_uri()}?mode=ro")
    try:
        version = first_look(connection, path, newer=True)
        if version > SCHEMA_VERSION:
            return ReadableFile(connection, (_note_of_newer(connection, path, version=version),))
        if version == SCHEMA_VERSION:
            return ReadableFile(connection)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return ReadableFile(_upgraded_copy(path) if version else _empty())


def _note_of_newer(connection: sqlite3.Connection, path: Path, *, version: int) -> str:
    """Raises JournalFailed where a table or column is gone that we read."""
    ours = _empty()
    try:
        missing = _columns(ours) - _columns(connection)
    finally:
        ours.close()
    if missing:
        check_version(connection, path)
    return (
        f"the journal `{path}` is from a newer turnwise (version {version}, this one knows {SCHEMA_VERSION}): it is read "
        "only, and what this one does not know is not shown; upgrade"
    )


def _columns(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    return set(
        connection.execute(
            "select s.name, c.name from sqlite_schema s, pragma_table_info(s.name) c where s.type in ('table', 'view')"
        )
    )


def _upgraded_copy(path: Path) -> sqlite3.Connection:
    """The file as it is, brought up to our version where nobody sees it."""
    target = _connect("")
    try:
        with _room_for(path), tempfile.TemporaryDirectory(prefix="turnwise-") as folder:
            source = _open_copy(path, folder=Path(folder))
            try:
                source.backup(target)
            finally:
                source.close()
            prepare(target, path, durability=WHOLE)
    except BaseException:
        target.close()
        raise
    return target


def _open_copy(path: Path, *, folder: Path) -> sqlite3.Connection:
    """A copy of the file with its write-ahead log, filled up where its end is missing. Nobody else has it: it needs no locks."""
    copy = folder / "journal.db"
    try:
        shutil.copyfile(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if log.exists():
            shutil.copyfile(log, folder / "journal.db-wal")
        _fill_up(copy)
    except OSError as error:
        raise JournalFailed(
            f"the journal `{path}` cannot be read ({error.strerror}): it was to be copied to `{folder.parent}`, as it cannot be "
            "read in its place; make it readable, and room there, or set TMPDIR to another folder"
        ) from None
    connection = _connect(f"{copy.as_uri()}{_LOCKLESS}")
    connection.execute("pragma locking_mode = exclusive")
    return connection


def _fill_up(copy: Path) -> None:
    """With empty pages, to the size that its header tells: SQLite reads nothing of a shorter file."""
    with copy.open("r+b") as file:
        header = file.read(_HEADER)
        size = int.from_bytes(header[16:18], "big")
        whole = (65536 if size == 1 else size) * int.from_bytes(header[28:32], "big")
        if header.startswith(_MAGIC) and copy.stat().st_size < whole:
            file.truncate(whole)


def _empty() -> sqlite3.Connection:
    connection = _connect(":memory:")
    prepare(connection, None, durability=WHOLE)
    return connection


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


# A damaged journal put aside, and what can be read of it in its place.


def replace_damaged(path: Path, *, clock: Clock) -> tuple[Rescued, Path]:
    """Put what can be read of the file in its place, and keep the damaged one beside it, under the name that is returned.

    The new file is whole and on the disk before the old one is touched. Raises CallerError where nothing is broken or can be
    read, where the new one cannot be written, or while another process has the file open; the old one is then as it was.
    """
    if not path.exists():
        raise CallerError(f"there is no journal `{path}`, and so nothing to rescue")
    if _is_well(path):
        raise CallerError(f"no page of the journal `{path}` is broken: there is nothing to rescue")
    when = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%d-%H%M%S")
    kept = path.with_name(f"{path.name}.damaged-{when}")
    new = path.with_name(f"{path.name}.rescued-{when}")
    try:
        _refuse_others(path)
        make_private(new)
        rescued = _write(new, path)
        _exchange(path, new=new, kept=kept)
    except OSError as error:
        raise JournalFailed(
            f"`{path}` cannot be replaced ({error.strerror}): make its folder writable, or {ELSEWHERE}"
        ) from None
    finally:
        new.unlink(missing_ok=True)
    return rescued, kept


def _is_well(path: Path) -> bool:
    """Raises CallerError for a file that is no journal, or a newer one's: it may hold what we would lose."""
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None
        )
        try:
            check_version(connection, path)
            return is_whole(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        if is_damage(error):
            return False
        raise_explained(error, path)


def _write(new: Path, path: Path) -> Rescued:
    try:
        target = sqlite3.connect(new, timeout=BUSY_S, isolation_level=None)
        try:
            prepare(target, new, durability="full")
            return rescue_into(target, path)
        finally:
            target.close()  # moves its write-ahead log into the file
    except sqlite3.Error as error:
        raise_explained(error, path)


def _refuse_others(path: Path) -> None:
    """In exclusive mode SQLite takes a lock that nobody else with the file open leaves free."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
    try:
        connection.execute("pragma locking_mode = exclusive")
        connection.execute("begin exclusive")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise JournalFailed(f"the journal `{path}` is in use by another process: end it first") from None
    except sqlite3.DatabaseError:
        pass  # too broken to be in use
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
        connection.close()


def _exchange(path: Path, *, new: Path, kept: Path) -> None:
    """At each moment there is a file under the journal's name, and never one beside a write-ahead log that is not its own."""
    os.link(path, kept)
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        log.rename(kept.with_name(f"{kept.name}-wal"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)  # SQLite creates it again
    new.replace(path)
