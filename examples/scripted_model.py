"""Test a program that has an agent: `override` puts a script in place of its model, and the script keeps what it was asked."""

from turnwise import Agent, RunContext, ToolFault, tool
from turnwise.testing import ScriptedModel, call


class Bank(dict[int, str]):
    """What is on each account."""


@tool
def balance(context: RunContext[Bank], account: int) -> str:
    """Tell the balance of an account."""
    if account not in context.deps:
        raise ToolFault(f"there is no account {account}")
    return context.deps[account]


# The program. It needs no key to be imported: the key is looked for when a run begins.
teller = Agent("openai:gpt-6.1-sol", tools=[balance], deps_type=Bank, instructions="You are a careful teller.")


def reply(question: str) -> str:
    return teller.run_sync(question, deps=Bank({7: "120.50 EUR"})).text


# Its tests.
def test_a_wrong_account_is_told_to_the_model() -> None:
    model = ScriptedModel([call("balance", account=8), call("balance", account="seven"), "I could not find it."])
    with teller.override(model=model):
        assert reply("How much is on my account?") == "I could not find it."
    assert len(model.asked) == 3
    assert "there is no account 8" in str(model.asked[1].messages[-1])
    assert "account" in str(model.asked[2].messages[-1])  # what does not fit the type hints is told, too


def test_the_customers_own_accounts_are_found() -> None:
    with teller.override(model=ScriptedModel([call("balance", account=7), "You have 3 EUR."]), deps=Bank({7: "3 EUR"})):
        assert reply("How much is on my account?") == "You have 3 EUR."


def test_a_tool_is_still_a_function() -> None:
    assert balance(RunContext(Bank({7: "1 EUR"})), 7) == "1 EUR"


test_a_wrong_account_is_told_to_the_model()
test_the_customers_own_accounts_are_found()
test_a_tool_is_still_a_function()
print("passed")
