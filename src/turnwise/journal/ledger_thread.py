"""Writes the ledger beside an event loop that serves many at once.

A turn writes in its own loop's thread: 0.03 ms, and it is the only one that waits. Here a file that another process holds for a
moment, or a disk that is slow for once, would hold up every open stream. One thread writes, and whatever has gathered meanwhile
goes into one transaction.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import CallerError, JournalFailed, TurnwiseBug
from turnwise.journal.direct_ledger import EntryBecame, EntryLeaves, EntryStayed, LedgerChange, LedgerLine, RepairSeen
from turnwise.journal.file import BUSY_S
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.stores import JournalStore
from turnwise.settings.options import Durability

if TYPE_CHECKING:
    from turnwise.journal.request_budgets import BudgetRefusal, RequestPart

_log = logging.getLogger("turnwise")
T = TypeVar("T")

MOST_AT_ONCE = 1_000  # in one transaction
MOST_KEPT = 10_000  # ends of requests that wait while the file takes nothing
CLOSE_S = 15.0  # longer than the journal waits for another process

WriteDone = asyncio.Future[None]


class BudgetFull(Exception):
    """A budget has no room for the request, so it must not leave."""

    def __init__(self, refusal: "BudgetRefusal") -> None:
        super().__init__(refusal.what)
        self.refusal = refusal


class _Leaving(msgspec.Struct, frozen=True):
    """`done` is told in `loop` once the entry is written, or cannot be within the limit from `since_s` on (monotonic)."""

    change: EntryLeaves
    loop: asyncio.AbstractEventLoop
    done: WriteDone
    since_s: float


class _Ending(msgspec.Struct, frozen=True):
    """`entry` makes the entry: pricing a request may read a long table for the first time."""

    line: LedgerLine
    entry: Callable[[], LedgerEntry]


class _Mended(msgspec.Struct, frozen=True):
    """What a client's request took in repairs."""

    seen: tuple[RepairSeen, ...]


class _Work(msgspec.Struct, frozen=True):
    """Something else to do with the journal, in this thread."""

    run: Callable[[JournalStore], None]


_Order = _Leaving | EntryLeaves | _Ending | EntryStayed | _Mended | _Work


