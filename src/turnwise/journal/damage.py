"""Which tables of a journal's file are damaged.

SQLite has no checksums: what can be found is a page that is no page, and not a letter that was changed inside of a text.
"""

import sqlite3
import time
from collections.abc import Callable

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
