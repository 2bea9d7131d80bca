"""A policy asks; `verdict="later"` ends the run as `waiting`. Pass `approvals=` to the next run to continue."""

import os
from collections.abc import Sequence

from turnwise import Agent, Approval, Asking, Model, Policy, tool


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is out"


def later(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


agent = Agent(
    Model("openai_responses:publisher", base_url=os.environ["OPENAI_BASE_URL"]),
    tools=[publish],
    policy=Policy(attended=True),
    safety={"approver": later},
)
first = agent.run_sync("Publish the news.")
answers = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in first.asks]
second = agent.run_sync(approvals=answers, history=first.history)
print(second.output)
