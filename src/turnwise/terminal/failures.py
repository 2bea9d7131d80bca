"""One clear line and an exit code for anything that can go wrong before, during or after a run."""

import contextlib
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple, cast

import click
import msgspec

from turnwise.coding_agent.text import clean_line, style
from turnwise.errors import CallerError, TurnwiseBug, TurnwiseError
from turnwise.terminal.exit_codes import USAGE
from turnwise.terminal.rows import say
from turnwise.vocab.file_names import is_text, shown_name

FAILED = 1
BUG = 70  # EX_SOFTWARE of sysexits.h


# Sources of texts with such bytes that nobody checked: the environment, a link, a settings file.
NO_TEXT = (
    "something that was given here (a word of the command line, the environment, a name) has bytes that are not UTF-8"
)


class Failure(click.ClickException):
    """Shown as `turnwise: ...` on standard error."""

    def __init__(self, message: str, *, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # pyright: ignore[reportAttributeAccessIssue] (click means it to be per class)

    def show(self, file: object = None) -> None:
        complain(self.format_message())


class Unable(NamedTuple):
    """Why a command has no result: the text on standard error, and the exit code."""

    why: str
    exit_code: int
    stop_reason: str


def complain(message: str) -> None:
    """Print any text as one line on standard error."""
    with contextlib.suppress(OSError):  # no message is possible; the exit code still tells
        say(f"{style('turnwise:', 'red', 'bold', stream=sys.stderr)} {clean_line(message)}")


def write_json(value: object) -> None:
    """Print a line of JSON on standard output."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")


def write_ascii_json(value: object) -> None:
    """Print it in ASCII: a server's text may hold control sequences for a terminal, and stays whole this way."""
    click.echo(json.dumps(msgspec.to_builtins(value)))


@contextmanager
def as_one_line() -> Generator[None]:
    """A caller's mistake becomes one line and exit code 2. Any other error of turnwise's says that it is a bug."""
    try:
        yield
    except CallerError as error:
        raise Failure(str(error)) from error
    except TurnwiseBug as error:
        raise Failure(bug_line(error), exit_code=BUG) from error
    except TurnwiseError as error:
        raise Failure(str(error), exit_code=FAILED) from error


def refuse_no_text(context: click.Context) -> None:
    """Raise a usage error if an option or argument has bytes that are not UTF-8 and is not the path of a file."""
    for param in context.command.params:
        value = context.params.get(param.name or "")
        is_path = isinstance(param.type, click.Path | click.File) or "FILE" in (param.metavar or "")
        for text in cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,)):
            if isinstance(text, str) and not is_path and not is_text(text):
                name = param.opts[-1] if isinstance(param, click.Option) else param.make_metavar(context)
                raise click.UsageError(
                    f"{name} is no text: `{shown_name(text)}` has bytes that are not UTF-8", ctx=context
                )


def bug_line(error: Exception) -> str:
    return f"this is a bug in turnwise, please report it: {type(error).__name__}: {error}"
