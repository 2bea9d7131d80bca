"""Keeps the ledger of one running turn: in memory, and in the journal where there is one."""

from collections.abc import Callable

import msgspec

from turnwise.base.clock import Clock
from turnwise.endpoints.exchange import Exchange
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
from turnwise.journal.loop_writer import LoopPen
from turnwise.journal.records import RequestSent
from turnwise.rules.pricing import PriceRow
from turnwise.rules.provider_tool_costs import searches_asked, terms_asked
from turnwise.turn.commands import SendRequest
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Event, RequestFailed, ResponseReceived, ScriptCalled, ScriptFinished
from turnwise.vocab import Fault

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
        self._program = ""  # the call whose program was at hand last
        self._early = (0, 0)  # programs, and calls of theirs, before the first request: an approval began them

    def go_on(self, *, program: str) -> None:
        """Behind the requests of the turn that stand in the ledger already; `program` is the call of the one at hand."""
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
        """Nobody knows what came of that request: the process that sent it has died."""
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
