"""One clear line and an exit code for what can go wrong before, beside or after a run."""

import contextlib
import sys
from collections.abc import Generator
from contextlib import contextmanager

import click

from turnwise.errors import CallerError, TurnwiseBug, TurnwiseError
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.text import clean, style

FAILED = 1
USAGE = 2
BUG = 70  # EX_SOFTWARE of sysexits.h


class Failure(click.ClickException):
    """Shown as `turnwise: ...` on standard error."""

    def __init__(self, message: str, *, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # pyright: ignore[reportAttributeAccessIssue] (click means it to be per class)

    def show(self, file: object = None) -> None:
        complain(self.format_message())


def complain(message: str) -> None:
    """One line on standard error, whoever wrote the text."""
    line = " ".join(clean(message).split())
    with contextlib.suppress(OSError):  # nobody can be told; the exit code still says it
        say(f"{style('turnwise:', 'red', 'bold', stream=sys.stderr)} {line}")


@contextmanager
def as_one_line() -> Generator[None]:
    """A caller's mistake becomes one line and exit code 2; anything else of ours says that it is a bug."""
    try:
        yield
    except CallerError as error:
        raise Failure(str(error)) from error
    except TurnwiseBug as error:
        raise Failure(bug_line(error), exit_code=BUG) from error
    except TurnwiseError as error:
        raise Failure(str(error), exit_code=FAILED) from error


def bug_line(error: Exception) -> str:
    return f"this is a bug in turnwise, please report it: {type(error).__name__}: {error}"
