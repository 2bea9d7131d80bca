"""The line that waits: one row below all that is written, drawn anew while nothing is, and gone before anything else is."""

import os
from collections.abc import Callable
from typing import TextIO

from turnwise.base.clock import Clock, Timer
from turnwise.coding_agent.text import clean_row

EVERY_S = 0.125
MARKS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ERASE_ROW = "\r\x1b[2K"


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Of the terminal behind the stream; 80 columns and 24 lines if it does not say."""
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        columns = lines = 0
    return os.terminal_size((columns or 80, lines or 24))


class StatusLine:
    """Writes to `notes`, a terminal. `show` gives the line for so many columns, empty for none. What stands in the `row` of the
    cursor comes back when the line goes."""

    def __init__(
        self,
        notes: TextIO,
        *,
        clock: Clock,
        size: Callable[[], os.terminal_size],
        show: Callable[[int], str],
        row: Callable[[], str],
    ) -> None:
        self._notes = notes
        self._clock = clock
        self._size = size
        self._show = show
        self._row = row
        self._timer: Timer | None = None
        self._above: str | None = None  # the row that is left above it; None: it is not there
        self._drawn_at: os.terminal_size | None = None

    def start(self) -> None:
        """From now on it is drawn, whenever there is something to show."""
        if self._timer is None:
            self._timer = self._clock.call_later(EVERY_S, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.clear()

    def clear(self) -> bool:
        """Take it away. False: the row above could not be gone back to, as the terminal has another size by now."""
        if self._above is None:
            return True
        above, self._above = self._above, None
        is_as_it_was = not above or self._size() == self._drawn_at
        back = f"\x1b[1A\r{above}" if above and is_as_it_was else ""
        self._write(ERASE_ROW + back)
        return is_as_it_was

    def draw(self) -> None:
        size = self._size()
        line = self._show(max(1, size.columns - 3))
        if not line:
            self.clear()
            return
        below = ""
        if self._above is None:
            self._above = self._row()
            below = "\n" if self._above else ""
        self._drawn_at = size
        mark = MARKS[int(self._clock.monotonic() / EVERY_S) % len(MARKS)]
        self._write(f"{below}{ERASE_ROW}{mark} {clean_row(line)}")

    def _tick(self) -> None:
        self._timer = None
        try:
            self.draw()
        except OSError:  # the terminal is gone: whoever writes next is told
            return
        self.start()

    def _write(self, text: str) -> None:
        self._notes.write(text)
        self._notes.flush()
