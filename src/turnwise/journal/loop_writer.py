"""The pen of one turn in an event loop: what it writes waits for its database beside the loop, in order."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwise.errors import JournalFailed
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.records import JournalRecord, RequestSent
from turnwise.journal.stores import Works, WouldWait, done_beside, done_here, settle, uncut
from turnwise.journal.turn_writer import TurnJournal
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.config import TurnResult

T = TypeVar("T")

_behind: set[asyncio.Task[None]] = set()  # asyncio holds tasks weakly


class LoopPen:
    """Each method that is awaited ends when what it says is written, or raises JournalFailed. A cancel does not break it off: it
    comes behind it.

    All tries have one limit together: what a failed one has waited is not waited again. Whoever stood in line behind one that
    failed has failed with it.
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
