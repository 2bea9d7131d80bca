"""The console script. Nothing is imported here before it can be interrupted: Ctrl-C at any moment ends quietly.

Python's own start and the installer's script come before; Ctrl-C in these few milliseconds is theirs.
"""

import sys

from turnwise.terminal.exit_codes import CANCELLED, USAGE

TYPE_CHECKING = False  # as in turnwise/__init__.py: `typing` brings `re`, half of the time until `main`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn


def main(args: "Sequence[str] | None" = None) -> "NoReturn":
    """Run `turnwise ARGS` (the process's own where none are given) and exit: at most one line of complaint."""
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
    """The last line of `--json`, where Ctrl-C came before the command itself could see to that."""
    if "--json" in args:
        import contextlib

        from turnwise.terminal.last_line import told_if_interrupted

        with contextlib.suppress(KeyboardInterrupt), told_if_interrupted(args):
            raise KeyboardInterrupt


def _leave_by_code() -> None:
    """From here on Ctrl-C cannot turn the exit code into death by a signal. All is written: while Python waits for threads
    it ends the process at once, with 130; after that, where Python would give the signal back to the system, it does nothing.
    """
    import atexit
    import os
    import signal

    # One that was ignored (a job in the background) stays so.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def leave(_number: int, _frame: object) -> None:
        os._exit(CANCELLED)

    signal.signal(signal.SIGINT, leave)
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
