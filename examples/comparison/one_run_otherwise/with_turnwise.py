"""`model=` and `instructions=` of the run."""

import os

from turnwise import Agent

agent = Agent("openai_responses:large", instructions="Be kind.", endpoint={"base_url": os.environ["OPENAI_BASE_URL"]})
result = agent.run_sync("Hello.", model="openai_responses:small", instructions="Be brief.")
print(result.text)
