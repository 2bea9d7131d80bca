"""The pen of one turn: what happens in it is written down before it is acted upon."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from turnwise.base.clock import Clock
from turnwise.errors import JournalFailed
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.owners import Lease
from turnwise.journal.records import KINDS, JournalRecord, RequestSent, encode_record
from turnwise.journal.stores import EventRow, JournalStore, PenBatch, Statement, Works, done_here
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.config import TurnResult


class TurnJournal:
    """The pen of one turn. Writing raises JournalFailed where the file takes nothing more (a full disk), or another process
    has taken the turn over. What could not be written waits for the next attempt.

    What has happened may wait for what comes next (`later`), so that a step costs two transactions and not five. Whoever
    holds the pen writes before anything is acted upon: before a request, a tool, a person or time is waited for.
    """

    def __init__(
        self,
        store: JournalStore,
        *,
        turn_id: str,
        number: int,
        epoch: int,
        clock: Clock,
        leave: Callable[[], None],
        last_seq: int = 0,
        requests: Mapping[int, int] = MappingProxyType({}),
        lease: Lease | None = None,
        may_be_let_go: bool = False,
    ) -> None:
        """It stands behind the record `last_seq`, and knows the rows of the `requests` that were sent before it. `leave` tells
        the journal that the turn is lost where its row cannot say so. With a `lease`, nothing is acted upon once that may have
        lapsed; a turn that `may_be_let_go` ends before a request where the worker stops."""
        self.lease = lease
        self._may_be_let_go = may_be_let_go
        self.store = store
        self._turn_id = turn_id
        self._number = number
        self._epoch = epoch
        self._clock = clock
        self._leave = leave
        self._last_seq = last_seq  # of its records
        self._waiting: list[EventRow] = []
        self._became: dict[int, LedgerEntry] = {}  # requests whose entries wait, too
        self._rows_of_requests = dict(requests)  # of the ledger's table, by the request's number
        self._stayed: list[int] = []  # rows of requests that never left, to be struck out
        self.has_ended = False
        self.has_begun = last_seq > 0  # its first record is there

    # Each that writes stands twice: as steps, which a pen in an event loop does beside it (`loop_writer.py`), and done here.

    def append(self, record: JournalRecord) -> None:
        """On return the record is safe from our own death, and all that waited."""
        done_here(self._writing(record))

    def appending(self, record: JournalRecord) -> Works[None]:
        return self._writing(record)

    def later(self, record: JournalRecord) -> None:
        """Take the record down, to be written with what comes next."""
        self._waiting.append(self._row_of(record))

    def write(self) -> None:
        """On return nothing waits any more."""
        done_here(self.writing())

    def writing(self) -> Works[None]:
        if self.has_to_write:
            yield from self._writing()

    @property
    def has_to_write(self) -> bool:
        return bool(self._waiting or self._became or self._stayed)

    @property
    def is_handed_over_above(self) -> bool:
        """Whether it is a sub-agent's whose worker stops: it sends nothing more, and is handed over with its parent's turn."""
        return self.lease is not None and self.lease.ends and not self._may_be_let_go

    def request_leaves(self, record: RequestSent, entry: LedgerEntry) -> None:
        """Write down a request before its first byte leaves: the record and its entry of the ledger, both or none."""
        done_here(self.leaving(record, entry))

    def leaving(self, record: RequestSent, entry: LedgerEntry) -> Works[None]:
        if self.lease is not None and self.lease.ends and self._may_be_let_go:
            yield from self.writing()
            yield self.lease.let_go
        yield from self._writing(record, leaves=entry)

    def asking_elsewhere(
        self, asks: Sequence[OneAsk], *, deadline_s: float, folder: str
    ) -> Works[Sequence[Approval] | None]:
        """The answers that a person gave to whoever keeps the turn; None where nobody does. Raises JournalFailed where they are
        asked now: nothing more is written then."""
        if self.lease is None or not self._may_be_let_go:
            return None
        yield from self.writing()
        return (yield partial(self.lease.ask, asks, deadline_s=deadline_s, folder=folder))

    @property
    def asks_below(self) -> Lease | None:
        """By which the sub-agents' asks reach a person; None where nobody keeps the turn, or it is a sub-agent's own."""
        return self.lease if self._may_be_let_go else None

    def request_became(self, entry: LedgerEntry) -> None:
        """Complete a request's entry, with what comes next. It is kept even if another process has taken the turn over: it
        was sent."""
        self.note_end(entry)
        self._write_if_ended()

    def note_end(self, entry: LedgerEntry) -> None:
        self._became[entry.number] = entry

    def request_stayed(self, entry: LedgerEntry) -> None:
        """Strike out the entry of a request that never left, with what comes next."""
        self.strike_out(entry)
        self._write_if_ended()

    def strike_out(self, entry: LedgerEntry) -> None:
        self._stayed.append(self._rows_of_requests.pop(entry.number))

    def _write_if_ended(self) -> None:
        """What becomes of a request that was left behind: nothing comes next."""
        if self.has_ended:
            with suppress(JournalFailed):  # nobody is left to be told
                self.write()

    def _row_of(self, record: JournalRecord) -> EventRow:
        self._last_seq += 1
        return EventRow(self._last_seq, KINDS[type(record)], encode_record(record).decode(), self._clock.now())

    def _writing(self, record: JournalRecord | None = None, *, leaves: LedgerEntry | None = None) -> Works[None]:
        """All in one transaction. Where the turn is another's, nothing but what became of our requests is kept. Meanwhile more
        may come to wait; where it fails, all but `record` waits again."""
        row = None if record is None else self._row_of(record)
        if (row is not None or self._waiting) and self.lease is not None and self.lease.is_over:
            raise JournalFailed("this worker stops: another one goes on with the turn")
        waiting, became, stayed = self._waiting, self._became, self._stayed
        self._waiting, self._became, self._stayed = [], {}, []
        batch = PenBatch(
            turn=self._turn_id,
            number=self._number,
            epoch=self._epoch,
            events=waiting if row is None else (*waiting, row),
            became=[(entry, self._rows_of_requests[number]) for number, entry in became.items()],
            stayed=stayed,
            leaves=leaves,
        )
        try:
            appended = yield partial(self.store.append, batch)
        except BaseException:
            self._waiting, self._became = [*waiting, *self._waiting], {**became, **self._became}
            self._stayed = [*stayed, *self._stayed]
            raise
        if leaves is not None and appended.row is not None:
            self._rows_of_requests[leaves.number] = appended.row
        if not appended.is_ours:
            raise JournalFailed("another process has taken this turn over")
        if self.lease is not None:
            self.lease.check()

    def close(self, result: TurnResult, *, problem: str = "") -> None:
        """The turn has ended: note how, for the list of sessions, and the `problem` of a claimed one, for its status."""
        done_here(self.closing(result, problem=problem))

    def closing(self, result: TurnResult, *, problem: str) -> Works[None]:
        yield from self.writing()
        self.has_ended = True
        now = self._clock.now()
        status = "waiting" if result.pending else "done"
        noted, values = ("", ()) if not self._may_be_let_go or not problem else (", problem = ?", (problem,))
        statements: list[Statement] = [
            (
                f"update turn set status = ?, finished = ?, stop_reason = ?, complete = ?{noted} where id = ? and epoch = ?",
                (status, now, result.stop_reason, int(result.complete), *values, self._turn_id, self._epoch),
            ),
            (
                # Whoever has locked the session's row is not waited for: the next turn notes the time.
                "update session set updated = case when updated > ? then updated else ? end"
                " where id = (select id from session where"
                f" id = (select session from turn where id = ?){self.store.dialect.unless_locked})",
                (now, now, self._turn_id),
            ),
        ]
        yield partial(self.store.execute_all, statements)

    def abandon(self) -> None:
        """The run ended by an exception: the turn is lost, and the session free for the next one, even if the file cannot say
        so now (JournalFailed). A claimed turn stays as it is. Does nothing after `close`."""
        done_here(self.abandoning())

    def abandoning(self) -> Works[None]:
        self.has_ended = True
        if self._may_be_let_go:  # it is not lost: its worker gives it back, or its lease lapses
            with suppress(JournalFailed):
                yield from self.writing()
            return
        try:
            yield from self.writing()
        finally:
            try:
                yield partial(self.store.execute_all, [(_LOST, (self._clock.now(), self._turn_id, self._epoch))])
            except JournalFailed:
                self._leave()
                raise


_LOST = "update turn set status = 'lost', finished = ? where id = ? and epoch = ? and status = 'running'"
