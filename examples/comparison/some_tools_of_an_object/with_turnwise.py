"""Bound methods are tools. List the methods that you want: `tools=[shop.price]`."""

from dataclasses import dataclass

from turnwise import Agent


@dataclass
class Shop:
    prices: dict[str, str]

    def price(self, name: str) -> str:
        """Tell the price of a fruit."""
        return self.prices[name]

    def burn_down(self) -> None:
        """Burn the shop down."""


shop = Shop({"pear": "2.50 EUR"})
agent = Agent("openai:price", tools=[shop.price])
result = agent.run_sync("What is a pear?")
print(result.output)
