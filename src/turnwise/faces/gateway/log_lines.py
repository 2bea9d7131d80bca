"""How the gateway's log is written: a line each, for people or as JSON."""

import contextlib
import logging
import os
import select
import threading
from collections import deque
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TextIO

import msgspec

FIELDS = "turnwise_fields"
"""The attribute of a record that holds its fields, for a log in JSON."""

LINES_KEPT = 10_000  # that wait for a reader; further ones are counted and dropped
CLOSE_S = 2.0  # for the reader to take what is left when the gateway ends


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_time_of(record)} {one_line(record.getMessage())}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: object = getattr(record, FIELDS, None)
        told = {"message": record.getMessage()} if fields is None else msgspec.to_builtins(fields)
        line = {"time": _time_of(record), "level": record.levelname.lower(), **told}
        return msgspec.json.encode(line).decode()


class LogLines(logging.Handler):
    """Writes to `stream` in a thread of its own: a pipe that nobody reads holds up the log, and no request.

    Up to `LINES_KEPT` lines wait. Those behind them are dropped; the log says how many once there is room again.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: deque[str] = deque()
        self._dropped = 0
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="turnwise log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        with self._changed:
            if len(self._lines) >= LINES_KEPT:
                self._dropped += 1
                return
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        """What waits is written, if somebody reads it within `CLOSE_S`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        super().close()

    def _write_all(self) -> None:
        while (line := self._next()) is not None:
            try:
                _write(self._stream, f"{line}\n")
            except (OSError, ValueError):  # nobody can read it any more: the requests go on
                with self._changed:
                    self._lines.clear()

    def _next(self) -> str | None:
        """The next line, waited for; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._dropped or self._is_closing)
            if self._lines:
                return self._lines.popleft()
            if not self._dropped:
                return None
            dropped, self._dropped = self._dropped, 0
        why = f"{dropped:,} lines of this log were dropped: nobody read them in time"
        return self.format(logging.makeLogRecord({"msg": why, "levelname": "WARNING", "levelno": logging.WARNING}))


@contextlib.contextmanager
def logging_to(stream: TextIO, *, as_json: bool, quiet: bool) -> Generator[None]:
    """Until the end of the block the log goes there. `quiet`: of it only errors."""
    log, handler = logging.getLogger("turnwise"), LogLines(stream)
    handler.setFormatter(_Json() if as_json else _Plain())
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.ERROR if quiet else logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
        handler.close()


def one_line(text: str) -> str:
    """Without what would end the line, or mean something to a terminal."""
    return "".join([character if character.isprintable() else "�" for character in text])


def _write(stream: TextIO, text: str) -> None:
    """Past the stream's buffer where there is a file: its lock must not be held by a thread that waits when Python ends."""
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
            select.select([], [number], [])


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
