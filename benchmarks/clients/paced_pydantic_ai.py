"""pydantic-ai: `agent.run_stream` and its text deltas, without its grouping by time."""

from pacing import Take, Task, measure, run
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def main(given: Task) -> None:
    provider = OpenAIProvider(base_url=f"{given['url']}/v1", api_key="nothing")

    async def read(model: str, take: Take) -> None:
        agent = Agent(OpenAIChatModel(model, provider=provider))
        async with agent.run_stream("Go on.") as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                take(text)

    await measure(read, given=given, distribution="pydantic-ai-slim")


run(main)
