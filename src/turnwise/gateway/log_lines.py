"""How the gateway's log is written: a line each, for people or as JSON."""

import contextlib
import logging
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from turnwise.agent.written_lines import WrittenLines

FIELDS = "turnwise_fields"
"""The attribute of a record that holds its fields, for a log in JSON."""


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
    """Writes to `stream` in a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines = WrittenLines(stream, dropped_line=self._dropped_line)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(self.format(record))

    def close(self) -> None:
        """What waits is written, if somebody reads it in time."""
        self._lines.close()
        super().close()

    def _dropped_line(self, why: str) -> str:
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


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