class LedgerThread:
    """The journal's file and the thread that writes into it. `close` it at the end."""

    def __init__(
        self, path: Path | str | None, *, clock: Clock, durability: Durability = "normal", limit_s: float = BUSY_S
    ) -> None:
        """`limit_s`: how long a request waits for a file that another process holds, however many wait before it. Raises
        CallerError for a file that is no journal, or cannot be written."""
        self._journal = Journal(path, clock=clock, durability=durability)
        self._direct = self._journal.direct
        self._limit_s = limit_s
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._kept: list[LedgerChange] = []  # what could not be written yet
        self._failed = False
        self.failing_since_s: float | None = None  # monotonic: since then the database could not be used
        self._failed_repairs = False
        self._thread = threading.Thread(target=self._work, name="turnwise ledger", daemon=True)
        self._thread.start()

    @property
    def is_well(self) -> bool:
        """Whether what was to be written last is written. After a failure each question is an attempt, too."""
        was_well = not self._failed
        if not was_well:
            self.stayed(LedgerLine())  # changes nothing
        return was_well

    async def leaves(self, entry: LedgerEntry, *, part: "RequestPart | None" = None) -> LedgerLine:
        """On return the entry is safely written down, its part of budgets is reserved, and its request may leave. Raises
        JournalFailed or BudgetFull: then it must not."""
        line, loop = LedgerLine(part), asyncio.get_running_loop()
        done: WriteDone = loop.create_future()
        self._orders.put(_Leaving(EntryLeaves(line=line, entry=entry), loop, done, time.monotonic()))
        try:
            await done
        except asyncio.CancelledError:
            self.stayed(line)  # it may be written by now, or will be
            raise
        return line

    def left(self, entry: LedgerEntry, *, part: "RequestPart | None" = None) -> LedgerLine:
        """The request leaves, though the database cannot be used: its entry and its part are written once it can."""
        line = LedgerLine(part)
        self._orders.put(EntryLeaves(line=line, entry=entry, has_left=True))
        return line

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the database that more would be forgotten."""
        return len(self._kept) > MOST_KEPT // 2

    def became(self, line: LedgerLine, entry: Callable[[], LedgerEntry]) -> None:
        """Complete an entry soon. `entry` is called in the thread."""
        self._orders.put(_Ending(line, entry))

    def entered(self, entry: LedgerEntry) -> None:
        """Write an entry for which nothing left, soon."""
        line = LedgerLine()
        self._orders.put(EntryLeaves(line=line, entry=entry))
        self.became(line, lambda: entry)

    def stayed(self, line: LedgerLine) -> None:
        """Strike out the entry of a request that never left, soon."""
        self._orders.put(EntryStayed(line=line))

    def mended(self, seen: Sequence[RepairSeen]) -> None:
        """Note repairs for the report, soon. Nobody waits for them, and what cannot be written is left out."""
        self._orders.put(_Mended(tuple(seen)))

    async def does(self, work: Callable[[JournalStore], T]) -> T:
        """What `work` gives, done in the thread. Raises JournalFailed."""
        done: Future[T] = Future()

        def run(store: JournalStore) -> None:
            try:
                done.set_result(work(store))
            except Exception as error:  # noqa: BLE001 (a thread that dies lets everybody wait for ever)
                is_known = isinstance(error, CallerError | TurnwiseBug)
                done.set_exception(
                    JournalFailed(str(error) if is_known else f"the journal met `{type(error).__name__}`")
                )

        self._orders.put(_Work(run))
        return await asyncio.shield(asyncio.wrap_future(done))

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._orders.put(None)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._journal.close()

    # -- in the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_over = False
        while not is_over:
            orders = [self._orders.get()]
            while len(orders) < MOST_AT_ONCE and not self._orders.empty():
                orders.append(self._orders.get())
            is_over = None in orders
            self._write([order for order in orders if order is not None and not isinstance(order, _Work)])
            for order in orders:
                if isinstance(order, _Work):
                    self._journal.direct.wait_until(time.monotonic() + self._limit_s)
                    order.run(self._journal.gateway.store)
                    self._direct.forget()

    def _write(self, orders: list[_Order]) -> None:
        waiting = [order for order in orders if isinstance(order, _Leaving)]
        changes = [change for order in orders if (change := _change_of(order)) is not None]
        why: Exception | None = None
        refused: dict[LedgerLine, BudgetRefusal] = {}
        since_s = min([order.since_s for order in waiting], default=time.monotonic())
        direct = self._direct
        direct.wait_until(since_s + self._limit_s)
        try:
            if self._kept or changes:
                refused = direct.write([*self._kept, *changes])
                self._kept = []
                self._failed, self.failing_since_s = False, None
        except Exception as error:  # noqa: BLE001 (a thread that dies lets everybody wait for ever)
            known = isinstance(error, JournalFailed | TurnwiseBug)
            why = error if known else TurnwiseBug(f"the ledger's thread met `{type(error).__name__}`")
            if not self._failed:
                _log.error("gateway: the ledger cannot be written: %s", why)
            self._failed = True
            if isinstance(error, JournalFailed) and self.failing_since_s is None:
                self.failing_since_s = time.monotonic()
            # Nobody waits for these; those that wait are told, and do not leave. A part may have been reserved all the same.
            kept = [*self._kept, *[_after_failure(change) for change in changes]]
            kept = [change for change in kept if change is not None]
            self._kept = kept[-MOST_KEPT:] if isinstance(error, JournalFailed) else []
        _tell(waiting, why, refused)
        if seen := [one for order in orders if isinstance(order, _Mended) for one in order.seen]:
            self._write_repairs(seen)

    def _write_repairs(self, seen: Sequence[RepairSeen]) -> None:
        """In a transaction of their own: no request depends on it, nor waits longer for it than for the ledger."""
        try:
            self._journal.repairs.write(seen)
            self._failed_repairs = False
        except Exception as error:  # noqa: BLE001 (as above)
            if not self._failed_repairs:
                known = isinstance(error, JournalFailed | TurnwiseBug)
                _log.error(
                    "gateway: repairs cannot be written for the report: %s", error if known else type(error).__name__
                )
            self._failed_repairs = True


def _change_of(order: _Order) -> LedgerChange | None:
    match order:
        case _Leaving(change=change):
            return change
        case _Ending(line=line, entry=entry):
            try:
                return EntryBecame(line=line, entry=entry())
            except Exception as error:  # noqa: BLE001 (one entry's bug must not end the thread; it stays unfinished)
                _log.error("gateway: bug in the ledger: %s", type(error).__name__)
                return None
        case EntryStayed() | EntryLeaves():
            return order
        case _Mended() | _Work():
            return None


def _after_failure(change: LedgerChange) -> LedgerChange | None:
    if not isinstance(change, EntryLeaves) or change.has_left:
        return change
    return EntryStayed(line=change.line, entry=change.entry)  # it may stand all the same


_Told = tuple[WriteDone, Exception | None]


def _tell(waiting: list[_Leaving], why: Exception | None, refused: "Mapping[LedgerLine, BudgetRefusal]") -> None:
    """One wake-up for each loop."""
    for loop in {order.loop for order in waiting}:
        told: list[_Told] = []
        for order in waiting:
            if order.loop is loop:
                no = refused.get(order.change.line)
                told.append((order.done, why if no is None else BudgetFull(no)))
        try:
            loop.call_soon_threadsafe(_settle, told)
        except RuntimeError:
            continue  # the loop is closed: nobody waits any more


def _settle(told: list[_Told]) -> None:
    for done, why in told:
        if done.done():
            continue
        if why is None:
            done.set_result(None)
        else:
            done.set_exception(why if isinstance(why, BudgetFull) else JournalFailed(str(why)))
