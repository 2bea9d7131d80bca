"""An agent of pydantic-ai with a tool that writes files here: `python PROGRAM BASE_URL MODEL PROMPT`."""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

base_url, model, prompt = sys.argv[1:]
agent = Agent(OpenAIChatModel(model, provider=OpenAIProvider(base_url=base_url, api_key="none")))


@agent.tool_plain
def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content, encoding="utf-8", newline="")
    return f"{path} is written"


async def main() -> None:
    async with agent.iter(prompt) as run:
        async for node in run:
            if Agent.is_model_request_node(node):  # streamed, as a program that shows the answer does
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    assert run.result is not None
    sys.stdout.write(f"{run.result.output}\n")


asyncio.run(main())
