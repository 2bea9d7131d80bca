"""What one running turn writes: its records, before they are acted upon, and its entries in the ledger.

`TurnJournal` is the pen, `LoopPen` the same in an event loop, `Bookkeeper` keeps the ledger.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TypeVar, get_args

import msgspec
from msgspec.structs import replace

from turnwise.base.clock import Clock
from turnwise.endpoints.exchange import Exchange
from turnwise.errors import JournalFailed
from turnwise.journal.ledger import (
    CacheMissed,
    CacheWatch,
    Ledger,
    LedgerEntry,
    ReceivedResponse,
    discarded_entry,
    ended_entry,
    entry_of,
    lost_entry,
    programmed_entry,
)
from turnwise.journal.owners import Lease
from turnwise.journal.stores import (
    EventRow,
    JournalStore,
    PenBatch,
    Statement,
    Works,
    WouldWait,
    done_beside,
    done_here,
    settle,
    uncut,
)
from turnwise.rules.pricing import PriceRow
from turnwise.rules.provider_tool_costs import searches_asked, terms_asked
from turnwise.turn.config import Approval, OneAsk, TurnConfig, TurnResult
from turnwise.turn.events import (
    Event,
    Purpose,
    RequestFailed,
    ResponseReceived,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    TurnStarted,
)
from turnwise.vocab import NO_TRAITS, Fault
from turnwise.wire.family import MODULES, family

# What a driver writes down beside a turn's events, and how records look as text.


class RequestSent(msgspec.Struct, frozen=True, kw_only=True, tag="request_sent"):
    """A request is about to leave. The hash stands for the body: the history in it is in the journal already. If it never left,
    the `request_failed` or `interrupted` after it says that it was not sent."""

    number: int
    purpose: Purpose
    url: str  # without its query
    body_sha256: str
    body_bytes: int


class ToolsStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tools_started"):
    """A call is about to run (journals before version 8: all calls of a step); without a result after it, it may have run, or
    not, or in part. A call of the step without such a record has not run."""

    step: int
    call_ids: tuple[str, ...]


class AskAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="ask_answered"):
    """One of several asks was answered while the others wait: it is not asked again. The `asked` behind it holds it, too."""

    approval: Approval


class ScriptBegan(msgspec.Struct, frozen=True, kw_only=True, tag="script_began"):
    """The program of the call `call_id` begins; its clock says `time` then (UTC, seconds since 1970). Run again after a crash it
    reads the same times."""

    call_id: str
    time: float


class Noted(msgspec.Struct, frozen=True, kw_only=True, tag="noted"):
    """What a person should know of the turn or of a sub-agent below it, and no event says: it stands in the result's notes, also
    for who reads the result from the journal."""

    text: str


BesideEvents = RequestSent | ToolsStarted | AskAnswered | ScriptBegan | Noted
JournalRecord = Event | BesideEvents
KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(JournalRecord)}

encode_record = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalRecord).decode


def decode_record(text: str | bytes) -> JournalRecord:
    """Raises msgspec.MsgspecError for what is no record."""
    return with_traits(_decode(text))


def with_traits(record: JournalRecord) -> JournalRecord:
    """The beginning of a turn with what its family takes and says, where a journal of before has the family's name alone."""
    if type(record) is not TurnStarted or record.config.traits != NO_TRAITS or record.config.family not in MODULES:
        return record
    return replace(record, config=replace(record.config, traits=family(record.config.family).traits))


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a turn in its place. `time` is UTC, seconds since 1970."""

    seq: int
    time: float
    record: JournalRecord


def events_of(entries: Iterable[JournalEntry]) -> list[Event]:
    """Those alone that rebuild the turn."""
    return [one.record for one in entries if not isinstance(one.record, BesideEvents)]


def notes_of(entries: Iterable[JournalEntry]) -> list[str]:
    return [one.record.text for one in entries if isinstance(one.record, Noted)]


def begun_calls(entries: Iterable[JournalEntry]) -> frozenset[str]:
    """The ids of the calls whose start was recorded: no other call of the turn can have run."""
    return frozenset([id for one in entries if isinstance(one.record, ToolsStarted) for id in one.record.call_ids])


class TurnJournal:
    """The pen of one turn. Writing raises JournalFailed where the file takes nothing more (a full disk), or another process
    has taken the turn over. What could not be written waits for the next attempt.

    A record may wait for the next one (`later`), so that a step costs two transactions and not five. The holder of the pen
    writes before it acts: before it waits for a request, a tool, a person or time.
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

    # Each that writes stands twice: as steps, which `LoopPen` does beside its event loop, and done here.

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
        """The answers that a person gave to the lease's owner; None if no lease keeps the turn. Raises JournalFailed if the
        questions are asked only now: nothing more is written then."""
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
                # This does not wait if another process has locked the session's row: the next turn notes the time.
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


T = TypeVar("T")

_behind: set[asyncio.Task[None]] = set()  # asyncio holds tasks weakly


