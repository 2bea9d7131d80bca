"""The cut call never runs. The response raises `ModelBehaviorError`."""

from agents import Agent, ModelSettings, Runner, function_tool


@function_tool
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    print(f"wrote {len(content)} characters")
    return "written"


agent = Agent(name="writer", model="cut-call", tools=[write], model_settings=ModelSettings(max_tokens=2_000))
result = Runner.run_sync(agent, "Write 200 lines into big.txt.")
print(result.final_output_as(str))
