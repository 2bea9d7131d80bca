"""Make a method a tool of its object; while it runs it tells how it gets on, and asks a person."""

import asyncio
from collections.abc import Sequence

from models import says
from turnwise import Agent, Approval, Asking, PermissionRule, Policy, RunContext, ToolProgress, tool
from turnwise.testing import call


class Bin:
    def __init__(self, files: list[str]) -> None:
        self.files = files

    @tool(effect="write", timeout_s=60)
    async def empty(self, context: RunContext) -> str:
        """Delete everything in the bin."""
        context.report(f"counting {len(self.files)} files")
        await asyncio.sleep(0.5)  # it takes a while
        answer = await context.ask(f"Delete {len(self.files)} files?", options=["yes", "no"])
        if answer.text != "yes":
            return f"kept ({answer.verdict}, by {answer.by})"
        self.files.clear()
        return "deleted"


def person(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="allow", text="yes") for ask in asking.asks]


bin = Bin(["a.tmp", "b.tmp"])
agent = Agent(says(call("empty"), "I may not.", call("empty"), "It is empty."), tools=[bin.empty])
agent.run_sync("Empty the bin.", watch=lambda seen: isinstance(seen, ToolProgress) and print(seen.line))
print("nobody was there, left:", bin.files)
asks_itself = Policy(rules=(PermissionRule(verdict="allow", tool="empty"),), attended=True)
agent.run_sync("Empty the bin.", policy=asks_itself, safety={"approver": person})
print("left:", bin.files)
