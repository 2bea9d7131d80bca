"""SQLite's failures as a caller's: each says what is wrong, with which file, and what to do."""

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from turnwise.errors import JournalDamaged, JournalFailed, TurnwiseBug

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


SHORT_S = 2.0  # whoever meets damage in mid-turn is waited for
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
