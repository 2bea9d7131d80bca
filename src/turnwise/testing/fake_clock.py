"""A clock that stands still until the test moves it."""

import asyncio
import heapq
from collections.abc import Callable

# Passes of the event loop after a timer, so that what it woke can run and wait again.
PASSES = 50


class FakeTimer:
    """Cancelled by setting a flag, as in asyncio: a heap cannot give up an entry in its middle."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Implements `turnwise.drivers.clock.Clock`. `await advance(s)` moves time and calls what is due on the way."""

    def __init__(self, *, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0
        self._changed = asyncio.Event()

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> FakeTimer:
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self._monotonic + delay_s, self._count, timer))
        self._changed.set()
        return timer

    @property
    def delays(self) -> list[float]:
        """Seconds until each pending timer, the next first."""
        return sorted([when - self._monotonic for when, _, timer in self._timers if not timer.cancelled])

    async def sleep(self, seconds: float) -> None:
        """Wait until this clock has moved so far."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: over.done() or over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()

    async def advance(self, seconds: float) -> None:
        """Move time by `seconds`; timers fire in order, each at its own time, and what they wake gets to run."""
        end = self._monotonic + seconds
        await _let_others_run()
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self._move_to(max(when, self._monotonic))
            timer.callback()
            await _let_others_run()
        self._move_to(end)
        await _let_others_run()

    async def leap(self, seconds: float, *, last_first: bool = False) -> None:
        """Move time as the event loop of a busy machine sees it: all that is due by then fires at once, the last timer before the
        first one if you like, and only afterwards what it woke gets to run."""
        await _let_others_run()
        self._move_to(self._monotonic + seconds)
        while self._timers and self._timers[0][0] <= self._monotonic:
            due = [heapq.heappop(self._timers)]
            while self._timers and self._timers[0][0] <= self._monotonic:
                due.append(heapq.heappop(self._timers))
            for _, _, timer in reversed(due) if last_first else due:
                if not timer.cancelled:
                    timer.callback()
            await _let_others_run()
        await _let_others_run()

    async def until_waiting(self, delay_s: float) -> None:
        """Return once a timer is due in exactly `delay_s` seconds: what sets it has come so far."""
        while delay_s not in self.delays:
            self._changed.clear()
            await self._changed.wait()

    def _move_to(self, monotonic: float) -> None:
        self._now += monotonic - self._monotonic
        self._monotonic = monotonic


async def _let_others_run() -> None:
    for _ in range(PASSES):
        await asyncio.sleep(0)
