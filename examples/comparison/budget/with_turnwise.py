"""`Budget` bounds all runs that are given it, also at once; the last request that it allows is the answer."""

import os

from turnwise import Agent, Budget, MaxRequests, tool


@tool
def price(name: str) -> str:
    """Tell the price of a fruit."""
    return "2.50 EUR"


budget = Budget(MaxRequests(5))
agent = Agent(
    "openai_responses:price", tools=[price], limits=budget, endpoint={"base_url": os.environ["OPENAI_BASE_URL"]}
)
for question in ("What is a pear?", "And now?", "And now?"):
    result = agent.run_sync(question)
    print(result.output, 5 - budget.spent.requests)
