"""A journal as a process that died would have left it."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

from turnwise.journal.owners import our_name

_HOST, _, _, _BOOT, _SPACES = our_name().rsplit(":", 4)
GONE = f"{_HOST}:999999999:1:{_BOOT}:{_SPACES}"  # no process has that number
_others = itertools.count(1)


def unseen_owner() -> str:
    """A process of another boot. Each is a new one: a caller's word that it is gone holds as long as this process."""
    return f"{_HOST}:{next(_others)}:1:{'0' * 36}:{_SPACES}"


def copy_of_a_crash(path: Path, left: Path) -> None:
    """What the file at `path` holds now, in `left`; the process that runs its turns is dead there."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(left)) as target:
        source.backup(target)
        target.execute("update turn set owner = ? where status = 'running'", (GONE,))
        target.commit()
