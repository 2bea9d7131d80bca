"""Time, handed in: what asks for it takes a `Clock`, so tests can own it (`turnwise.testing.FakeClock`)."""

import asyncio
import math
import re
import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now(self) -> float:
        """UTC, seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds; only differences mean something."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        """Call `callback` in the running event loop once `delay_s` have passed, unless cancelled."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    monotonic = staticmethod(time.monotonic)

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class Overdue(Exception):
    """A watchdog's deadline passed: `what` was expected within `seconds`."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"no {what} within {seconds:g} s")
        self.what = what
        self.seconds = seconds


# Passes of the event loop between a deadline and its end. On a busy machine the loop finds all at once what was due one after the
# other: what has arrived by then gets to be seen first, whatever came first in the loop.
PATIENCE = 5


class Watchdog:
    """Ends the block it guards with `Overdue` when what was expected did not come in time.

    `expect` names what has to come next; `renew` says that it came and must come again; `pause` that nothing is due. Renewing
    only writes a number: the one timer looks at it when it fires, so a stream of 100,000 frames sets a handful of timers.
    `total_s` bounds the block; None: what it guards has its own end. A watchdog that guards what others guard from within has
    more `patience`, so that they bark first. Cancelling from outside wins over the deadline, as with
    `asyncio.timeout`.
    """

    # Each chunk of each stream renews one: what it writes stands beside what it reads.
    __slots__ = (
        "_armed_for",
        "_barked",
        "_cancelling",
        "_clock",
        "_due",
        "_end",
        "_monotonic",
        "_passes",
        "_patience",
        "_seconds",
        "_task",
        "_timer",
        "_total_s",
        "_what",
    )

    def __init__(self, clock: Clock, *, total_s: float | None, patience: int = PATIENCE) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._total_s = math.inf if total_s is None else total_s
        self._end = self._monotonic() + self._total_s
        self._what = ""
        self._seconds = self._total_s
        self._due = self._end
        self._timer: Timer | None = None
        self._armed_for = math.inf
        self._patience = self._passes = patience
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._barked = False

    def expect(self, what: str, *, within_s: float, total_s: float | None = None) -> None:
        """`total_s` bounds what is left of the block, from now on."""
        now_s = self._monotonic()
        self._what = what
        self._seconds = within_s
        self._due = now_s + within_s
        if total_s is not None:
            self._total_s = total_s
            self._end = now_s + total_s
        self._arm_earlier()

    def renew(self) -> None:
        self._due = self._monotonic() + self._seconds

    @property
    def renewed_s(self) -> float:
        """When what was expected last came, by the clock's `monotonic`."""
        return self._due - self._seconds

    def bark(self) -> None:
        """End the block now: what is expected is not waited for any longer."""
        if self._task is not None and not self._barked:
            self._barked = True
            self._task.cancel()

    def pause(self) -> None:
        """Nothing is expected until `expect` says so; what is waited for has a deadline of its own."""
        self._due = self._seconds = math.inf

    def hold(self) -> None:
        """What is expected is due later: not before `resume`, and then as long as ever."""
        self._due = math.inf

    def resume(self) -> None:
        self.renew()
        self._arm_earlier()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "a watchdog guards a task"
        self._cancelling = self._task.cancelling()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None  # it holds the error that ends it, and that holds the frames with this
        assert task is not None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # it may hold what it would have called
        if self._barked and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            if self._end <= self._due:
                raise Overdue("end", self._total_s) from None
            raise Overdue(self._what, self._seconds) from None

    def _arm_earlier(self) -> None:
        if self._task is None or min(self._due, self._end) >= self._armed_for:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._arm()

    def _arm(self) -> None:
        self._armed_for, self._passes = min(self._due, self._end), self._patience
        self._timer = None
        if self._armed_for < math.inf:
            self._timer = self._clock.call_later(max(0.0, self._armed_for - self._monotonic()), self._look)

    def _look(self) -> None:
        assert self._task is not None
        if self._monotonic() < min(self._due, self._end):
            self._arm()
        elif self._passes:
            self._passes -= 1
            self._timer = asyncio.get_running_loop().call_soon(self._look)
        else:
            self.bark()


async def sleep(clock: Clock, *, seconds: float) -> None:
    """Wait by `clock`; cancelling ends it at once."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: over.done() or over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


async def wait_for_task(
    task: "asyncio.Task[object]", *, clock: Clock, timeout_s: float, over: "asyncio.Future[None] | None" = None
) -> bool:
    """Wait until the task is done, at most `timeout_s`, or until `over`, which may be set before; true if it is. The task is not
    cancelled."""
    if task.done():
        return True
    ended = asyncio.get_running_loop().create_future() if over is None else over

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    timer = clock.call_later(timeout_s, end)
    task.add_done_callback(end)
    try:
        await ended
    finally:
        timer.cancel()
        task.remove_done_callback(end)
    return task.done()


async def ends_in_time(task: "asyncio.Task[object]", *, clock: Clock, timeout_s: float, settle_s: float) -> bool:
    """Whether the task ended within `timeout_s`. If it did not, or if the waiter is cancelled, the task is cancelled and has
    `settle_s` to tidy up."""
    try:
        if await wait_for_task(task, clock=clock, timeout_s=timeout_s):
            return True
    except asyncio.CancelledError:
        task.cancel()
        await wait_for_task(task, clock=clock, timeout_s=settle_s)
        raise
    task.cancel()
    await wait_for_task(task, clock=clock, timeout_s=settle_s)
    return False


# Ids for sessions and turns: they sort by the time at which they were made.


_OWN = re.compile(r"[0-9a-f]{26}", re.ASCII)
_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")  # ours, and what a program that names its sessions itself may well take


def is_id(text: str) -> bool:
    """Whether it can be shown and typed anywhere as it is: letters, digits, `_` and `-`."""
    return _ID.fullmatch(text) is not None


def is_time_ordered(text: str) -> bool:
    """Whether it has the form of turnwise's own ids."""
    return _OWN.fullmatch(text) is not None


class TimeOrderedIds:
    """26 hex digits: 48 bits of UTC milliseconds, 56 random bits. One source never gives two in the wrong order, even if the
    clock steps back. (UUIDv7 without its fixed bits, RFC 9562 section 5.7.)"""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        fresh = (int(self._clock.now() * 1000) << 56) | secrets.randbits(56)
        self._last = fresh if fresh > self._last else self._last + 1
        return f"{self._last:026x}"
