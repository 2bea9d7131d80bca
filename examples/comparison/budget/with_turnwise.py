"""`Budget` limits all runs that get it, also at the same time. The last request that it allows is used for the answer."""

from turnwise import Agent, Budget, MaxRequests, tool


@tool
def price(name: str) -> str:
    """Tell the price of a fruit."""
    return "2.50 EUR"


budget = Budget(MaxRequests(5))
agent = Agent("openai:price", tools=[price], limits=budget)
for question in ("What is a pear?", "And now?", "And now?"):
    result = agent.run_sync(question)
    print(result.output, 5 - budget.spent.requests)
