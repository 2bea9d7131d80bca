"""`MaxSteps`: the last step must answer, and the result says that the answer is not complete."""

from turnwise import Agent, MaxSteps, tool


@tool
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


agent = Agent("openai:research", tools=[search], limits=MaxSteps(4))
result = agent.run_sync("Who wrote this?")
print(result.output)
