"""Give tools what they need beside their arguments: a database handle, a user's id. The model sees none of it."""

from dataclasses import dataclass
from typing import assert_type

from models import says
from turnwise import Agent, RunContext, tool
from turnwise.testing import call


@dataclass
class Bank:
    user: str
    balances: dict[str, str]


@tool
def balance(context: RunContext[Bank]) -> str:
    """Tell the balance of the user's account."""
    assert_type(context.deps, Bank)
    return context.deps.balances[context.deps.user]


def greeting(context: RunContext[Bank]) -> str:
    return f"You speak with {context.deps.user}."


agent = Agent(
    says(call("balance"), "It is 120.50 EUR.", call("balance"), "It is 7 EUR."),
    deps_type=Bank,
    tools=[balance],
    instructions=["You are a careful teller.", greeting],
)
for user in ("Ada", "Bob"):
    bank = Bank(user, {"Ada": "120.50 EUR", "Bob": "7 EUR"})
    print(user, agent.run_sync("How much is on my account?", deps=bank).text)
print(balance(RunContext(Bank("Eve", {"Eve": "0 EUR"}))))  # in a test, without a run
