"""`model=` of the run, and `agent.override(instructions=...)`: `instructions=` of the run are added to the agent's."""

from pydantic_ai import Agent

agent = Agent("openai-responses:large", instructions="Be kind.")
with agent.override(instructions="Be brief."):
    result = agent.run_sync("Hello.", model="openai-responses:small")
print(result.output)
