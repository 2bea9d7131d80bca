"""What a sub-agent needs approved is asked at the root, with its path; if nobody answers in time, it is denied: nothing hangs."""

import asyncio
from collections.abc import Sequence

from models import says
from turnwise import Agent, Approval, Asking, Deadlines, Policy, tool
from turnwise.testing import call


@tool(effect="write")
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is deleted"


def present(asking: Asking) -> Sequence[Approval]:
    print("asked by", "/".join(asking.path), [ask.arguments for ask in asking.asks])
    return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]


async def absent(asking: Asking) -> Sequence[Approval]:
    await asyncio.Event().wait()  # nobody is there
    return ()


cleaner = Agent(
    says(call("delete", path="a.tmp"), "Done.", call("delete", path="b.tmp"), "I may not."),
    tools=[delete],
    policy=Policy(attended=True),
)
lead = Agent(
    says(call("clean_up", prompt="a"), "Clean.", call("clean_up", prompt="b"), "Not clean."),
    tools=[cleaner.as_tool("clean_up", "Deletes what is not needed.")],
    recovery={"deadlines": Deadlines(ask_s=0.1)},
)
print(lead.run_sync("Clean up.", safety={"approver": present}).text)
print(lead.run_sync("Clean up.", safety={"approver": absent}).text)
