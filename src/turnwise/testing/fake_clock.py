"""A clock that stands still until the test moves it."""

import asyncio
import heapq
from collections.abc import Callable

from turnwise.base.clock import sleep

# Passes of the event loop after a timer, so that what it woke can run and wait again.
PASSES = 50


class FakeTimer:
    """A timer of a `FakeClock`. `cancel()` only sets a flag, as in asyncio, because a heap cannot remove an entry from its
    middle."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """A clock that stands still until the test moves it with `await advance(seconds)`. It implements
    `turnwise.base.clock.Clock`.

    `now` is the time that it starts at: UTC, seconds since 1970.
    """

    def __init__(self, *, now: float = 1_800_000_000.0) -> None:
        self._now = now
        self._monotonic = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0
        self._changed = asyncio.Event()

    def now(self) -> float:
        """The time of day: UTC, seconds since 1970."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._monotonic

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> FakeTimer:
        """Call `callback` once the clock has moved by `delay_s` seconds. `cancel()` of the returned timer prevents
        that.
        """
        timer = FakeTimer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self._monotonic + delay_s, self._count, timer))
        self._changed.set()
        return timer

    @property
    def delays(self) -> list[float]:
        """Seconds until each pending timer, the next one first."""
        return sorted([when - self._monotonic for when, _, timer in self._timers if not timer.cancelled])

    async def sleep(self, seconds: float) -> None:
        """Wait until this clock has moved by `seconds`."""
        await sleep(self, seconds=seconds)

    async def advance(self, seconds: float) -> None:
        """Move the clock by `seconds`. Timers fire in order, each at its own time, and the tasks that they wake get to
        run.
        """
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
        """Move the clock by `seconds` at once, as the event loop of a busy machine sees it.

        All due timers fire together (with `last_first` in reverse order), and the tasks that they wake run afterwards.
        """
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
        """Wait until some code has set a timer that is due in exactly `delay_s` seconds."""
        while delay_s not in self.delays:
            self._changed.clear()
            await self._changed.wait()

    def _move_to(self, monotonic: float) -> None:
        self._now += monotonic - self._monotonic
        self._monotonic = monotonic


async def _let_others_run() -> None:
    for _ in range(PASSES):
        await asyncio.sleep(0)
