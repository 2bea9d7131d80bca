"""A policy leaves the call for later, and the run ends as `waiting`. Pass `approvals=` to the next run to continue."""

from turnwise import Agent, Approval, Policy, tool


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is out"


agent = Agent("openai:publisher", tools=[publish], policy=Policy(unattended="later"))
first = agent.run_sync("Publish the news.")
answers = [Approval(call_id=ask.call.id, verdict="allow") for ask in first.asks]
second = agent.run_sync(approvals=answers, history=first.history)
print(second.output)
