"""A run that reaches its step limit still ends with an answer, and says that it is not complete."""

from models import plays
from turnwise import Agent, MaxSteps, StopReason, tool


@tool
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


agent = Agent(plays("research"), tools=[search], limits=MaxSteps(8))
result = agent.run_sync("Find out who wrote this.")
assert result.text and result.stop_reason is StopReason.STEP_LIMIT
print(result.text)
print(result.steps, result.requests, result.complete)
print(result.why_incomplete)
