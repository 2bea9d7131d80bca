"""Bound methods are tools. Put them into a `FunctionToolset`, which can be `filtered`."""

from dataclasses import dataclass

from pydantic_ai import Agent, FunctionToolset


@dataclass
class Shop:
    prices: dict[str, str]

    def price(self, name: str) -> str:
        """Tell the price of a fruit."""
        return self.prices[name]

    def burn_down(self) -> None:
        """Burn the shop down."""


shop = Shop({"pear": "2.50 EUR"})
tools = FunctionToolset([shop.price, shop.burn_down])
agent = Agent("openai-responses:price", toolsets=[tools.filtered(lambda _, tool: tool.name == "price")])
result = agent.run_sync("What is a pear?")
print(result.output)
