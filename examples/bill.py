"""See what a run cost: one row a request, for a data frame, a chart or your accounts."""

from models import says
from turnwise import Agent, tool
from turnwise.testing import call


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


agent = Agent(says(call("weather", city="Oslo"), "It is sunny."), tools=[weather])
result = agent.run_sync("How is the weather in Oslo?")
for row in result.ledger.to_rows():  # or: pandas.DataFrame(result.ledger.to_rows()); `result.plot()` draws them
    print(row["number"], row["purpose"], row["outcome"], row["input_tokens"], row["output_tokens"], row["cost_usd"])
print(result.usage.input_tokens, result.requests_by_purpose, "unknown" if result.cost_usd is None else result.cost_usd)
