"""A journal opened to be read: its file is never written, and a place that cannot be written is no obstacle.

Where SQLite cannot read the file in its place, a private copy is read: in a folder that cannot be written beside a write-ahead
log that was left, on a disk that is full, on a file system without locks, of an older version, or of a file that lost its end.
"""

import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from turnwise.errors import JournalFailed
from turnwise.journal.failures import BUSY_S, is_of_locks, name_of, refuse_misplaced
from turnwise.journal.file import SCHEMA_VERSION, check_version, first_look, prepare
from turnwise.journal.rescue import Rescued, rescue
from turnwise.settings.options import Durability

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

    To be used where this process has the file open no more: to read it as a file takes the locks of an open one away.
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
