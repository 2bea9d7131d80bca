"""The lines that turnwise itself writes: whole words at a terminal of any width, as they are everywhere else."""

import contextlib
import os
import re
import sys
from typing import TextIO

from turnwise.terminal.rows import COLOUR, Rows, cells_of

# Blanks in front, and the first of two columns, with two blanks or more behind it: what follows is broken below its beginning.
_HEAD = re.compile(r"(?:\x1b\[[0-9;]*m)* *(?:[^ ]+(?: [^ ]+)* {2,}(?=[^ ](?!.* {2})))?")
MOST_HEAD = 0.4  # of the columns


def say(text: str = "", *, stream: TextIO | None = None, as_it_is: bool = False) -> None:
    """Write it as one or several lines, to standard error where no stream is named; `as_it_is` what a person judges or copies (a
    call, a diff): at any width the terminal alone breaks it. Raises OSError."""
    out = sys.stderr if stream is None else stream
    out.write(f"{text if as_it_is else fitted(text, columns=columns_of(out))}\n")
    out.flush()


def fitted(text: str, *, columns: int | None) -> str:
    """The text with line ends in place of blanks, so that no word is broken at a terminal of so many columns; the text itself
    where there is none. A word that is longer than a row stays whole: the terminal breaks it, and joins it again when it is
    copied."""
    if columns is None:
        return text
    return "\n".join([_fitted_line(line, columns=columns) for line in text.split("\n")])


def columns_of(stream: TextIO) -> int | None:
    """None where it is no terminal, or one that does not say how wide it is."""
    with contextlib.suppress(OSError, ValueError):
        if stream.isatty():
            return os.get_terminal_size(stream.fileno()).columns or None
    return None


def _fitted_line(line: str, *, columns: int) -> str:
    if len(line) < columns and line.isascii():  # as most are
        return line
    width = max(1, columns - 1)  # a full row would break by itself at some terminals
    found = _HEAD.match(line)
    head = found[0] if found else ""
    indent = cells_of(COLOUR.sub("", head))
    widest = max([cells_of(word) for word in COLOUR.sub("", line[len(head) :]).split()], default=0)
    if indent > width * MOST_HEAD or indent + widest > width:
        head, indent = "", 0
    rows = Rows(width=width - indent, folds=False)
    first, *more = (rows.write(line[len(head) :]) + rows.flush()).split("\n")
    return "\n".join([head + first, *[" " * indent + row for row in more]])
