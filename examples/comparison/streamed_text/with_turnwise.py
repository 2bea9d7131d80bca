"""`agent.stream(...)` and `run.text()`."""

import asyncio
import os

from turnwise import Agent, Model


async def main() -> None:
    agent = Agent(Model("openai_responses:plain-answer", base_url=os.environ["OPENAI_BASE_URL"]))
    async with agent.stream("Hello.") as run:
        async for text in run.text():
            print(text, end="|")


asyncio.run(main())
