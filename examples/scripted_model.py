"""Test an agent without a provider: a script says what the model says, and keeps what it was asked."""

from turnwise import Agent, ToolFault, tool
from turnwise.testing import ScriptedModel, call


@tool
def balance(account: int) -> str:
    """Tell the balance of an account."""
    if account != 7:
        raise ToolFault(f"there is no account {account}; yours is 7")
    return "120.50 EUR"


def test_a_wrong_account_is_told_to_the_model() -> None:
    model = ScriptedModel([call("balance", account=8), call("balance", account="seven"), "I could not find it."])
    agent = Agent(model, tools=[balance], instructions="You are a careful teller.")
    result = agent.run_sync("How much is on my account?")
    assert result.text == "I could not find it."
    assert len(model.asked) == result.requests == 3
    assert "there is no account 8; yours is 7" in str(model.asked[1].messages[-1])
    assert "account" in str(model.asked[2].messages[-1])  # what does not fit the type hints is told, too


test_a_wrong_account_is_told_to_the_model()
assert balance(7) == "120.50 EUR"  # a tool is still a function
print("passed")
