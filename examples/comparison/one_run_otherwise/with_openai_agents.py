"""`agent.clone(...)` makes another agent, because `RunConfig` can change only the model."""

from agents import Agent, Runner

agent = Agent(name="talker", model="large", instructions="Be kind.")
result = Runner.run_sync(agent.clone(model="small", instructions="Be brief."), "Hello.")
print(result.final_output_as(str))
