"""`agent.run_stream(...)` and `stream_text(delta=True)`."""

import asyncio

from pydantic_ai import Agent


async def main() -> None:
    agent = Agent("openai-responses:plain-answer")
    async with agent.run_stream("Hello.") as run:
        async for text in run.stream_text(delta=True, debounce_by=None):
            print(text, end="|")


asyncio.run(main())
