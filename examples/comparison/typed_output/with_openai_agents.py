"""`output_type`: the provider's own JSON output. `final_output_as` tells the type checker the type."""

from agents import Agent, Runner
from pydantic import BaseModel


class Fruit(BaseModel):
    name: str
    count: int


agent = Agent(name="fruit", model="basket", output_type=Fruit)
result = Runner.run_sync(agent, "Which fruit is in the basket?")
print(result.final_output_as(Fruit).count)
