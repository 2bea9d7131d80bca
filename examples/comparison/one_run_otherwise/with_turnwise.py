"""`model=` and `instructions=` of the run."""

import os

from turnwise import Agent, Model

agent = Agent(Model("openai_responses:large", base_url=os.environ["OPENAI_BASE_URL"]), instructions="Be kind.")
result = agent.run_sync("Hello.", model="openai_responses:small", instructions="Be brief.")
print(result.text)
