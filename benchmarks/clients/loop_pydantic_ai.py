"""pydantic-ai: `Agent.run` with a handler of the stream's events, which makes it stream."""

from collections.abc import AsyncIterable

from looping import INSTRUCTIONS, PROMPT, Archive, Case, Task, measure, run
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits


async def watch(_context: object, events: AsyncIterable[object]) -> None:
    async for _ in events:
        pass


async def main(given: Task) -> None:
    async def loop(case: Case, url: str, archive: Archive) -> str:
        model = OpenAIChatModel(case["model"], provider=OpenAIProvider(base_url=url + "/v1", api_key="nothing"))
        agent = Agent(model, instructions=INSTRUCTIONS)

        @agent.tool_plain
        async def look(key: str) -> str:
            """Look something up.

            Args:
                key: What to look up.
            """
            return await archive.look(key)

        result = await agent.run(PROMPT, event_stream_handler=watch, usage_limits=UsageLimits(request_limit=None))
        return result.output

    await measure(given, loop=loop, distribution="pydantic-ai-slim")


run(main)
