"""The harness of turns by a clock that jumps."""

import asyncio

import pytest

from lab.failing import settled
from turnwise.testing import FakeClock


async def test_what_a_thread_does_takes_no_time_of_a_clock_that_jumps() -> None:
    """Proves that a turn that reads prices in a thread neither seems to wait without a deadline nor has its timers fired early:
    `MaxCost` stopped the draws of test_bills.py in this way."""
    clock, fired = FakeClock(), list[float]()

    async def reads() -> float:
        timer = clock.call_later(5, lambda: fired.append(clock.monotonic()))
        await asyncio.to_thread(sum, range(5_000_000))
        timer.cancel()
        return await asyncio.to_thread(clock.monotonic)

    assert await settled(reads(), clock=clock) == 0
    assert fired == []


async def test_what_a_thread_raises_is_raised() -> None:
    """As by the executor that the loop has without it."""
    with pytest.raises(ZeroDivisionError):
        await settled(asyncio.to_thread(divmod, 1, 0), clock=FakeClock())


async def test_a_wait_without_a_deadline_is_still_told() -> None:
    """The harness waits for nothing but its clock."""
    with pytest.raises(AssertionError, match="without a deadline"):
        await settled(asyncio.Event().wait(), clock=FakeClock())
