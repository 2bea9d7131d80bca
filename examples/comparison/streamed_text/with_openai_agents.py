"""`Runner.run_streamed(...)`; the program takes the API's own text events from `stream_events()`."""

import asyncio

from agents import Agent, Runner
from openai.types.responses import ResponseTextDeltaEvent


async def main() -> None:
    agent = Agent(name="talker", model="plain-answer")
    run = Runner.run_streamed(agent, "Hello.")
    async for event in run.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="|")


asyncio.run(main())
