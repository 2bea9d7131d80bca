"""The console script. Everything that is imported here can be interrupted: Ctrl-C at any moment ends quietly.

Python's own start and the installer's script come before; for these few milliseconds, Ctrl-C is theirs.
"""

import sys

from turnwise.terminal.exit_codes import CANCELLED, USAGE

TYPE_CHECKING = False  # as in turnwise/__init__.py: `typing` imports `re`, which takes half of the time until `main`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(args: "Sequence[str] | None" = None) -> "NoReturn":
    """Run `turnwise ARGS` (without `args`, the process's own) and exit: at most one error line."""
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
            _leave_by_code()
    except KeyboardInterrupt:
        code = CANCELLED
        if args is None:
            _leave_by_code()
    sys.exit(code)


def _tell(args: "Sequence[str]") -> None:
    """Write the last line of `--json`, if Ctrl-C came before the command itself could do so."""
    if "--json" in args:
        import contextlib

        from turnwise.terminal.last_line import told_if_interrupted

        with contextlib.suppress(KeyboardInterrupt), told_if_interrupted(args):
            raise KeyboardInterrupt


def _leave_by_code() -> None:
    """From here on, Ctrl-C cannot turn the exit code into death by a signal. All output is written. While Python waits for
    threads, Ctrl-C ends the process at once, with 130. After that, when Python would give the signal back to the system, it does
    nothing."""
    import atexit
    import os
    import signal

    # A signal that was ignored (a background job) stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def leave(_number: int, _frame: object) -> None:
        os._exit(CANCELLED)

    signal.signal(signal.SIGINT, leave)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
