"""Where a text stands in code: a fence, backticks within a line, or lines that are indented (CommonMark, "Fenced code blocks",
"Code spans", "Indented code blocks").

A fence is taken for one where a reader would take it so, in lists and quotations too; it ends at a line that holds nothing else.
Backticks count until their like comes or the paragraph ends. Lines behind a blank one that begin with four blanks or a tab are
code, unless they belong to a list, which only all of the text could tell: from the first mark in such a line on, both ways are
followed. In doubt it is code, because code is never run.
"""

import copy
import re

# Pieces that wait to be looked at together: only a mark asks where it stands.
MOST_UNSEEN = 256
_RUNS = re.compile(r"`+|~+")
# What may stand before a fence on its line: blanks, marks of quotations and of list items.
_BEFORE_FENCE = re.compile(r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*")
_MOST = 64  # characters before a fence
_INDENT = 4  # blanks before a line of code


class CodeTracker:
    """Fed with all the text in order, in any pieces. `is_inside` tells of what comes next."""

    __slots__ = ("_readings", "_run", "unseen")

    def __init__(self) -> None:
        self._readings = [_Reading()]
        self.unseen: list[str] = []  # pieces that were not looked at yet; who has more may add them here
        self._run = ""  # the fence marks or backticks that the text ends with

    def is_inside(self) -> bool:
        self._see()
        self._end_run()
        return any(one.is_inside for one in self._readings)

    def feed(self, text: str) -> None:
        self.unseen.append(text)
        if len(self.unseen) > MOST_UNSEEN:
            self._see()

    def _see(self) -> None:
        text = "".join(self.unseen)
        self.unseen.clear()
        first, *more = text.split("\n")
        self._see_line(first)
        for line in more:
            self._end_run()
            for one in self._readings:
                one.break_line()
            self._see_line(line)

    def _see_line(self, line: str) -> None:
        """Of a line, or of what came of it."""
        last = 0
        if "`" in line or "~" in line:
            for found in _RUNS.finditer(line):
                self._words(line[last : found.start()])
                last, run = found.end(), found.group()
                if self._run and self._run[0] == run[0]:
                    self._run += run
                else:
                    self._end_run()
                    self._run = run
        self._words(line[last:])

    def _words(self, text: str) -> None:
        if text:
            self._end_run()
            for one in self._readings:
                one.words(text)

    def _end_run(self) -> None:
        run, self._run = self._run, ""
        if not run:
            return
        first = self._readings[0]
        if len(self._readings) == 1 and first.is_indented_at_mark():
            self._readings.append(first.as_code())
        for one in self._readings:
            one.mark(run)


class _Reading:
    """One way to read the text. `_knows_indented`: marks in a line that is code for its blanks are words of it."""

    __slots__ = (
        "_closing",
        "_columns",
        "_fence",
        "_info",
        "_is_indented",
        "_knows_indented",
        "_line",
        "_may_indent",
        "_span",
    )

    def __init__(self) -> None:
        self._knows_indented = False
        self._fence: tuple[str, int] | None = None
        self._info = False  # on the line that opened the fence
        self._closing = False  # the line may close the fence, if nothing else follows on it
        self._span = 0  # backticks that opened a span
        self._line: str | None = ""  # the line so far; None where no fence can begin any more
        self._columns: int | None = 0  # blanks that the line begins with; None behind them
        self._is_indented = False  # the line is code for its blanks
        self._may_indent = True  # such a line may begin here: behind a blank line or another one

    def as_code(self) -> "_Reading":
        """The other way."""
        other = copy.copy(self)
        other._knows_indented = True
        return other

    @property
    def is_inside(self) -> bool:
        return self._fence is not None or self._span > 0 or self._is_indented or self.is_indented_at_mark()

    def is_indented_at_mark(self) -> bool:
        """Whether what comes next stands in a line that is code for its blanks, if it is no blank."""
        if self._fence is not None:
            return False
        return self._is_indented or (self._may_indent and self._columns is not None and self._columns >= _INDENT)

    def words(self, text: str) -> None:
        self._see_blanks(text)
        if self._closing and text.strip():
            self._closing = False
        if self._line is not None:
            line = self._line + text[: _MOST + 1]
            self._line = line if len(line) <= _MOST and _BEFORE_FENCE.fullmatch(line) else None

    def break_line(self) -> None:
        self._may_indent = self._columns is not None or self._is_indented
        self._columns, self._is_indented = 0, False
        if self._closing:
            self._fence, self._closing = None, False
        if self._line is not None and not self._line.strip(" \t>"):
            self._span = 0
        self._info = False
        self._line = ""

    def mark(self, run: str) -> None:
        """Fence marks or backticks, all of them."""
        self._see_blanks(run)
        mark, length, line = run[0], len(run), self._line
        self._line = None
        if self._is_indented and self._knows_indented:
            return
        if self._fence is not None:
            if self._info and mark == "`" == self._fence[0]:  # no fence: backticks within a line
                self._span = 0 if length == self._fence[1] else self._fence[1]
                self._fence, self._info = None, False
            elif not self._info and line is not None and mark == self._fence[0] and length >= self._fence[1]:
                self._closing = True
            else:
                self._closing = False
        elif line is not None and length >= 3 and not self._span:
            self._fence, self._info = (mark, length), True
        elif mark == "`":
            if not self._span:
                self._span = length
            elif self._span == length:
                self._span = 0

    def _see_blanks(self, text: str) -> None:
        if self._columns is None:
            return
        bare = text.lstrip(" \t")
        blank = text[: len(text) - len(bare)]
        self._columns += len(blank) + (_INDENT - 1) * blank.count("\t")
        if bare:
            is_behind = self._may_indent and self._fence is None
            self._is_indented = is_behind and self._columns >= _INDENT
            self._columns = None
