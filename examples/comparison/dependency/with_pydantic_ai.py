"""`deps_type` of the agent, and `RunContext` in the tool."""

from dataclasses import dataclass

from pydantic_ai import Agent, RunContext


@dataclass
class Db:
    prices: dict[str, str]


agent = Agent("openai-responses:price", deps_type=Db)


@agent.tool
def price(context: RunContext[Db], name: str) -> str:
    """Tell the price of a fruit."""
    return context.deps.prices[name]


result = agent.run_sync("What is a pear?", deps=Db({"pear": "2.50 EUR"}))
print(result.output)
