"""The openai SDK: `chat.completions.create(stream=True)`."""

from openai import AsyncOpenAI
from pacing import Take, Task, measure, run


async def main(given: Task) -> None:
    async with AsyncOpenAI(base_url=f"{given['url']}/v1", api_key="nothing", max_retries=0) as client:

        async def read(model: str, take: Take) -> None:
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Go on."}], stream=True
            )
            async for chunk in stream:
                if text := chunk.choices[0].delta.content:
                    take(text)

        await measure(read, given=given, distribution="openai")


run(main)
