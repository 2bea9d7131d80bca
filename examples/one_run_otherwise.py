"""Give one run another model, other instructions or other limits; the agent stays as it is."""

from models import MODEL, says
from turnwise import Agent, MaxRequests, RetryPolicy, Settings

agent = Agent(
    MODEL,
    instructions="You are a careful teller.",
    limits=MaxRequests(10),
    endpoint={
        **says("120.50 EUR.", "A bit over a hundred.", "120.50 EUR."),
        "settings": Settings(max_output_tokens=500),
    },
    recovery={"retry": RetryPolicy(attempts=3)},
)
print(agent.run_sync("How much is on account 7?").text)

other = agent.run_sync(
    "How much is on account 7?",
    model="openai_responses:gpt-6.1-terra",
    instructions="Say it roughly.",
    limits=MaxRequests(2),
    endpoint={"settings": Settings(temperature=0.5)},  # max_output_tokens stays 500
)
print(other.text, other.ledger.to_rows()[0]["model"])

again = agent.run_sync("How much is on account 7?")
print(again.text, again.requests)
