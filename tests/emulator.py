"""A small terminal: what a person sees of what a program has written, the rows that have scrolled away included.

It knows what `turnwise` and prompt_toolkit send, no more; anything else is an error.
"""

import io
import os
import re
import unicodedata

_PIECES = re.compile(
    r"\x1b\[([?>]?)([0-9;]*)([@-~])|\x1b\](\d+);([^\x07\x1b]*)\x07|\x1b[=>78]|[\r\n\b\x07]|[^\x1b\r\n\b\x07]"
)

Cell = tuple[str, str]  # what it shows, and the numbers of its colours
BLANK: Cell = (" ", "")


class Emulator:
    """`columns` and `lines` may be changed at any time; rows are not broken anew then."""

    def __init__(self, *, columns: int = 80, lines: int = 24) -> None:
        self.columns = columns
        self.lines = lines
        self.title = ""
        self.notices: list[str] = []  # of OSC 9
        self.bells = 0
        self._colours = ""
        self._aside: tuple[list[list[Cell]], int, int] | None = None  # the rows, while another screen is shown
        self._rows: list[list[Cell]] = [[]]  # the second half of a wide character is empty
        self._row = 0
        self._column = 0

    @property
    def text(self) -> str:
        """All rows, without blanks at their ends."""
        return "\n".join([_said(row) for row in self._rows])

    @property
    def screen(self) -> str:
        """The rows that are in the window."""
        return "\n".join([_said(row) for row in self._rows[self._top :]])

    @property
    def coloured_screen(self) -> str:
        """The same, with its colours."""
        return "\n".join([_coloured(row) for row in self._rows[self._top :]])

    def write(self, text: str) -> None:
        at = 0
        for piece in _PIECES.finditer(text):
            assert piece.start() == at, f"unknown to this terminal: {text[at : piece.end()]!r}"
            at = piece.end()
            if piece[3]:
                self._obey(piece[3], piece[2], private=bool(piece[1]))
            elif piece[4]:
                self._tell(int(piece[4]), piece[5])
            else:
                self._put(piece[0])
        assert at == len(text), f"unknown to this terminal: {text[at:]!r}"

    @property
    def _top(self) -> int:
        return max(0, len(self._rows) - self.lines)

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self._column = 0
            case "\n":
                self._column = 0
                self._down()
            case "\b":
                self._column = max(0, self._column - 1)
            case "\x07":
                self.bells += 1
            case _ if char.startswith("\x1b"):
                pass
            case _:
                assert char.isprintable() or char == "\t", f"{char!r} drives a terminal"
                self._print(char)

    def _print(self, char: str) -> None:
        if unicodedata.combining(char):
            return
        cells = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if self._column + cells > self.columns:
            self._column = 0
            self._down()
        row = self._rows[self._row]
        row += [BLANK] * (self._column + cells - len(row))
        row[self._column : self._column + cells] = [(char, self._colours)] + [("", "")] * (cells - 1)
        self._column += cells

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def _obey(self, name: str, numbers: str, *, private: bool) -> None:
        number = int(numbers.split(";")[0] or 0)
        row = self._rows[self._row]
        match name:
            case "m":
                kept = "" if not numbers or numbers.split(";")[0] in ("", "0") else self._colours
                more = numbers.removeprefix("0").removeprefix(";")
                self._colours = ";".join([one for one in (kept, more) if one])
            case "h" | "l" if private and number == 1049:
                self._show_other(name == "h")
            case "h" | "l" | "t":
                pass
            case "H":
                line, _, column = numbers.partition(";")
                self._row = self._top + min(self.lines, max(1, int(line or 1))) - 1
                self._rows += [[] for _ in range(self._row + 1 - len(self._rows))]
                self._column = max(1, int(column or 1)) - 1
            case "J" if number == 2:
                for one in self._rows[self._top :]:
                    one.clear()
            case "A":
                self._row = max(self._top, self._row - max(1, number))
            case "B":
                self._row = min(len(self._rows) - 1, self._row + max(1, number))
            case "C":
                self._column = min(self.columns - 1, self._column + max(1, number))
            case "D":
                self._column = max(0, self._column - max(1, number))
            case "G":
                self._column = max(1, number) - 1
            case "K":
                del row[0 if number == 2 else self._column :]
            case "J" if number == 0:
                del row[self._column :]
                for below in self._rows[self._row + 1 :]:
                    below.clear()
            case _ if private:
                pass
            case _:
                raise AssertionError(f"unknown to this terminal: CSI {numbers}{name}")

    def _show_other(self, on: bool) -> None:
        if on:
            self._aside = (self._rows, self._row, self._column)
            self._rows, self._row, self._column = [[]], 0, 0
        elif self._aside is not None:
            (self._rows, self._row, self._column), self._aside = self._aside, None

    def _tell(self, number: int, text: str) -> None:
        assert text.isprintable(), f"{text!r} drives a terminal"
        match number:
            case 2:
                self.title = text
            case 9:
                self.notices.append(text)
            case _:
                raise AssertionError(f"unknown to this terminal: OSC {number}")


def _said(row: list[Cell]) -> str:
    return "".join([char for char, _ in row]).rstrip()


def _coloured(row: list[Cell]) -> str:
    said, at = list[str](), ""
    for char, colours in row:
        if colours != at:
            said.append(f"\x1b[0;{colours}m" if colours else "\x1b[0m")
            at = colours
        said.append(char)
    return "".join(said).rstrip() + ("\x1b[0m" if at else "")


class Tty(io.StringIO):
    """A file that is a terminal of that size; `raw` is all that was written."""

    def __init__(self, *, columns: int = 80, lines: int = 24) -> None:
        super().__init__()
        self.emulator = Emulator(columns=columns, lines=lines)

    def write(self, text: str, /) -> int:
        self.emulator.write(text)
        return super().write(text)

    def isatty(self) -> bool:
        return True

    def size(self) -> os.terminal_size:
        return os.terminal_size((self.emulator.columns, self.emulator.lines))

    @property
    def raw(self) -> str:
        return self.getvalue()

    @property
    def text(self) -> str:
        return self.emulator.text
