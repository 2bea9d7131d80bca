"""Writes lines of a log in a thread of its own: a pipe without a reader blocks the log, and nothing else."""

import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

LINES_KEPT = 10_000  # lines that wait for a reader; further ones are counted and dropped
CLOSE_S = 2.0  # how long the reader may take for the rest when the process ends


class WrittenLines:
    """Up to `LINES_KEPT` lines wait for `stream`. Further lines are dropped. Once there is room again, the log says how many;
    `dropped_line` makes that line of these words."""

    def __init__(self, stream: TextIO, *, dropped_line: Callable[[str], str]) -> None:
        self._stream = stream
        self._dropped_line = dropped_line
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="turnwise log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= LINES_KEPT:
                self._dropped += 1
                return
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Write the waiting lines, if somebody reads them within `CLOSE_S`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            try:
                _write(self._stream, f"{line}\n")
            except (OSError, ValueError):  # nobody can read it any more: the work continues
                with self._changed:
                    self._lines.clear()

    def _next(self) -> str | None:
        """Wait for the next line; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._dropped or self._is_closing)
            if self._lines:
                return self._lines.popleft()
            if not self._dropped:
                return None
            dropped, self._dropped = self._dropped, 0
        return self._dropped_line(f"{dropped:,} lines of this log were dropped: nobody read them in time")


def _write(stream: TextIO, text: str) -> None:
    """Write past the stream's buffer if there is a file: a waiting thread must not hold the buffer's lock when Python ends."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        stream.write(text)
        stream.flush()
        return
    left = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
    while left:
        try:
            left = left[os.write(number, left) :]
        except BlockingIOError:
            with selectors.DefaultSelector() as room:
                room.register(number, selectors.EVENT_WRITE)
                room.select()