class LoopPen:
    """Each awaited method ends when its record is written, or raises JournalFailed. A cancel does not interrupt it: the cancel
    takes effect afterwards.

    All tries share one limit: the time that a failed one has waited is not waited again. Calls in line behind a failed one fail
    with it.
    """

    def __init__(self, pen: TurnJournal) -> None:
        self.pen = pen
        self._is_busy = False
        self._line: deque[asyncio.Future[None]] = deque()
        self._failures = 0
        self._failed = JournalFailed("")  # the last of them
        self._left_s: float | None = None  # of the limit, where tries have failed

    def later(self, record: JournalRecord) -> None:
        """Take the record down, to be written with what comes next."""
        self.pen.later(record)

    async def append(self, record: JournalRecord) -> None:
        await self._do(self.pen.appending(record))

    async def write(self) -> None:
        """On return nothing waits any more."""
        if self.pen.has_to_write or self._is_busy:
            await self._do(self.pen.writing())

    def append_soon(
        self, record: JournalRecord, *, failed: Callable[[JournalFailed], object]
    ) -> "asyncio.Future[None] | None":
        """The record is written, if nobody has to be waited for: then None. Else it is as soon as can be, and this says when;
        `failed` is told where it could not be. Raises JournalFailed where that is known at once: it is not taken then."""
        if not self._is_busy:
            try:
                self.pen.store.at_once(lambda: done_here(self.pen.appending(record)))
            except WouldWait:
                pass
            else:
                return None
        self.pen.later(record)
        return self._write_behind(failed)

    async def request_leaves(self, record: RequestSent, entry: LedgerEntry) -> None:
        """Write down a request before its first byte leaves: the record and its entry of the ledger, both or none."""
        await self._do(self.pen.leaving(record, entry))

    async def ask_elsewhere(
        self, asks: Sequence[OneAsk], *, deadline_s: float, folder: str
    ) -> Sequence[Approval] | None:
        return await self._do(self.pen.asking_elsewhere(asks, deadline_s=deadline_s, folder=folder))

    def request_became(self, entry: LedgerEntry) -> None:
        """Complete a request's entry, with what comes next."""
        self.pen.note_end(entry)
        self._write_if_ended()

    def request_stayed(self, entry: LedgerEntry) -> None:
        """Strike out the entry of a request that never left, with what comes next."""
        self.pen.strike_out(entry)
        self._write_if_ended()

    async def close(self, result: TurnResult, *, problem: str = "") -> None:
        await self._do(self.pen.closing(result, problem=problem))

    async def abandon(self) -> None:
        await self._do(self.pen.abandoning(), behind_failure=True)

    def _write_if_ended(self) -> None:
        """What becomes of a request that was left behind: nothing comes next, and nobody is left to be told."""
        if self.pen.has_ended:
            self._write_behind(lambda _: None)

    def _write_behind(self, failed: Callable[[JournalFailed], object]) -> "asyncio.Future[None]":
        async def write() -> None:
            try:
                await self.write()
            except JournalFailed as error:
                failed(error)

        task = asyncio.get_running_loop().create_task(write(), name="turnwise journal")
        _behind.add(task)
        task.add_done_callback(_behind.discard)
        return task

    async def _do(self, works: Works[T], *, behind_failure: bool = False) -> T:
        failures = self._failures
        if self._is_busy:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append(place)
            await uncut(place)
        self._is_busy = True
        began = time.monotonic()
        try:
            if failures != self._failures and not behind_failure:
                raise type(self._failed)(str(self._failed))
            done = await done_beside(works, store=self.pen.store, within_s=self._left_s)
        except JournalFailed as error:
            self._failures, self._failed = self._failures + 1, error
            left_s = self.pen.store.thread.limit_s if self._left_s is None else self._left_s
            self._left_s = max(left_s - (time.monotonic() - began), 0.0)
            raise
        else:
            self._left_s = None
            return done
        finally:
            if self._line:
                settle(self._line.popleft())
            else:
                self._is_busy = False


PriceFinder = Callable[[str, float], PriceRow | None]
"""What a model costs at that time (UTC, seconds since 1970); None if no price is known."""


