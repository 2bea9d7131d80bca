"""`output_type`: a tool that takes the output. `UnexpectedModelBehavior` is raised if no answer fits."""

from pydantic import BaseModel
from pydantic_ai import Agent


class Fruit(BaseModel):
    name: str
    count: int


agent = Agent("openai-responses:basket-tool", output_type=Fruit)
result = agent.run_sync("Which fruit is in the basket?")
print(result.output.count)
