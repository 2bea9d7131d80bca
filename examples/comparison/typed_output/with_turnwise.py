"""`output_type`: the provider's own JSON output, validated. `OutputMismatch` is raised if no answer fits."""

import os

from pydantic import BaseModel

from turnwise import Agent, Model


class Fruit(BaseModel):
    name: str
    count: int


agent = Agent(Model("openai_responses:basket", base_url=os.environ["OPENAI_BASE_URL"]), output_type=Fruit)
result = agent.run_sync("Which fruit is in the basket?")
print(result.output.count)
