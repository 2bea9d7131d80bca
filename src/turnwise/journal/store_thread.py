"""Work that may have to wait for its database: beside the event loop, in one thread a store, each within one limit.

On the loop it is tried at once, if it can be known that nobody is waited for: of a SQLite file, not of a server.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Works = Generator[Callable[[], Any], Any, T]
"""Steps that each ask the database once. Whoever drives them does each, here or beside the loop."""

IDLE_S = 5.0  # after which the thread ends


class WouldWait(Exception):
    """Of work that may not wait: the database is not free. Nothing of it stands."""


class Patience(threading.local):
    """How long the work at hand of this thread may wait: until `ends` (monotonic), or as long as the store says (None)."""

    def __init__(self) -> None:
        self.may_wait = True
        self.ends: float | None = None

    def until(self, limit_s: float) -> float:
        latest = time.monotonic() + limit_s
        return latest if self.ends is None else min(latest, self.ends)


class StoreThread:
    """Does what may have to wait, one after the other. The limit of each counts from when it was ordered, so those behind one
    that waits in vain do not wait in vain one after the other. The thread runs while there is work."""

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
