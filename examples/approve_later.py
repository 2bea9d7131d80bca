"""Leave a call for later, ask a person, and go on with the answer: minutes or days later, in another process too."""

from models import says
from turnwise import Agent, Approval, Policy, StopReason, tool
from turnwise.testing import call


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is published"


agent = Agent(
    says([call("publish", page="news"), call("publish", page="draft")], "The news are out, the draft is not."),
    tools=[publish],
    policy=Policy(unattended="later"),
)
first = agent.run_sync("Publish both.")
assert first.stop_reason is StopReason.WAITING
for ask in first.asks:
    print("may it?", ask.call.name, ask.arguments)

news, draft = first.asks
answers = [
    Approval(call_id=news.call.id, verdict="allow", digest=news.digest),
    Approval(call_id=draft.call.id, verdict="deny", text="no drafts"),
]
second = agent.run_sync(approvals=answers, history=first.history)
print(second.text, second.requests)
