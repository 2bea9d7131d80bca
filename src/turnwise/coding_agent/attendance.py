"""Whether somebody can be asked here, and what is said where nobody can."""

import contextlib
import os
import stat
import sys
from typing import TextIO

NOBODY = "nobody is there to be asked"
_AT_TERMINAL = "run turnwise again [with `{options}`, or ]at a terminal, where it can ask"


def is_attended() -> bool:
    """Somebody can read the question and type the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def why_nobody(*, unattended: bool = False) -> str:
    """Why nobody can be asked. A person at a terminal may not know that a pipe takes their place."""
    word = "" if unattended else _taken_from_a_person()
    return f"standard input is {word}, so nobody can be asked" if word else NOBODY


def allow_hint() -> str:
    """How a call that nobody could be asked about is allowed, for `TurnConfig.allow_hint`."""
    word = _taken_from_a_person()
    if not word:
        return _AT_TERMINAL
    return (
        f"standard input is {word}, so nobody can be asked: run turnwise again [with `{{options}}`, or ]with the text in a "
        "file that the prompt names (`@FILE`)"
    )


def what_is_piped(stream: TextIO) -> str:
    """`a pipe` or `a file`; empty for a terminal, a device and a stand-in."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.fstat(stream.fileno()).st_mode
        return "a pipe" if stat.S_ISFIFO(mode) else "a file" if stat.S_ISREG(mode) else ""
    return ""


def _taken_from_a_person() -> str:
    """What stands in the place of the terminal where somebody reads what is said."""
    return what_is_piped(sys.stdin) if sys.stderr.isatty() else ""
