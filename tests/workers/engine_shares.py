"""How Temporal shares out its workers' time: a tenant behind the long queue of another one, and a number of turns a second over
several worker processes."""

import asyncio
import bisect
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from temporalio.client import Client

from turnwise import Journal
from turnwise.testing import engine_conformance as kit
from turnwise.workers.temporal import session_worker, turnwise_activities
from turnwise.workers.temporal_sessions import EngineTurn, TemporalTurns
from workers.engines import TemporalWorkers

FAIR = ("matching.enableFairness=true",)
AT_ONCE = 20
MANY, FEW = 1000, 10
STARTED = "activity_task_started_event_attributes"
ONE_PARTITION = ("matching.numTaskqueueReadPartitions=1", "matching.numTaskqueueWritePartitions=1")


class Shares:
    """A task queue with turns of two tenants, `a` and `b`, and a worker in this process. Its sessions begin with `mark`, a
    letter, and the tenant's."""

    def __init__(self, client: Client, *, folder: Path, journal: Journal, mark: str) -> None:
        self._client, self._folder, self._journal, self._mark = client, folder, journal, mark
        self._task_queue = f"shares-{mark}"
        self._turns = TemporalTurns(client, journal=journal, task_queue=self._task_queue)

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncGenerator[None]:
        agents = {"kit": kit.agent(self._folder, journal=self._journal)}
        async with (
            turnwise_activities(agents, journal=self._journal) as activities,
            session_worker(
                self._client,
                activities=activities,
                task_queue=self._task_queue,
                concurrency=4,
            ),
        ):
            yield

    async def submit(self, tenant: str, turns: int) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with room:
                name = f"{self._mark}{tenant}{number}"
                turn = EngineTurn("kit", "key")
                await self._turns.submit(name, turn, f"note:{name}-did", fairness_key=f"tenant-{tenant}")

        await asyncio.gather(*[one(number) for number in range(turns)])

    def done(self) -> list[str]:
        """The tenants whose turns had their effect, in order."""
        path = self._folder / "effects"
        lines = path.read_text().split() if path.exists() else []
        return [line[1] for line in lines if line[0] == self._mark]

    async def until(self, count: int) -> None:
        await kit.until(lambda: len(self.done()) >= count)


async def share(shares: Shares, *, many: int = MANY) -> int:
    """How many turns of tenant `a`, which has `many` in the queue, were done before the first one of tenant `b`."""
    await shares.submit("a", many)
    await shares.submit("b", FEW)
    async with shares.worker():
        await shares.until(many + FEW)
    return shares.done().index("b")


async def rate(
    workers: TemporalWorkers, *, mark: str, per_second: float, turns: int, processes: int
) -> tuple[float, int]:
    """How many turns a second began, where the engine lets `per_second` begin over all processes, and how many within the busiest
    second. The times are those of the engine."""
    sessions = [f"{mark}r{number}" for number in range(turns)]
    for session in sessions:
        await workers.submit(session, "key", f"note:{session}-did")
    for _ in range(processes):
        await asyncio.to_thread(workers.start_worker, "--max-turns-per-second", str(per_second), real=True)
    await kit.until(lambda: all(kit.stops(workers, session) for session in sessions))
    client = await Client.connect(workers.address)
    histories = [await client.get_workflow_handle(session).fetch_history() for session in sessions]
    begun = [one for history in histories for one in history.events if one.HasField(STARTED)]
    times = sorted([one.event_time.ToNanoseconds() / 1e9 for one in begun])
    most = max(bisect.bisect_left(times, at + 1) - place for place, at in enumerate(times))
    return (turns - 1) / (times[-1] - times[0]), most
