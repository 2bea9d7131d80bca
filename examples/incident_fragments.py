"""A call that comes in fragments, with its id in each of them, is one call with a name and whole arguments."""

import asyncio

from models import CHAT_MODEL, plays
from turnwise import Agent, ToolStarted, tool


@tool
def read(path: str) -> str:
    """Read a file."""
    return "status: draft"


async def main() -> None:
    for script in ("id-in-every-chunk", "no-index", "interleaved", "cumulative"):
        agent = Agent(plays(script, model=CHAT_MODEL), tools=[read])
        async with agent.stream("What do the notes say?") as run:
            async for event in run.events():
                if isinstance(event, ToolStarted):
                    print(script, "starts", event.call.name, event.call.arguments)
        print(script, "took", run.result.requests, "requests")


asyncio.run(main())
