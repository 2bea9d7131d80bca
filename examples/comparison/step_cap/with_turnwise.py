"""`MaxSteps`: the last step must answer, and the result says that the answer is not complete."""

import os

from turnwise import Agent, MaxSteps, Model, tool


@tool
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


agent = Agent(
    Model("openai_responses:research", base_url=os.environ["OPENAI_BASE_URL"]),
    tools=[search],
    limits=MaxSteps(4),
)
result = agent.run_sync("Who wrote this?")
print(result.output)
