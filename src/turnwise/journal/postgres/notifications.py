"""Hearing of new records of one session. Whatever fails here costs time only: who follows looks by itself, too."""

import time

import psycopg

from turnwise.journal.postgres.address import read_address
from turnwise.journal.postgres.append import NEWS
from turnwise.journal.postgres.connection import BoundedConnection, connect

WATCHED_S = 30.0  # that a turn tells of its records, from the last word of one who follows
SAY_AGAIN_S = 10.0
TRY_AGAIN_S = 1.0


class RecordNews:
    """`open` it from time to time: it connects where it has to, and says that somebody follows. Whoever has no right to write is
    not told, and looks."""

    def __init__(self, dsn: str, *, session: str) -> None:
        self._address = read_address(dsn)
        self._session = session
        self._connection: BoundedConnection | None = None
        self._again_s = 0.0

    def open(self) -> int | None:
        """A socket that can be read as soon as there is news; None where there is none now."""
        now = time.monotonic()
        if now >= self._again_s:
            self._again_s = now + self._say_so()
        return None if self._connection is None or self._connection.closed else self._connection.fileno()

    def _say_so(self) -> float:
        """After how many seconds it is to be said again."""
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(self._address)
                self._connection.execute(f"listen {NEWS}")
            self._connection.execute(
                "update turn set watched_until = clock_timestamp() + make_interval(secs => %s)"
                " where session = %s and status in ('queued', 'running', 'waiting')",
                (WATCHED_S, self._session),
            )
            return SAY_AGAIN_S
        except psycopg.errors.InsufficientPrivilege:
            return SAY_AGAIN_S
        except psycopg.Error:
            self.close()
            return TRY_AGAIN_S

    def take(self) -> bool:
        """Whether what has come is of the session."""
        if self._connection is None:
            return False
        try:
            found = [one.payload == self._session for one in self._connection.notifies(timeout=0)]
        except psycopg.Error:
            self.close()
            return True
        return any(found)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
