"""`output_type`: the provider's own JSON output, validated. `OutputMismatch` is raised if no answer fits."""

from pydantic import BaseModel

from turnwise import Agent


class Fruit(BaseModel):
    name: str
    count: int


agent = Agent("openai:basket", output_type=Fruit)
result = agent.run_sync("Which fruit is in the basket?")
print(result.output.count)
