"""`agent.stream(...)` and `run.text()`."""

import asyncio

from turnwise import Agent


async def main() -> None:
    agent = Agent(model="openai:plain-answer")
    async with agent.stream("Hello.") as run:
        async for text in run.text():
            print(text, end="|")


asyncio.run(main())
