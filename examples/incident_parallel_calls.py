"""Parallel calls of one streamed response run together, and one request carries all their results."""

import asyncio

from models import says
from turnwise import Agent, tool
from turnwise.testing import call

STOCK = {"apples": 12, "pears": 30}
both_run = asyncio.Barrier(2)


@tool
async def count(fruit: str) -> int:
    """Count the pieces of a fruit."""
    await both_run.wait()  # each waits until the other runs, too
    return STOCK[fruit]


def total(request: object) -> str:
    found = [number for number in STOCK.values() if f"{number}" in str(request)]
    return f"{sum(found)} pieces, from {len(found)} results."


agent = Agent(says([call("count", fruit="apples"), call("count", fruit="pears")], total), tools=[count])
result = asyncio.run(agent.run("How many apples and pears are there?"))
print(result.text)
print("requests:", result.requests, "steps:", result.steps)
for message in result.new_messages:
    print(message.role, [type(part).__name__ for part in message.parts])
