"""No: the requests that are left are counted by hand; the last one that a limit allows is the answer."""

import os

from turnwise import Agent, MaxRequests, tool


@tool
def price(name: str) -> str:
    """Tell the price of a fruit."""
    return "2.50 EUR"


agent = Agent("openai_responses:price", tools=[price], endpoint={"base_url": os.environ["OPENAI_BASE_URL"]})
left = 5
for question in ("What is a pear?", "And now?", "And now?"):
    result = agent.run_sync(question, limits=MaxRequests(left))
    left -= result.requests
    print(result.output, left)
