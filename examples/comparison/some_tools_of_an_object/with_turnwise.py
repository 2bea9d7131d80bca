"""Bound methods are tools. List the methods that you want: `tools=[shop.price]`."""

import os
from dataclasses import dataclass

from turnwise import Agent, Model


@dataclass
class Shop:
    prices: dict[str, str]

    def price(self, name: str) -> str:
        """Tell the price of a fruit."""
        return self.prices[name]

    def burn_down(self) -> None:
        """Burn the shop down."""


shop = Shop({"pear": "2.50 EUR"})
agent = Agent(Model("openai_responses:price", base_url=os.environ["OPENAI_BASE_URL"]), tools=[shop.price])
result = agent.run_sync("What is a pear?")
print(result.output)
