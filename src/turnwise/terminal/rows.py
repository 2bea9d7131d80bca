"""Text in rows of whole words, as it comes. No row is longer than the terminal's width, so each row is one row there."""

import contextlib
import os
import re
import sys
import unicodedata
from functools import lru_cache
from typing import TextIO

from turnwise.coding_agent.text import style

TAB = 8

# A colour, a piece of a word, one wide character (a line may break after each), blanks, or a line end.
_WIDE = "\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PIECES = re.compile(rf"{COLOUR.pattern}|\n|[ \t\u00a0]+|[{_WIDE}]|[^\s\x1b{_WIDE}]+|\s|\x1b")


class Rows:
    """The rows of a terminal with `width` columns. The last word is held until it has ended. A word that is longer than a row is
    broken where the row ends. Without `folds`, it gets a row of its own, which is too long."""

    def __init__(self, *, width: int, folds: bool = True) -> None:
        self.width = width
        self._folds = folds
        self.row = ""  # the text in the current row
        self.count = 0  # rows above it since `restart`
        self._cells = 0
        self._gap = ""  # blanks before the word that is held
        self._word = ""
        self._word_cells = 0

    @property
    def is_empty(self) -> bool:
        """Whether the terminal has shown nothing since `restart`."""
        return not (self.count or self.row)

    def restart(self, *, width: int) -> None:
        """A new row begins, at the left."""
        self.width, self.row, self.count, self._cells = width, "", 0, 0
        self._gap, self._word, self._word_cells = "", "", 0

    def leave_row(self) -> None:
        """The cursor is at the left, in a new row; the held word goes there."""
        self.row, self.count, self._cells, self._gap = "", 0, 0, ""

    def write(self, text: str) -> str:
        """What to send to the terminal for this text."""
        out: list[str] = []
        for piece in _PIECES.findall(text):
            if piece == "\n":
                self._place(out)
                self._gap = ""
                self._break(out)
            elif piece.isspace():
                self._place(out)
                self._add_gap(piece)
            elif COLOUR.fullmatch(piece):
                self._word += piece
            else:
                cells = cells_of(piece)
                if len(piece) == 1 and cells == 2:
                    self._place(out)
                if not self._folds or self._word_cells + cells <= self.width:
                    self._word += piece
                    self._word_cells += cells
                else:
                    self._fold(piece, out)
        return "".join(out)

    def flush(self) -> str:
        """The held word."""
        out: list[str] = []
        self._place(out)
        return "".join(out)

    def _add_gap(self, blanks: str) -> None:
        if "\t" in blanks:
            at = self._cells + len(self._gap)
            blanks = (" " * (at % TAB) + blanks).expandtabs(TAB)[at % TAB :]
        self._gap = (self._gap + blanks)[: self.width]

    def _place(self, out: list[str]) -> None:
        if not self._word:
            return
        if self._cells and self._cells + len(self._gap) + self._word_cells > self.width:
            self._break(out)
            self._gap = ""
        elif len(self._gap) + self._word_cells > self.width:
            self._gap = ""  # an indentation that leaves the word no room
        placed = self._gap + self._word
        out.append(placed)
        self.row += placed
        self._cells += len(self._gap) + self._word_cells
        self._gap, self._word, self._word_cells = "", "", 0

    def _fold(self, piece: str, out: list[str]) -> None:
        """Break a word that is longer than a row."""
        for char in piece:
            cells = cells_of(char)
            if self._word_cells + cells > self.width:
                self._place(out)
            self._word += char
            self._word_cells += cells

    def _break(self, out: list[str]) -> None:
        out.append("\n")
        self.row, self._cells = "", 0
        self.count += 1


def cells_of(text: str) -> int:
    """How many columns it takes at most: terminals do not agree on every character."""
    return len(text) if text.isascii() else sum(map(_cells_of_char, text))


def cut_row(text: str, *, cells: int) -> str:
    """The beginning of a row, so that it takes at most so many columns."""
    if cells_of(text) <= cells:
        return text
    kept, used = 0, 1  # the ellipsis
    for char in text:
        used += cells_of(char)
        if used > cells:
            break
        kept += 1
    return f"{text[:kept]}…"


def coloured(line: str, *, stream: TextIO) -> str:
    """A line of a diff, indented: its first character is the sign."""
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return style(f"  {line}", colour, stream=stream) if colour else f"  {line}"


@lru_cache(maxsize=4096)
def _cells_of_char(char: str) -> int:
    if ord(char) < 0x300:
        return 1
    if unicodedata.east_asian_width(char) in "WFA" or unicodedata.category(char) in ("So", "Mn", "Me", "Cn", "Co"):
        return 2
    return 1


# turnwise's own lines: whole words at a terminal of any width, and unchanged elsewhere.


# Blanks at the beginning, or the first of two columns, with two or more blanks after it: further rows are aligned with what
# follows.
_HEAD = re.compile(r"(?:\x1b\[[0-9;]*m)* *(?:[^ ]+(?: [^ ]+)* {2,}(?=[^ ](?!.* {2})))?")
MOST_HEAD = 0.4  # of the columns


def say(text: str = "", *, stream: TextIO | None = None, as_it_is: bool = False) -> None:
    """Write the text as one or several lines, to standard error if no stream is named. `as_it_is`: a person judges or copies it
    (a call, a diff), so only the terminal breaks it. Raises OSError."""
    out = sys.stderr if stream is None else stream
    out.write(f"{text if as_it_is else fitted(text, columns=columns_of(out))}\n")
    out.flush()


def fitted(text: str, *, columns: int | None) -> str:
    """The text with line ends in place of blanks, so that no word is broken at a terminal of so many columns; without a terminal,
    the text itself. A word that is longer than a row stays whole: the terminal breaks it, and joins it again when it is
    copied."""
    if columns is None:
        return text
    return "\n".join([_fitted_line(line, columns=columns) for line in text.split("\n")])


def columns_of(stream: TextIO) -> int | None:
    """The terminal's columns; None if this is not a terminal, or if it does not tell its width."""
    with contextlib.suppress(OSError, ValueError):
        if stream.isatty():
            return os.get_terminal_size(stream.fileno()).columns or None
    return None


def _fitted_line(line: str, *, columns: int) -> str:
    if len(line) < columns and line.isascii():  # the usual case
        return line
    width = max(1, columns - 1)  # at some terminals a full row would break by itself
    found = _HEAD.match(line)
    head, indent = "", 0
    for tried in (found[0] if found else "", " " * (len(line) - len(line.lstrip(" ")))):
        cells = cells_of(COLOUR.sub("", tried))
        widest = max([cells_of(word) for word in COLOUR.sub("", line[len(tried) :]).split()], default=0)
        if cells <= width * MOST_HEAD and cells + widest <= width:
            head, indent = tried, cells
            break
    rows = Rows(width=width - indent, folds=False)
    first, *more = (rows.write(line[len(head) :]) + rows.flush()).split("\n")
    return "\n".join([head + first, *[" " * indent + row for row in more]])
