"""Ctrl-C during `Agent.run_sync`: what the program's end says of it."""

import sys
from types import TracebackType

from turnwise.faces.results import RunInterrupted, RunResult

CANCELLED = 130  # what a shell shows for a program that Ctrl-C has ended


def interrupted(result: RunResult) -> RunInterrupted:
    """The exception to raise. Uncaught, it ends the program with exit code 130, as a KeyboardInterrupt does.

    Python itself gives that code to the very class KeyboardInterrupt, and 1 to those below it (3.11: `run_eval_code_obj`). Where
    a program has a hook of its own for uncaught exceptions, that one decides.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end
    return RunInterrupted(result)


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, RunInterrupted):
        raise SystemExit(CANCELLED)
