"""`deps_type` of the agent, and `RunContext` in the tool."""

from dataclasses import dataclass

from turnwise import Agent, RunContext, tool


@dataclass
class Db:
    prices: dict[str, str]


@tool
def price(context: RunContext[Db], name: str) -> str:
    """Tell the price of a fruit."""
    return context.deps.prices[name]


agent = Agent("openai:price", deps_type=Db, tools=[price])
result = agent.run_sync("What is a pear?", deps=Db({"pear": "2.50 EUR"}))
print(result.output)
