"""A damaged journal put aside, and what can be read of it in its place."""

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from turnwise.base.clock import Clock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.failures import BUSY_S, ELSEWHERE, is_damage, is_whole, raise_explained
from turnwise.journal.file import check_version, make_private, prepare
from turnwise.journal.read_only import rescue_into
from turnwise.journal.rescue import Rescued


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
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)  # SQLite makes it anew
    new.replace(path)
