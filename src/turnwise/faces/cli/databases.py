"""The database of `worker`, `submit`, `status` and `cancel`."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.journal.journal import DATABASES
from turnwise.errors import CallerError, JournalFailed
from turnwise.faces.cli.journals import say_error

if TYPE_CHECKING:
    from turnwise.drivers.dispatch.queue import TurnQueue

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
def open_queue(database: str | None, *, as_json: bool) -> Generator["TurnQueue"]:
    """The turns of that database, its tables made if there are none. With `as_json` a failure is the last line of the output."""
    try:
        dsn = checked_dsn(database)
        try:
            from turnwise.drivers.dispatch.queue import TurnQueue
        except ModuleNotFoundError as error:
            raise needs_psycopg(error) from None
        queue = TurnQueue(dsn, clock=SystemClock())
        try:
            queue.open()
            yield queue
        finally:
            queue.close()
    except (CallerError, JournalFailed) as error:
        if as_json:
            say_error(error)
        raise


def needs_psycopg(error: ModuleNotFoundError) -> Exception:
    if error.name != "psycopg":
        return error
    return CallerError("PostgreSQL needs the package psycopg: install it with `pip install 'turnwise[postgres]'`")
