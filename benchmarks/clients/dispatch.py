"""What every client of the tool dispatch benchmark does: warm up, time calls, print JSON. Standard library only."""

import asyncio
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

ARGUMENTS = '{"place": "the shelf on the left", "carefully": true, "times": [1, 2, 3]}'
RESULT = "There is nothing to see there."
ROUNDS = 5

Run = dict[str, Callable[[], Awaitable[float]]]
"""By the name of a case (`async 1`, `sync 10`: of how many at once), what gives the CPU seconds of one call."""


def look(place: str, carefully: bool = False, times: list[int] | None = None) -> str:
    """Look at a place.

    Args:
        place: Where to look.
        carefully: Whether to take more time.
        times: When to look.
    """
    assert (place, carefully, times) == ("the shelf on the left", True, [1, 2, 3])
    return RESULT


async def look_async(place: str, carefully: bool = False, times: list[int] | None = None) -> str:
    """Look at a place.

    Args:
        place: Where to look.
        carefully: Whether to take more time.
        times: When to look.
    """
    return look(place, carefully, times)


async def cpu_of(work: Callable[[], Awaitable[None]], *, repeat: int) -> float:
    """CPU seconds of the work, the median of some rounds."""
    spent: list[float] = []
    for _ in range(ROUNDS):
        before = time.process_time()
        for _ in range(repeat):
            await work()
        spent.append((time.process_time() - before) / repeat)
    return statistics.median(spent)


async def of_ten_more(cost: Callable[[int], Awaitable[float]]) -> float:
    """What one call costs where only whole runs can be had: eleven calls less one, by ten."""
    for calls in (1, 11):
        await cost(calls)
    return (await cost(11) - await cost(1)) / 10


def run(make: Callable[[], Run], *, distribution: str) -> None:
    async def main() -> None:
        found: dict[str, object] = {"version": importlib.metadata.version(distribution)}
        for name, one in make().items():
            await one()
            found[name] = await one()
        print(json.dumps(found), flush=True)

    asyncio.run(main())


def repeats() -> int:
    return int(sys.argv[1])
