"""Let an agent hand the conversation over to another, which answers the user itself from then on."""

from dataclasses import dataclass

from models import says
from turnwise import Agent, Budget, MaxRequests, Message, ToolSpec, tool
from turnwise.testing import call


@tool(effect="write")
def refund(order: int) -> str:
    """Give the money of an order back."""
    return f"order {order} is refunded"


def desk(name: str, duty: str) -> ToolSpec:
    """A tool that the program runs: a call of it ends the run, and says which agent goes on."""
    return ToolSpec(name=f"to_{name}", description=f"Hand the user over to the agent that {duty}.")


budget = Budget(MaxRequests(20))  # of all agents, so that they do not send the user round and round
agents = {
    "front": Agent(
        says(call("to_refunds")),
        tools=[desk("refunds", "gives money back")],
        instructions="You find out what the user wants, and hand over.",
    ),
    "refunds": Agent(
        says(call("refund", order=7), "Order 7 is refunded.", "On Monday."),
        tools=[refund, desk("front", "knows all others")],
        instructions="You give money back.",
    ),
}


@dataclass
class Chat:
    agent: str = "front"
    history: tuple[Message, ...] = ()

    def answer(self, prompt: str) -> str:
        result = agents[self.agent].run_sync(prompt, history=self.history, limits=budget)
        while result.pending:  # an agent hands over: the next one goes on with the same history
            self.agent = result.pending[0].name.removeprefix("to_")
            told = {call.id: f"The agent for {self.agent} goes on." for call in result.pending}
            result = agents[self.agent].run_sync(results=told, history=result.history, limits=budget)
        self.history = result.history
        return f"{self.agent}: {result.text}"


chat = Chat()
print(chat.answer("I want my money for order 7 back."))
print(chat.answer("When will it be there?"))
print("requests:", budget.spent.requests)
