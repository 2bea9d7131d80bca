"""`max_turns` raises `MaxTurnsExceeded`. An error handler may ask once more, without tools, and return this answer."""

from agents import Agent, RunErrorHandlerInput, Runner, TResponseInputItem, function_tool


@function_tool
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


async def answer_now(failed: RunErrorHandlerInput[None]) -> str:
    asked: list[TResponseInputItem] = [*failed.run_data.history, {"role": "user", "content": "Answer now."}]
    return (await Runner.run(agent.clone(tools=[]), asked)).final_output_as(str)


agent = Agent[None](name="searcher", model="research", tools=[search])
result = Runner.run_sync(agent, "Who wrote this?", max_turns=3, error_handlers={"max_turns": answer_now})
print(result.final_output_as(str))
