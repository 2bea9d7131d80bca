"""The console script. Nothing is imported here before it can be interrupted: Ctrl-C at any moment ends quietly."""

import sys
from collections.abc import Sequence
from typing import NoReturn

CANCELLED = 130  # what a shell shows for a program that was ended by Ctrl-C


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run `turnwise ARGS` (the process's own where none are given) and exit: at most one line of complaint."""
    try:
        from turnwise.faces.cli.group import run

        code = run(args)
    except KeyboardInterrupt:
        code = CANCELLED
    sys.exit(code)
