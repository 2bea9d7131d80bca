"""The cut call never runs. The model continues it, or is asked for smaller pieces."""

from turnwise import Agent, Model, Settings, tool


@tool(effect="write")
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    print(f"wrote {len(content)} characters")
    return "written"


agent = Agent(Model("openai:cut-call", settings=Settings(max_output_tokens=2_000)), tools=[write])
result = agent.run_sync("Write 200 lines into big.txt.")
print(result.output)
