"""Deadlines and ids: what ends a wait, and that it ends nothing else."""

import asyncio
from functools import partial

import pytest

from turnwise.base.clock import Overdue, SystemClock, TimeOrderedIds, Watchdog, wait_for_task
from turnwise.testing import FakeClock
from waits import HANG_S


async def test_watchdog_ends_what_waits_too_long() -> None:
    """The first expectation, a renewed one and the total, each by its name."""
    clock = FakeClock()

    async def guarded(events: list[asyncio.Event]) -> None:
        async with Watchdog(clock, total_s=100) as dog:
            dog.expect("first", within_s=10)
            for event in events:
                await event.wait()
                dog.expect("next", within_s=40)
                dog.renew()

    async def outcome(*waits: float) -> str:
        events = [asyncio.Event() for _ in waits]
        task = asyncio.create_task(guarded([*events, asyncio.Event()]))
        for event, wait in zip(events, waits, strict=True):
            await clock.advance(wait)
            event.set()
        await clock.advance(200)
        with pytest.raises(Overdue) as caught:
            await asyncio.wait_for(task, HANG_S)
        assert task.cancelling() == 0
        return str(caught.value)

    assert await outcome() == "no first within 10 s"
    assert await outcome(9) == "no next within 40 s"
    assert await outcome(9, 39, 39) == "no end within 100 s"
    assert clock.delays == []


async def test_watchdog_lets_go_of_what_ended_in_time() -> None:
    """Its timer is gone, and an expectation made shorter holds at once."""
    clock = FakeClock()
    async with Watchdog(clock, total_s=100):
        assert clock.delays == [100]
    assert clock.delays == []

    async def shortened() -> None:
        async with Watchdog(clock, total_s=100) as dog:
            dog.expect("first", within_s=50)
            dog.expect("end", within_s=5)
            await asyncio.Event().wait()

    task = asyncio.create_task(shortened())
    await clock.advance(5)
    with pytest.raises(Overdue, match="no end within 5 s"):
        await asyncio.wait_for(task, HANG_S)


@pytest.mark.parametrize("last_first", [False, True], ids=["in order", "last first"])
async def test_watchdog_sees_first_what_came_before_its_deadline(last_first: bool) -> None:
    """Proves: where a late loop finds a deadline and what renews it at once, in either order, the deadline has not passed."""
    clock = FakeClock()

    async def guarded() -> str:
        async with Watchdog(clock, total_s=None) as dog:
            dog.expect("piece", within_s=10.0)
            for _ in range(3):
                await clock.sleep(9.0)
                dog.expect("piece", within_s=10.0)
            return "whole"

    task = asyncio.create_task(guarded())
    for _ in range(3):
        await clock.leap(60.0, last_first=last_first)
    assert await asyncio.wait_for(task, HANG_S) == "whole"
    assert clock.delays == []


async def test_a_paused_watchdog_ends_nothing_until_something_is_expected_again() -> None:
    """Proves: it sets no timer meanwhile, and the next expectation has its whole time."""
    clock, goes_on = FakeClock(), asyncio.Event()

    async def guarded() -> None:
        async with Watchdog(clock, total_s=None) as dog:
            dog.expect("first", within_s=5.0)
            dog.pause()
            await goes_on.wait()
            dog.expect("next", within_s=7.0)
            await asyncio.Event().wait()

    task = asyncio.create_task(guarded())
    await clock.advance(1_000.0)
    assert not task.done()
    goes_on.set()
    await clock.advance(6.0)
    assert not task.done()
    await clock.advance(1.0)
    with pytest.raises(Overdue, match="no next within 7 s"):
        await asyncio.wait_for(task, HANG_S)


async def test_a_leap_fires_all_that_is_due_before_anything_else_runs() -> None:
    """Proves: in order of their time or the last one first, what they set goes off too, and cancelled ones do not."""
    for last_first in (False, True):
        clock, order = FakeClock(now=0), list[str]()
        for name, delay_s in (("b", 2.0), ("a", 1.0), ("c", 30.0)):
            clock.call_later(delay_s, partial(order.append, name))
        clock.call_later(1.5, partial(order.append, "never")).cancel()
        clock.call_later(3.0, partial(clock.call_later, 0.0, partial(order.append, "after")))
        await clock.leap(5.0, last_first=last_first)
        assert order == (["b", "a", "after"] if last_first else ["a", "b", "after"])
        assert (clock.now(), clock.monotonic(), clock.delays) == (5, 5, [25])


async def test_cancelling_from_outside_wins_over_the_deadline() -> None:
    """A user's cancel is never mistaken for a timeout."""
    clock = FakeClock()

    async def guarded() -> None:
        async with Watchdog(clock, total_s=1):
            await asyncio.Event().wait()

    task = asyncio.create_task(guarded())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_wait_for_task_does_not_cancel_it() -> None:
    """It tells whether the task is done, and leaves it alone."""
    clock, go = FakeClock(), asyncio.Event()
    task = asyncio.create_task(go.wait())
    waiting = asyncio.create_task(wait_for_task(task, clock=clock, timeout_s=3))
    await clock.until_waiting(3)
    await clock.advance(3)
    assert await waiting is False and not task.done()
    go.set()
    assert await wait_for_task(task, clock=clock, timeout_s=3) is True
    assert clock.delays == []


async def test_system_clock_calls_later() -> None:
    """The real one, for a moment."""
    clock, called = SystemClock(), asyncio.Event()
    before = clock.monotonic()
    clock.call_later(0.001, called.set)
    await asyncio.wait_for(called.wait(), HANG_S)
    assert clock.monotonic() > before and clock.now() > 1_700_000_000


async def test_ids_sort_by_their_time() -> None:
    """Also within one millisecond, and when the clock steps back."""
    clock = FakeClock(now=2000.0)
    ids = TimeOrderedIds(clock)
    made = [ids.new() for _ in range(100)]
    await clock.advance(1)
    made.append(ids.new())
    back = TimeOrderedIds(FakeClock(now=1.0))
    assert made == sorted(made) and len(set(made)) == len(made) and {len(id) for id in made} == {26}
    assert back.new() < made[0]


async def test_fake_clock_sleeps_and_fires_in_order() -> None:
    """Timers fire at their own time, what they wake runs in between, and cancelled ones do not fire."""
    clock, order = FakeClock(now=0), list[tuple[str, float]]()

    async def sleeper() -> None:
        await clock.sleep(2)
        order.append(("woke", clock.now()))
        clock.call_later(1, lambda: order.append(("chained", clock.now())))

    task = asyncio.create_task(sleeper())
    clock.call_later(4, lambda: order.append(("last", clock.now())))
    clock.call_later(1, lambda: order.append(("first", clock.now())))
    clock.call_later(1, lambda: order.append(("never", clock.now()))).cancel()
    await clock.advance(10)
    await task
    assert order == [("first", 1), ("woke", 2), ("chained", 3), ("last", 4)]
    assert (clock.now(), clock.monotonic(), clock.delays) == (10, 10, [])
