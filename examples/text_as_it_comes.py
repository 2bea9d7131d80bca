"""Show the text while it comes, and what the agent does in between."""

import asyncio

from models import says
from turnwise import Agent, FrameSeen, TextDelta, ToolFinished, ToolStarted, tool
from turnwise.testing import call


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


async def main() -> None:
    agent = Agent(says("It was sunny.", call("weather", city="Oslo"), "It is sunny."), tools=[weather])
    async with agent.stream("How was the weather?") as run:
        async for text in run.text():
            print(text, end="")
    print("", run.result.complete)

    async with agent.stream("How is the weather in Oslo?") as run:
        async for event in run.events():
            match event:
                case FrameSeen(frame=TextDelta(text=text)):
                    print(text, end="")
                case ToolStarted(call=started):
                    print("calling", started.name)
                case ToolFinished():
                    print("called")
                case _:
                    pass
    print("", run.result.requests)


asyncio.run(main())
