"""`model=` and `instructions=` of the run."""

from turnwise import Agent

agent = Agent("openai:large", instructions="Be kind.")
result = agent.run_sync("Hello.", model="openai:small", instructions="Be brief.")
print(result.text)
