"""The pen of one turn: what happens in it is written down before it is acted upon."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from turnwise.drivers.clock import Clock
from turnwise.drivers.journal.file import JournalFile, Transaction
from turnwise.drivers.journal.ledger import LEAVES, STAYED, LedgerEntry, update_of, values_before
from turnwise.drivers.journal.records import KINDS, JournalRecord, RequestSent, encode_record
from turnwise.drivers.journal.schema import SEQ_BITS
from turnwise.errors import JournalFailed
from turnwise.turn.config import TurnResult
from turnwise.turn.events import TurnStarted

if TYPE_CHECKING:
    from turnwise.drivers.journal.journal import Journal


class TurnJournal:
    """The pen of one turn. Writing raises JournalFailed where the file takes nothing more (a full disk), or another process
    has taken the turn over. What could not be written waits for the next attempt.

    What has happened may wait for what comes next (`later`), so that a step costs two transactions and not five. Whoever
    holds the pen writes before anything is acted upon: before a request, a tool, a person or time is waited for.
    """

    def __init__(
        self, file: JournalFile, *, journal: "Journal", turn_id: str, number: int, epoch: int, clock: Clock
    ) -> None:
        self.journal = journal
        self._file = file
        self._turn_id = turn_id
        self._epoch = epoch
        self._clock = clock
        self._last_id = number << SEQ_BITS  # of its records
        self._waiting: list[_EventRow] = []
        self._became: dict[int, LedgerEntry] = {}  # requests whose entries wait, too
        self._rows_of_requests: dict[int, int] = {}  # of the ledger's table, by the request's number
        self._stayed: list[int] = []  # rows of requests that never left, to be struck out
        self._has_ended = False
        self.has_begun = False  # its first record is there

    def begin(self, started: TurnStarted, *, connection: sqlite3.Connection) -> None:
        """Write the first record within the transaction at hand."""
        connection.execute(_EVENT, self._row_of(started))
        self.has_begun = True

    def go_on(self, connection: sqlite3.Connection) -> None:
        """Stand behind the last record of a turn that was taken over, and know the requests that it has sent."""
        first, past = self._last_id, self._last_id + (1 << SEQ_BITS)
        (last,) = connection.execute("select max(id) from record where id > ? and id < ?", (first, past)).fetchone()
        self._last_id = first if last is None else last
        self._rows_of_requests = dict(
            connection.execute("select number, id from request where turn = ?", (self._turn_id,)).fetchall()
        )
        self.has_begun = last is not None

    def append(self, record: JournalRecord) -> None:
        """On return the record is safe from our own death, and all that waited."""
        self._write((*self._waiting, self._row_of(record)))

    def later(self, record: JournalRecord) -> None:
        """Take the record down, to be written with what comes next."""
        self._waiting.append(self._row_of(record))

    def write(self) -> None:
        """On return nothing waits any more."""
        if self._waiting or self._became or self._stayed:
            self._write(self._waiting)

    def request_leaves(self, record: RequestSent, entry: LedgerEntry) -> None:
        """Write down a request before its first byte leaves: the record and its entry of the ledger, both or none."""
        self._write((*self._waiting, self._row_of(record)), leaves=entry)

    def request_became(self, entry: LedgerEntry) -> None:
        """Complete a request's entry, with what comes next. It is kept even if another process has taken the turn over: it
        was sent."""
        self._became[entry.number] = entry
        self._write_if_ended()

    def request_stayed(self, entry: LedgerEntry) -> None:
        """Strike out the entry of a request that never left, with what comes next."""
        self._stayed.append(self._rows_of_requests.pop(entry.number))
        self._write_if_ended()

    def _write_if_ended(self) -> None:
        """What becomes of a request that was left behind: nothing comes next."""
        if self._has_ended:
            with suppress(JournalFailed):  # nobody is left to be told
                self.write()

    def _row_of(self, record: JournalRecord) -> "_EventRow":
        self._last_id += 1
        body = encode_record(record).decode()
        return self._last_id, KINDS[type(record)], body, self._clock.now(), self._turn_id, self._epoch

    def _write(self, events: Sequence["_EventRow"], *, leaves: LedgerEntry | None = None) -> None:
        """All in one transaction. Where the turn is another's, nothing but what became of our requests is kept."""
        with self._file.statement() as connection:
            if leaves is None and len(events) + len(self._became) + len(self._stayed) == 1:
                is_ours = self._execute(events, connection=connection, leaves=None)
            else:
                with Transaction(connection):
                    is_ours = self._execute(events, connection=connection, leaves=leaves)
        self._waiting = []
        self._became = {}
        self._stayed = []
        if not is_ours:
            raise JournalFailed("another process has taken this turn over")

    def _execute(
        self, events: Sequence["_EventRow"], *, connection: sqlite3.Connection, leaves: LedgerEntry | None
    ) -> bool:
        """False where the turn is another's."""
        is_ours = True
        for entry in self._became.values():
            connection.execute(*update_of(entry, row_id=self._rows_of_requests[entry.number]))
        for row_id in self._stayed:
            connection.execute(STAYED, (row_id,))
        for values in events:
            is_ours = is_ours and connection.execute(_EVENT, values).rowcount == 1
        if is_ours and leaves is not None:
            row_id = connection.execute(LEAVES, values_before(leaves)).lastrowid
            assert row_id is not None, "it was inserted"
            self._rows_of_requests[leaves.number] = row_id
        return is_ours

    def close(self, result: TurnResult) -> None:
        """The turn has ended: note how, for the list of sessions."""
        self.write()
        self._has_ended = True
        now = self._clock.now()
        status = "waiting" if result.pending else "done"
        with self._file.transaction() as connection:
            connection.execute(
                "update turn set status = ?, finished = ?, stop_reason = ?, complete = ? where id = ? and epoch = ?",
                (status, now, result.stop_reason, result.complete, self._turn_id, self._epoch),
            )
            connection.execute(
                "update session set updated = ? where id = (select session from turn where id = ?)",
                (now, self._turn_id),
            )

    def abandon(self) -> None:
        """The run ended by an exception: the turn is lost, and the session free for the next one, even if the file cannot say
        so now (JournalFailed). Does nothing after `close`."""
        self._has_ended = True
        try:
            self.write()
        finally:
            try:
                with self._file.statement() as connection:
                    connection.execute(
                        "update turn set status = 'lost', finished = ? where id = ? and epoch = ? and status = 'running'",
                        (self._clock.now(), self._turn_id, self._epoch),
                    )
            except JournalFailed:
                self.journal.leave(self._turn_id)
                raise


_EventRow = tuple[int, str, str, float, str, int]
"""The values of `_EVENT`."""
_EVENT = (
    "insert into record (id, epoch, kind, body, t)"
    " select ?, epoch, ?, ?, ? from turn where id = ? and epoch = ? and status = 'running'"
)
