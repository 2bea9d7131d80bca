"""Time, handed in: what asks for it takes a `Clock`, so tests can own it (`turnwise.testing.FakeClock`)."""

import asyncio
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

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class Overdue(Exception):
    """A watchdog's deadline passed: `what` was expected within `seconds`."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"no {what} within {seconds:g} s")
        self.what = what
        self.seconds = seconds


class Watchdog:
    """Ends the block it guards with `Overdue` when what was expected did not come in time.

    `expect` names what has to come next; `renew` says that it came and must come again. Renewing only writes a number: the one
    timer looks at it when it fires, so a stream of 100,000 frames sets a handful of timers. `total_s` bounds the block.
    Cancelling from outside wins over the deadline, as with `asyncio.timeout`.
    """

    def __init__(self, clock: Clock, *, total_s: float) -> None:
        self._clock = clock
        self._monotonic = clock.monotonic
        self._total_s = total_s
        self._end = self._monotonic() + total_s
        self._what = ""
        self._seconds = total_s
        self._due = self._end
        self._timer: Timer | None = None
        self._armed_for = 0.0
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._barked = False

    def expect(self, what: str, *, within_s: float) -> None:
        self._what = what
        self._seconds = within_s
        self._due = self._monotonic() + within_s
        if self._timer is not None and min(self._due, self._end) < self._armed_for:
            self._timer.cancel()
            self._arm()

    def restart(self, *, total_s: float) -> None:
        """Bound what is left of the block by `total_s`, from now on."""
        self._total_s = total_s
        self._end = self._monotonic() + total_s
        if self._timer is not None and min(self._due, self._end) < self._armed_for:
            self._timer.cancel()
            self._arm()

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

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "a watchdog guards a task"
        self._cancelling = self._task.cancelling()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None and self._timer is not None
        self._timer.cancel()
        if self._barked and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            if self._end <= self._due:
                raise Overdue("end", self._total_s) from None
            raise Overdue(self._what, self._seconds) from None

    def _arm(self) -> None:
        self._armed_for = min(self._due, self._end)
        self._timer = self._clock.call_later(max(0.0, self._armed_for - self._monotonic()), self._look)

    def _look(self) -> None:
        assert self._task is not None
        if self._monotonic() < min(self._due, self._end):
            self._arm()
            return
        self.bark()


async def sleep(clock: Clock, *, seconds: float) -> None:
    """Wait by `clock`; cancelling ends it at once."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: over.done() or over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()


async def wait_for_task(task: "asyncio.Task[object]", *, clock: Clock, timeout_s: float) -> bool:
    """Wait until the task is done, at most `timeout_s`; true if it is. The task is not cancelled."""
    if task.done():
        return True
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = clock.call_later(timeout_s, end)
    task.add_done_callback(end)
    try:
        await over
    finally:
        timer.cancel()
        task.remove_done_callback(end)
    return task.done()
