"""The cut call never runs. The model continues it, or is asked for smaller pieces."""

import os

from turnwise import Agent, Settings, tool


@tool(effect="write")
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    print(f"wrote {len(content)} characters")
    return "written"


agent = Agent(
    "openai_responses:cut-call",
    tools=[write],
    endpoint={"settings": Settings(max_output_tokens=2_000), "base_url": os.environ["OPENAI_BASE_URL"]},
)
result = agent.run_sync("Write 200 lines into big.txt.")
print(result.output)
