"""One clear line and an exit code for what can go wrong before or after a run."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

from turnwise.errors import CallerError, TurnwiseBug, TurnwiseError
from turnwise.faces.cli.text import style

USAGE = 2


class Failure(click.ClickException):
    """Shown as `turnwise: ...` on standard error."""

    def __init__(self, message: str, *, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: object = None) -> None:
        click.echo(f"{style('turnwise:', 'red', 'bold', stream=sys.stderr)} {self.format_message()}", err=True)


@contextmanager
def as_one_line() -> Generator[None]:
    """A caller's mistake becomes one line and exit code 2; anything else of ours says that it is a bug."""
    try:
        yield
    except CallerError as error:
        raise Failure(str(error)) from error
    except TurnwiseBug as error:
        raise Failure(f"this is a bug in turnwise, please report it: {error}", exit_code=70) from error
    except TurnwiseError as error:
        raise Failure(str(error), exit_code=1) from error
