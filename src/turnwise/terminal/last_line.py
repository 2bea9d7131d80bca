"""Commands whose last line under `--json` says how they ended, even if they could not begin."""

import contextlib
import signal
import threading
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from types import FrameType
from typing import Never, TypeAlias, cast

import click

from turnwise.errors import JournalFailed
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import BUG, FAILED, NO_TEXT, USAGE, Failure, Unable, bug_line, refuse_no_text
from turnwise.vocab.file_names import is_text, json_text

JSON, ALL = "--json", "--all"
SERVERS = ("gateway", "worker")  # their `--json` is for a log, or for one line once they serve
# commands of `gateway` that end by themselves
BELOW_SERVERS = frozenset(["report", "check", "keys", "teams", "users", "audit", "usage"])
STOP_REASONS = {USAGE: "not_begun", CANCELLED: "cancelled"}  # otherwise `failed`; docs/cli.md, "Exit codes"


LineWriter: TypeAlias = Callable[[Unable, Container[str]], None]
"""Writes a last line; it also gets the given options."""


def write_error(unable: Unable, _given: Container[str] = (), **told: object) -> None:
    """The last line of commands whose output is not that of a run: further fields (`told`), the reason, and the exit code."""
    from turnwise.terminal.events import write_line

    error = json_text(unable.why)
    write_line({**told, "error": error, "exit_code": unable.exit_code})


class EndsWithLine(click.Command):
    """Under `--json`, this command always writes a last line; `ends_with` writes it if the command itself does not get that
    far."""

    ends_with: LineWriter

    def __init__(self, *args: object, ends_with: LineWriter = write_error, **options: object) -> None:
        super().__init__(*args, **options)  # pyright: ignore[reportArgumentType] (as click's decorator hands them over)
        self.ends_with = ends_with

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """Works also for unreadable options: then the typed words decide."""
        with self._said(_typed(args)):
            context = super().make_context(info_name, args, parent, **extra)  # pyright: ignore[reportArgumentType]
            refuse_no_text(context)
            return context

    def invoke(self, ctx: click.Context) -> object:
        given = {name for one in self.params if one.name and ctx.params.get(one.name) for name in one.opts}
        with self._said(given), ended_by_signals():
            return cast("object", super().invoke(ctx))

    @contextmanager
    def _said(self, given: Container[str]) -> Generator[None]:
        try:
            yield
        except (
            SystemExit,
            click.exceptions.Exit,
            BrokenPipeError,
        ):  # the command has said itself how it ended; or nobody reads
            raise
        except BaseException as error:
            if JSON in given:
                with contextlib.suppress(OSError):  # standard error says it, too
                    self.ends_with(_unable(error), given)
            raise


@contextmanager
def ended_by_signals() -> Generator[None]:
    """From the first word on, SIGTERM and the end of the terminal do what Ctrl-C does; a running turn handles them itself. The
    second signal ends the process."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP) if is_main}
    ours = [number for number, was in before.items() if was is signal.SIG_DFL]  # `nohup` wants SIGHUP ignored
    for number in ours:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _interrupt(number: int, _frame: FrameType | None) -> Never:
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


@contextmanager
def told_if_interrupted(args: Sequence[str]) -> Generator[None]:
    """Write the last line here if Ctrl-C comes while the command's modules are loaded."""
    try:
        yield
    except KeyboardInterrupt as error:
        given = _typed(args)
        if JSON in given and (args[0] not in SERVERS or given & BELOW_SERVERS):
            with contextlib.suppress(OSError):
                LAST_LINES.get(args[0], write_error)(_unable(error), given)
        raise


def _typed(args: Sequence[str]) -> frozenset[str]:
    return frozenset(takewhile(lambda word: word != "--", tuple(args)))


def _unable(error: BaseException) -> Unable:
    match error:
        case click.Abort() | KeyboardInterrupt():
            why, code = "cancelled", CANCELLED
        case Failure():
            why, code = error.format_message(), error.exit_code
        case click.ClickException():
            why, code = error.format_message().rstrip("."), USAGE
        case OSError():
            why, code = f"input or output failed: {error.strerror or error}", FAILED
        case UnicodeEncodeError() if not is_text(error.object):
            why, code = NO_TEXT, USAGE
        case _:
            why, code = bug_line(cast("Exception", error)), BUG
    stop_reason = STOP_REASONS.get(code, "failed")
    return Unable(why, code, "journal_failed" if isinstance(error.__cause__, JournalFailed) else stop_reason)


def write_no_result(unable: Unable, _given: Container[str] = ()) -> None:
    """The last line of `run` and of `resume` of one session."""
    from turnwise.terminal.events import write_unable

    write_unable(unable)


def write_no_resume(unable: Unable, given: Container[str]) -> None:
    """The last line of `resume`; with `--all` it is about several sessions, none of which was resumed."""
    if ALL in given:
        write_error(unable, event="summary", sessions=[], failed=0)
    else:
        write_no_result(unable)


def write_no_replay(unable: Unable, _given: Container[str] = ()) -> None:
    """The last line of `replay`."""
    write_error(unable, event="replay", same=False)


def write_nothing_taken_back(unable: Unable, _given: Container[str] = ()) -> None:
    """The last line of `undo`."""
    write_error(unable, taken_back=False, files=[])


LAST_LINES: dict[str, LineWriter] = {
    "run": write_no_result,
    "resume": write_no_resume,
    "replay": write_no_replay,
    "undo": write_nothing_taken_back,
}
