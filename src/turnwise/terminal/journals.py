"""The user's journal, read by commands that only show it."""

import os
from collections.abc import Callable
from typing import TypeVar

from turnwise.base.clock import SystemClock
from turnwise.errors import JournalDamaged
from turnwise.journal.journal import Journal, journal_path
from turnwise.terminal.failures import FAILED, complain

Read = TypeVar("Read")


def read_journal(read: Callable[[Journal], Read]) -> tuple[Read, int]:
    """What `read` makes of the journal, and the exit code. Its notes go to standard error.

    If `read` meets damage, it is called again with what can be read of the file, and the code is FAILED: a part may be
    missing. Raises CallerError.
    """
    path, clock = journal_path(os.environ), SystemClock()
    try:
        with Journal.open_to_read(path, clock=clock) as journal:
            for note in journal.notes:
                complain(note)
            return read(journal), 0
    except JournalDamaged as error:
        damage = str(error)
    with Journal.open_rescued(path, clock=clock) as journal:
        for note in (damage, *journal.notes):
            complain(note)
        return read(journal), FAILED
