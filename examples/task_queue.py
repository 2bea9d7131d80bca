"""Run turns from any task queue: a job is a session and a key, and a job that runs twice is still one turn."""

import asyncio

from models import says
from turnwise import Agent, Journal, tool
from turnwise.testing import call


@tool(effect="write")
def refund(order: int) -> str:
    """Give the money of an order back."""
    print("refunding order", order)
    return "done"


async def worker(jobs: "asyncio.Queue[tuple[str, str]]", agent: Agent) -> None:
    """Your queue's worker: Celery, RQ, arq, SQS. It needs nothing but the two ids."""
    while not jobs.empty():
        session, key = jobs.get_nowait()
        result = await agent.run(session=session, key=key)
        print(session, key, result.text)


async def main() -> None:
    with Journal(None) as journal:  # a path or a database, so that all workers reach it
        agent = Agent(
            says(call("refund", order=7), "Order 7 is refunded."),
            tools=[refund],
            journal=journal,
        )
        jobs: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        for _ in range(2):  # the client sent it twice, or the queue delivers at least once
            is_new = journal.accept("customer-1", "message-1", "Refund order 7.")
            print("accepted" if is_new else "known already")
            jobs.put_nowait(("customer-1", "message-1"))
        await asyncio.gather(worker(jobs, agent), worker(jobs, agent))


asyncio.run(main())
