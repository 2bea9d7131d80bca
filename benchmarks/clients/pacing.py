"""What every client of the paced streams does: open so many at once, note when each delta came, print figures as JSON.

Standard library only: this runs in the environments of the peers, too.
"""

import asyncio
import importlib.metadata
import json
import os
import resource
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypedDict

STAMP = 40  # characters of a delta: when it was due, when it was sent
WARM_NS = 500_000_000  # of each run, not counted: connections and buffers are new
WARM_UP = "paced-2-0.5"
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") / 1024


class Task(TypedDict):
    url: str
    core: int
    streams: int
    seconds: float
    loop: str  # asyncio or uvloop


Take = Callable[[str], None]
Read = Callable[[str, Take], Awaitable[None]]
"""Read the stream of a model to its end, handing on the text of each delta as soon as it is there."""


class Arrivals:
    """When deltas were due, sent and here."""

    def __init__(self) -> None:
        self.due, self.sent, self.here = array("q"), array("q"), array("q")

    def take(self, text: str) -> None:
        now = time.monotonic_ns()
        for at in range(0, len(text), STAMP):
            self.due.append(int(text[at : at + 19]))
            self.sent.append(int(text[at + 20 : at + 39]))
            self.here.append(now)


async def measure(read: Read, *, given: Task, distribution: str) -> None:
    warm_up = Arrivals()
    await asyncio.gather(*[read(WARM_UP, warm_up.take) for _ in range(2)])
    before_kib = resident_kib()
    streams, seconds = given["streams"], given["seconds"]
    arrivals = Arrivals()
    sampling = asyncio.create_task(sample(arrivals, seconds=seconds - 2 * WARM_NS / 1e9))
    await asyncio.gather(*[read(f"paced-{streams}-{seconds}", arrivals.take) for _ in range(streams)])
    cpu_s, wall_s, chunks, kib = await sampling
    expected = streams * round(seconds * 50)
    if len(arrivals.due) != expected:
        raise SystemExit(f"{len(arrivals.due)} deltas of {expected} came")
    begin = min(arrivals.due) + WARM_NS
    late = sorted([here - due for due, here in zip(arrivals.due, arrivals.here, strict=True) if due >= begin])
    lag = sorted([sent - due for due, sent in zip(arrivals.due, arrivals.sent, strict=True) if due >= begin])
    figures = {
        "version": importlib.metadata.version(distribution),
        "p50_ms": at_share(late, 0.50) / 1e6,
        "p99_ms": at_share(late, 0.99) / 1e6,
        "provider_p99_ms": at_share(lag, 0.99) / 1e6,
        "cpu_percent": 100 * cpu_s / wall_s,
        "cpu_us": 1e6 * cpu_s / chunks,
        "kib": (kib - before_kib) / streams,
    }
    print(json.dumps(figures), flush=True)


async def sample(arrivals: Arrivals, *, seconds: float) -> tuple[float, float, int, float]:
    """CPU and wall seconds, deltas seen, and the memory in between, while all streams flow."""
    while not arrivals.here:  # noqa: ASYNC110 (an event would be one more thing to do for each chunk)
        await asyncio.sleep(0.05)
    await asyncio.sleep(WARM_NS / 1e9)
    cpu, wall, seen = time.process_time(), time.monotonic(), len(arrivals.here)
    await asyncio.sleep(seconds / 2)
    kib = resident_kib()
    await asyncio.sleep(seconds / 2)
    return time.process_time() - cpu, time.monotonic() - wall, len(arrivals.here) - seen, kib


def at_share(values: list[int], share: float) -> int:
    return values[min(len(values) - 1, int(len(values) * share))]


def resident_kib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB


def run(main: Callable[[Task], Awaitable[None]]) -> None:
    """Run `main` on a core of its own, in the loop that is wanted."""
    given: Task = json.loads(sys.argv[1])
    os.sched_setaffinity(0, {given["core"]})
    if os.environ.get("TURNWISE_PACED_REALTIME"):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    factory = asyncio.new_event_loop
    if given["loop"] == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main(given))  # type: ignore[arg-type]
