"""`model=` of the run, and `agent.override(instructions=...)`, because `instructions=` of the run only adds to the agent's."""

from pydantic_ai import Agent

agent = Agent("openai-responses:large", instructions="Be kind.")
with agent.override(instructions="Be brief."):
    result = agent.run_sync("Hello.", model="openai-responses:small")
print(result.output)
