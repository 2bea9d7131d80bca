"""What the journal asks of the database that keeps it: SQLite's file (`file.py`), or PostgreSQL (`postgres/store.py`).

The journal, its pens and its readers are the same over both. They speak the SQL that both understand, with `?` or `:name` for
values; the few places where the two differ stand in a `Dialect`.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from turnwise.journal.ledger import LedgerEntry, Value
from turnwise.settings.options import Durability

# Work that may have to wait for its database: beside the event loop, in one thread a store, each within one limit.
#
# On the loop it is tried at once, if it can be known that nobody is waited for: of a SQLite file, not of a server.


T = TypeVar("T")
Works = Generator[Callable[[], Any], Any, T]
"""Steps that each ask the database once. The caller runs each of them, on this thread or beside the event loop."""

IDLE_S = 5.0  # after which the thread ends


class WouldWait(Exception):
    """Of work that may not wait: the database is not free. Nothing of it stands."""


class Patience(threading.local):
    """How long the current work of this thread may wait: until `ends` (monotonic), or as long as the store says (None)."""

    def __init__(self) -> None:
        self.may_wait = True
        self.ends: float | None = None

    def until(self, limit_s: float) -> float:
        latest = time.monotonic() + limit_s
        return latest if self.ends is None else min(latest, self.ends)


class StoreThread:
    """Does work that may have to wait, one piece after the other. The limit of each counts from when it was ordered: if one runs
    into its limit, those behind it do not each wait as long again. The thread runs while there is work."""

    def __init__(self, *, limit_s: float) -> None:
        self.limit_s = limit_s
        self.patience = Patience()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._runs = False

    def do(self, work: Callable[[], T], *, within_s: float | None = None) -> Future[T]:
        """`within_s`: seconds, if fewer than the limit are left."""
        done: Future[T] = Future()
        ends = time.monotonic() + (self.limit_s if within_s is None else within_s)

        def order() -> None:
            self.patience.ends = ends
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
                done.set_exception(error)
            else:
                done.set_result(result)

        with self._lock:
            self._orders.put(order)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._work, name="turnwise journal", daemon=True).start()
        return done

    def finish(self) -> None:
        """On return all that was ordered is done."""
        if self._runs:
            self.do(_nothing).result()

    def _work(self) -> None:
        while True:
            try:
                self._orders.get(timeout=IDLE_S)()
            except queue.Empty:
                with self._lock:
                    if self._orders.empty():
                        self._runs = False
                        return


def _nothing() -> None:
    return None


class WaitingStore(Protocol):
    """What of a store those need who may not wait."""

    def at_once(self, work: Callable[[], T], /) -> T:
        """What `work` gives or raises. Raises WouldWait where it had to wait; then nothing of it stands."""
        ...

    @property
    def thread(self) -> StoreThread: ...


def done_here(works: Works[T]) -> T:
    """All steps, in this thread."""
    try:
        work = next(works)
        while True:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 (the steps decide)
                work = works.throw(error)
            else:
                work = works.send(result)
    except StopIteration as stopped:
        return stopped.value


async def done_beside(works: Works[T], *, store: WaitingStore, within_s: float | None = None) -> T:
    """All steps, without a wait of the event loop."""
    ends = None if within_s is None else time.monotonic() + within_s
    try:
        work = next(works)
        while True:
            try:
                left_s = None if ends is None else max(ends - time.monotonic(), 0.0)
                result = await beside(work, store=store, within_s=left_s)
            except BaseException as error:  # noqa: BLE001 (the steps decide)
                work = works.throw(error)
            else:
                work = works.send(result)
    except StopIteration as stopped:
        return stopped.value


async def beside(work: Callable[[], T], *, store: WaitingStore, within_s: float | None = None) -> T:
    """What `work` gives or raises, without a wait of the event loop. It asks the database once, or again does no harm."""
    try:
        return store.at_once(work)
    except WouldWait:
        done = store.thread.do(work, within_s=within_s)
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(settle, over)

    done.add_done_callback(tell)
    await uncut(over)
    return done.result()


def settle(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_result(None)


async def uncut(over: "asyncio.Future[None]") -> None:
    """Wait for it to the end. A cancel of this task comes behind it, as it would if the loop had waited."""
    was_cut = False
    while not over.done():
        try:
            await asyncio.wait([over])
        except asyncio.CancelledError:
            was_cut = True
    if was_cut and (task := asyncio.current_task()) is not None:
        task.uncancel()  # the same cancel: who counts them has counted it
        task.cancel()


Values = Sequence[Value] | Mapping[str, Value]
Statement = tuple[str, Values]


class FoundRows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class JournalConnection(Protocol):
    def execute(self, sql: str, values: Values = ..., /) -> FoundRows: ...


# SQL of a record: whether the record says more than that open work is tried again. A lost request stays open as before.
PROGRESS = """(kind not in ('request_sent', 'script_began', 'noted')
    and not (kind = 'request_failed' and body like '%"lost"_true}'))"""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Where the two databases differ in what the journal asks."""

    day: str  # of `started`, by the user's own clock
    texts: str  # the rows of a JSON array of texts, whose name stands in it as `{}`
    next_number: str  # of a new turn
    shell: str  # the program that takes SQL from a user
    elsewhere: str  # what a user may do instead
    record: str  # inserts one: number of the turn, seq, epoch, kind, body, time
    last_epoch: str  # of the last record of the turn `:number` that is PROGRESS
    waits_elsewhere: str  # of a turn: 1 if it goes on as soon as a person has answered, else 0
    forget: tuple[str, ...]  # deletes the records of the turn `:turn` with its `:number`
    before_deleting: str  # so that what is deleted is overwritten; "" where there is nothing to say
    after_deleting: str  # so that no copy of it stays
    locked: str  # behind a select of one row: nobody else changes it until the transaction ends
    unless_locked: str  # behind a select of one row: it is not found where somebody else has locked it
    label: str  # of a session: the label of a name
    others: str = ""  # gives another value once another connection has written; "" where nothing tells


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One record as text. `seq` counts the records of its turn."""

    seq: int
    kind: str
    body: str
    time: float


class PenBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one turn writes at once. `events` and `leaves` (a request that is about to leave) count only while the turn has that
    epoch and runs; what became of requests, and those that never left (`stayed`, by their rows), is kept all the same."""

    turn: str
    number: int  # of the turn
    epoch: int
    events: Sequence[EventRow]
    became: Sequence[tuple[LedgerEntry, int]] = ()
    stayed: Sequence[int] = ()
    leaves: LedgerEntry | None = None


