"""The console script. Everything that is imported here can be interrupted: Ctrl-C at any moment ends quietly.

Python's own start and the installer's script come before; for these few milliseconds, Ctrl-C is theirs.
"""

import sys

from turnwise.terminal.exit_codes import CANCELLED, USAGE

TYPE_CHECKING = False  # as in turnwise/__init__.py: `typing` imports `re`, which takes half of the time until `main`
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn


def main(args: "Sequence[str] | None" = None) -> "NoReturn":
    """Run `turnwise ARGS` (without `args`, the process's own) and exit: at most one error line."""
    restore = _terminal_as_found()
    try:
        try:
            from turnwise.terminal.group import run
        except KeyboardInterrupt:
            _tell(sys.argv[1:] if args is None else args)
            raise
        except ModuleNotFoundError:
            from turnwise.base.extras import missing_extras

            if not (line := missing_extras("terminal")):
                raise
            print(f"turnwise: {line}", file=sys.stderr)
            sys.exit(USAGE)
        code = run(args)
        if args is None:
            _leave_by_code(code, restore)
    except KeyboardInterrupt:
        code = CANCELLED
        if args is None:
            _leave_by_code(code, restore)
    sys.exit(code)


def _terminal_as_found() -> "Callable[[], None]":
    """What puts the terminal back as it is now: a second Ctrl-C may come while a prompt changes it."""
    import os

    try:
        import termios
    except ImportError:  # no Unix
        return lambda: None
    try:
        found = termios.tcgetattr(0)
    except (OSError, termios.error):  # no terminal
        return lambda: None

    def restore() -> None:
        try:
            if (
                termios.tcgetattr(0) != found and os.tcgetpgrp(0) == os.getpgrp()
            ):  # in the background, it would be stopped
                termios.tcsetattr(0, termios.TCSANOW, found)
        except (OSError, termios.error):  # it is gone
            pass

    return restore


def _tell(args: "Sequence[str]") -> None:
    """Write the last line of `--json`, if Ctrl-C came before the command itself could do so."""
    if "--json" in args:
        import contextlib

        from turnwise.terminal.last_line import told_if_interrupted

        with contextlib.suppress(KeyboardInterrupt), told_if_interrupted(args):
            raise KeyboardInterrupt


def _leave_by_code(code: int, restore: "Callable[[], None]") -> None:
    """From here on, Ctrl-C cannot turn the exit code into death by a signal. All output is written. While Python waits for
    threads, Ctrl-C ends the process at once, with 130. After that, when Python would give the signal back to the system, it does
    nothing."""
    import atexit
    import os
    import signal

    # A signal that was ignored (a background job) stays ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:

        def leave(_number: int, _frame: object) -> None:
            restore()
            os._exit(CANCELLED)

        signal.signal(signal.SIGINT, leave)
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    restore()
    if code == CANCELLED:
        _drop_what_was_under_way()


def _drop_what_was_under_way() -> None:
    """A second Ctrl-C has left tasks in the middle of their work. Python says of each that it is thrown away: that is no news."""
    import gc
    import logging
    import warnings

    logging.disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    gc.collect()
