"""A journal as a process that died would have left it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from turnwise.drivers.journal.owners import our_name

HOST = our_name().rpartition(":")[0].rpartition(":")[0]


def copy_of_a_crash(path: Path, left: Path) -> None:
    """What the file at `path` holds now, in `left`; the process that runs its turns is dead there."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(left)) as target:
        source.backup(target)
        target.execute("update turn set owner = ? where status = 'running'", (f"{HOST}:999999999:1",))
        target.commit()
