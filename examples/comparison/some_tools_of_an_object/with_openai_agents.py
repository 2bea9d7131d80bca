"""`function_tool` of a bound method. List the methods that you want, or set `is_enabled` for each."""

from dataclasses import dataclass

from agents import Agent, Runner, function_tool


@dataclass
class Shop:
    prices: dict[str, str]

    def price(self, name: str) -> str:
        """Tell the price of a fruit."""
        return self.prices[name]

    def burn_down(self) -> None:
        """Burn the shop down."""


shop = Shop({"pear": "2.50 EUR"})
tools = [function_tool(shop.price), function_tool(shop.burn_down, is_enabled=False)]
agent = Agent(name="shop", model="price", tools=[*tools])
result = Runner.run_sync(agent, "What is a pear?")
print(result.final_output_as(str))