class Bookkeeper:
    """Of one turn. `ledger` is that of its parent where it is a sub-agent's."""

    def __init__(
        self,
        config: TurnConfig,
        *,
        ledger: Ledger | None,
        path: tuple[str, ...],
        provider: str,
        find_price: PriceFinder | None,
        journal: LoopPen | None,
        clock: Clock,
    ) -> None:
        self.ledger = ledger or Ledger(root_session=config.session_id, root_turn=config.turn_id)
        self._config = config
        self._path = path
        self._provider = provider
        self._find_price = find_price
        self._journal = journal
        self._clock = clock
        self._number = 0  # of the last request that was entered, and has not been taken back
        self._number_before = 0
        self._program = ""  # the call of the last program that ran
        self._early = (0, 0)  # programs, and calls of theirs, before the first request: an approval began them
        if journal is not None and self.ledger.root_turn == config.turn_id:
            self.ledger.keep_notes(lambda text: journal.later(Noted(text=text)))

    def go_on(self, *, program: str) -> None:
        """Behind the requests of the turn that stand in the ledger already; `program` is the call of the running program."""
        own = [entry.number for entry in self.ledger.entries if entry.turn == self._config.turn_id]
        self._number_before = self._number = max(own, default=0)
        self._program = program

    async def enter(self, order: SendRequest, sent: RequestSent) -> LedgerEntry:
        """On return the request is safely written down, and may leave."""
        entry = entry_of(
            order,
            session=self._config.session_id,
            turn=self._config.turn_id,
            ledger=self.ledger,
            path=self._path,
            provider=self._provider,
            started=self._clock.now(),
            sent_bytes=sent.body_bytes,
            programs=(0, 0) if self._number else self._early,
        )
        self._number_before, self._number = self._number, order.number
        if self._journal is not None:
            await self._journal.request_leaves(sent, entry)
        self.ledger.put(entry)
        return entry

    def watches_cache(self) -> CacheWatch:
        """For the requests of this turn."""
        return CacheWatch(turn=self._config.turn_id, path=self._path)

    def has(self, number: int) -> bool:
        """Whether that request of the turn stands in the books: it may have left."""
        return self.ledger.get(self._config.turn_id, number) is not None

    def settle(
        self,
        entry: LedgerEntry,
        exchange: Exchange,
        *,
        event: ResponseReceived | RequestFailed | None,
        missed: CacheMissed | None = None,
        asked_hour: bool = False,
        changed: str = "",
    ) -> LedgerEntry | None:
        """What came of it, what the cache did not give, and its price; without an event it was cancelled. One that never left
        is struck out. `asked_hour`: it asked for a cache that is kept for an hour. `changed` is what a changed prompt cost."""
        if exchange.has_left:
            if missed is not None:
                self.ledger.cache_missed.append(missed)
                entry = msgspec.structs.replace(entry, cache_missed_tokens=missed.expected_tokens - missed.read_tokens)
            return self._complete(entry, exchange, event=event, asked_hour=asked_hour, changed=changed)
        self._number = self._number_before
        self.ledger.strike_out(entry)
        if self._journal is not None:
            self._journal.request_stayed(entry)
        return None

    def _complete(
        self,
        entry: LedgerEntry,
        exchange: Exchange,
        *,
        event: ResponseReceived | RequestFailed | None,
        asked_hour: bool,
        changed: str,
    ) -> LedgerEntry:
        received = received_of(exchange, event=event)
        find = self._find_price
        ended = ended_entry(
            entry,
            received,
            ended=self._clock.now(),
            row=None if find is None else find(entry.model, entry.started),
            billed_in_step=self.ledger.billed_in_step(entry),
            searches=searches_asked(self._config.extra, family=self._config.family),
            asked_hour=asked_hour,
            asked=terms_asked(self._config.extra),
            row_of=None if find is None else lambda model: find(model, entry.started),
        )
        if changed:
            note = f"{ended.price_note}; {changed}" if ended.price_note else changed
            ended = msgspec.structs.replace(ended, price_note=note)
        self._note(ended)
        return ended

    def lose(self, number: int, *, fault: Fault) -> None:
        """The result of that request is unknown: the process that sent it has died."""
        entry = self.ledger.get(self._config.turn_id, number)
        if entry is not None:
            find = self._find_price
            row = None if find is None else find(entry.model, entry.started)
            billed = self.ledger.billed_in_step(entry)
            self._note(lost_entry(entry, fault=fault, ended=self._clock.now(), row=row, billed_in_step=billed))

    def discard(self, number: int) -> None:
        """The request is given up, and sent again."""
        entry = self.ledger.get(self._config.turn_id, number)
        if entry is not None:
            self._note(discarded_entry(entry))

    def saw(self, event: Event) -> None:
        """Count the calls that a program has made, with the request that brought it."""
        if type(event) is ScriptCalled or type(event) is ScriptFinished:
            self._count_program(event)

    def _count_program(self, event: ScriptCalled | ScriptFinished) -> None:
        programs, self._program = int(event.call_id != self._program), event.call_id
        calls = len(event.calls) if isinstance(event, ScriptCalled) else 0
        entry = self.ledger.get(self._config.turn_id, self._number)
        if entry is None:
            self._early = (self._early[0] + programs, self._early[1] + calls)
        elif programs or calls:
            self._note(programmed_entry(entry, programs=programs, calls=calls))

    def _note(self, entry: LedgerEntry) -> None:
        self.ledger.put(entry)
        if self._journal is not None:
            self._journal.request_became(entry)


def received_of(exchange: Exchange, *, event: ResponseReceived | RequestFailed | None) -> ReceivedResponse:
    """What came back of a request; without an event it was broken off."""
    response = partial = fault = None
    is_answer = False
    match event:
        case ResponseReceived(response=response):
            fault = response.fault
        case RequestFailed(partial=partial, fault=fault, is_answer=is_answer):
            pass
        case None:
            partial = exchange.arrived()
    return ReceivedResponse(
        response=response,
        partial=partial,
        fault=fault,
        cancelled=event is None,
        first_event=exchange.first_event_s,
        received_bytes=exchange.received_bytes,
        is_answer=is_answer,
        answered=exchange.has_answered,
    )
