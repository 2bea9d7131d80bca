"""`RunContextWrapper` in the tool, and `context=` in the run."""

from dataclasses import dataclass

from agents import Agent, RunContextWrapper, Runner, function_tool


@dataclass
class Db:
    prices: dict[str, str]


@function_tool
def price(context: RunContextWrapper[Db], name: str) -> str:
    """Tell the price of a fruit."""
    return context.context.prices[name]


agent = Agent[Db](name="fruit", model="price", tools=[price])
result = Runner.run_sync(agent, "What is a pear?", context=Db({"pear": "2.50 EUR"}))
print(result.final_output_as(str))
