"""`needs_approval`; the run ends with `interruptions`. Pass the run's state to the next run to continue."""

from agents import Agent, Runner, function_tool


@function_tool(needs_approval=True)
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is out"


agent = Agent(name="publisher", model="publisher", tools=[publish])
first = Runner.run_sync(agent, "Publish the news.")
state = first.to_state()
for ask in first.interruptions:
    state.approve(ask)
second = Runner.run_sync(agent, state)
print(second.final_output_as(str))
