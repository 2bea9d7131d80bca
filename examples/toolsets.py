"""Give an agent the tools of a folder and of an object; choose among them, rename them, and ask before some of them run."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from models import says
from turnwise import Agent, Approval, Asking, MethodsOf, Policy, Workspace, approved, filtered, prefixed
from turnwise.testing import call


class Shop:
    def find(self, word: str) -> list[str]:
        """Find goods by a part of their name."""
        return [name for name in ("pear", "apple") if word in name]

    def sell(self, name: str) -> str:
        """Sell one of them."""
        print("selling", name)
        return f"sold one {name}"


def person(asking: Asking) -> Sequence[Approval]:
    print("asked:", [(ask.call.name, ask.arguments) for ask in asking.asks])
    return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]


folder = Path(tempfile.mkdtemp())
(folder / "stock.txt").write_text("pears: 30\n")
calls = [call("read", path="stock.txt"), call("shop_find", word="ea"), call("shop_sell", name="pear")]
agent = Agent(
    says(calls, "Sold."),
    tools=[filtered(Workspace(folder), "read", "list"), approved(prefixed(MethodsOf(Shop()), "shop_"), "shop_sell")],
    policy=Policy(attended=True),
    safety={"approver": person},
)
print(agent.run_sync("Sell a pear.").text)
