"""Give one run another model, other instructions or other limits; the agent stays as it is."""

from models import says
from turnwise import Agent, MaxRequests, RetryPolicy, Settings

agent = Agent(
    says("120.50 EUR.", "A bit over a hundred.", "120.50 EUR.", settings=Settings(max_output_tokens=500)),
    instructions="You are a careful teller.",
    limits=MaxRequests(10),
    recovery={"retry": RetryPolicy(attempts=3)},
)
print(agent.run_sync("How much is on account 7?").text)

other = agent.run_sync(
    "How much is on account 7?",
    model="openai_responses:gpt-6.1-terra",
    instructions="Say it roughly.",
    limits=MaxRequests(2),
    settings=Settings(temperature=0.5),  # max_output_tokens stays 500
)
print(other.text, other.ledger.to_rows()[0]["model"])

again = agent.run_sync("How much is on account 7?")
print(again.text, again.requests)
