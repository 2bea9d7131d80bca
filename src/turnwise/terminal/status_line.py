"""What stands below all text while a turn runs: the end of a command's output, the plan, and the line that says what happens.

It is drawn again while nothing is written, and removed before anything else is. Text above it is never touched.
"""

import os
from collections.abc import Callable, Sequence
from typing import TextIO

from turnwise.base.clock import Clock, Timer
from turnwise.coding_agent.text import clean_row, style
from turnwise.terminal.rows import cut_row

EVERY_S = 0.125
MARKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASE_ROW = "\r\x1b[2K"
SPARE = 3  # columns that stay free: for the mark, and at the end of a row, where some terminals break it
TEXT_ROWS = 8  # of the terminal that are left for the text, at least


def terminal_size(stream: TextIO) -> os.terminal_size:
    """The size of the stream's terminal; 80 columns and 24 lines if it does not tell."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = lines = 0
    return os.terminal_size((columns or 80, lines or 24))


class StatusLine:
    """Writes to `notes`, a terminal. `show` gives the line for so many columns, empty for none; `above` the rows above it, for so
    many rows. The text in the `row` of the cursor comes back when all of it goes."""

    def __init__(
        self,
        notes: TextIO,
        *,
        clock: Clock,
        size: Callable[[], os.terminal_size],
        show: Callable[[int], str],
        above: Callable[[int], Sequence[str]],
        row: Callable[[], str],
    ) -> None:
        self._notes = notes
        self._clock = clock
        self._size = size
        self._show = show
        self._rows_above = above
        self._row = row
        self._timer: Timer | None = None
        self._above: str | None = None  # the row above it; None: it is not there
        self._drawn_rows = 0
        self._drawn_at: os.terminal_size | None = None

    def start(self) -> None:
        """From now on it is drawn whenever there is something to show."""
        if self._timer is None:
            self._timer = self._clock.call_later(EVERY_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.clear()

    def clear(self) -> bool:
        """Remove it. False: the cursor could not go back to the row above, because the terminal's size has changed."""
        if self._above is None:
            return True
        above, self._above = self._above, None
        is_as_it_was = not above or self._size() == self._drawn_at
        back = f"\x1b[1A\r{above}" if above and is_as_it_was else ""
        self._write(self._erased() + back)
        return is_as_it_was

    def draw(self) -> None:
        size = self._size()
        columns = max(1, size.columns - SPARE)
        line = self._show(columns)
        if not line:
            self.clear()
            return
        below = ""
        if self._above is None:
            self._above = self._row()
            below = "\n" if self._above else ""
        erased = self._erased() if self._drawn_rows else ERASE_ROW
        above = [cut_row(clean_row(row), cells=columns) for row in self._rows_above(size.lines - TEXT_ROWS)]
        self._drawn_at, self._drawn_rows = size, len(above) + 1
        mark = MARKS[int(self._clock.monotonic() / EVERY_S) % len(MARKS)]
        rows = [style(f"  {row}", "dim", stream=self._notes) for row in above]
        self._write(f"{below}{erased}" + "\n".join([*rows, f"{mark} {clean_row(line)}"]))

    def _erased(self) -> str:
        """The cursor is then at the left of the first of its rows. If the terminal became narrower, it may have broken a row:
        then a part of one stays, and nothing that is not ours is erased."""
        rows, self._drawn_rows = self._drawn_rows, 0
        return ERASE_ROW + "\x1b[1A\x1b[2K" * (rows - 1)

    def _tick(self) -> None:
        self._timer = None
        try:
            self.draw()
        except OSError:  # the terminal is gone: the next writer gets the error
            return
        self.start()

    def _write(self, text: str) -> None:
        self._notes.write(text)
        self._notes.flush()
