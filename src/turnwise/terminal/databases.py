"""The database of `worker`, `submit`, `status` and `cancel`."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import click

from turnwise.base.clock import SystemClock
from turnwise.base.extras import require_extras
from turnwise.errors import CallerError, JournalDamaged, JournalFailed
from turnwise.journal.journal import DATABASES, Journal, journal_path
from turnwise.terminal.failures import FAILED, Failure, complain
from turnwise.vocab.file_names import is_text

if TYPE_CHECKING:
    from turnwise.workers.queue import TurnQueue

VARIABLE = "TURNWISE_DATABASE"

database_option = click.option(
    "--database",
    metavar="DSN",
    envvar=VARIABLE,
    help=f"`postgresql://USER@HOST/DATABASE`. [default: {VARIABLE}]",
)


def checked_dsn(database: str | None) -> str:
    """Raises CallerError where it is none, without quoting it: it may hold a password."""
    if not database:
        raise CallerError(f"no database: give `--database postgresql://USER@HOST/DATABASE`, or set {VARIABLE}")
    if not database.startswith(DATABASES):
        raise CallerError("`--database` is no address of PostgreSQL: give `postgresql://USER@HOST/DATABASE`")
    os.environ.pop(VARIABLE, None)  # what tools start does not inherit the address
    return database


@contextmanager
def as_database_failure() -> Generator[None]:
    """A database that fails is no wrong use."""
    try:
        yield
    except JournalFailed as error:
        raise Failure(str(error), exit_code=FAILED) from error


@contextmanager
def open_queue(database: str | None) -> Generator["TurnQueue"]:
    """The turns of that database, its tables made if there are none. Raises CallerError where a word of the command line is no
    text, and Failure where the database fails."""
    with as_database_failure():
        dsn = checked_dsn(database)
        _check_texts(click.get_current_context())
        require_extras("postgres")
        from turnwise.workers.queue import TurnQueue

        queue = TurnQueue(dsn, clock=SystemClock())
        try:
            queue.open()
            yield queue
        finally:
            queue.close()


def _check_texts(context: click.Context) -> None:
    """Bytes that are no UTF-8 come as half of a surrogate pair, which nobody could write back."""
    for parameter in context.command.params:
        value: object = context.params.get(parameter.name or "")
        if not is_text(_joined(value)):
            raise CallerError(f"{parameter.get_error_hint(context)} is no UTF-8 text")


def _joined(value: object) -> str:
    """All texts of an option that may be repeated, in one."""
    if isinstance(value, tuple):
        return "".join([_joined(part) for part in cast("tuple[object, ...]", value)])
    return value if isinstance(value, str) else ""


# The user's journal, read by commands that only show it.


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
