"""How Temporal shares out its workers' time: a tenant behind the long queue of another one, and a number of turns a second."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from temporalio.client import Client

from turnwise import Journal
from turnwise.testing import engine_conformance as kit
from turnwise.workers.temporal import session_worker, turnwise_activities
from turnwise.workers.temporal_sessions import EngineTurn, TemporalTurns

FAIR = ("matching.enableFairness=true",)
AT_ONCE = 20
MANY, FEW = 1000, 10


class Shares:
    """A task queue with turns of two tenants, `a` and `b`, and a worker in this process. Its sessions begin with `mark`, a
    letter, and the tenant's."""

    def __init__(self, client: Client, *, folder: Path, journal: Journal, mark: str) -> None:
        self._client, self._folder, self._journal, self._mark = client, folder, journal, mark
        self._task_queue = f"shares-{mark}"
        self._turns = TemporalTurns(client, journal=journal, task_queue=self._task_queue)

    @contextlib.asynccontextmanager
    async def worker(self, *, per_second: float | None = None) -> AsyncGenerator[None]:
        agents = {"kit": kit.agent(self._folder, journal=self._journal)}
        async with (
            turnwise_activities(agents, journal=self._journal) as activities,
            session_worker(
                self._client,
                activities=activities,
                task_queue=self._task_queue,
                concurrency=4,
                max_task_queue_activities_per_second=per_second,
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


async def rate(shares: Shares, *, per_second: float, turns: int) -> float:
    """How many turns a second began, where the engine lets `per_second` begin."""
    before = len(shares.done())
    await shares.submit("r", turns)
    async with shares.worker(per_second=per_second):
        await shares.until(before + 1)
        began = time.monotonic()
        await shares.until(before + turns)
    return (turns - 1) / (time.monotonic() - began)