class BatchWritten(msgspec.Struct, frozen=True, gc=False):
    """`is_ours`: nobody has taken the turn over, so all of the batch stands. `row` is that of the request that leaves."""

    is_ours: bool
    row: int | None = None


class JournalStore(WaitingStore, Protocol):
    """One database, used by one thread at a time. What fails raises JournalFailed and says what to do."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def name(self) -> str:
        """The file, or the address without its password; "" where it has none."""
        ...

    def statement(self) -> AbstractContextManager[JournalConnection]:
        """For a single statement, its rows fetched inside."""
        ...

    def transaction(self) -> AbstractContextManager[JournalConnection]:
        """For several statements, all or none."""
        ...

    def attempt(self, work: Callable[[JournalConnection], T], /) -> T:
        """`work` in a transaction. Where a connection is lost, it may be called again though its first attempt stands."""
        ...

    def execute_all(self, statements: Sequence[Statement], /) -> None:
        """All or none, in one transaction. They may be executed twice."""
        ...

    def append(self, batch: PenBatch, /) -> BatchWritten:
        """Write what a turn has to say, exactly once. On return it is safe from our own death."""
        ...

    def check_version(self, connection: JournalConnection, /) -> None:
        """Raises CallerError where a newer turnwise has changed the tables since they were opened."""
        ...

    def is_whole(self) -> bool:
        """Whether no broken page is found; a server that looks after its pages itself is taken at its word."""
        ...

    def keep(self, durability: Durability, /) -> None:
        """From the next commit on what is written is kept so."""
        ...

    def close(self) -> None: ...
