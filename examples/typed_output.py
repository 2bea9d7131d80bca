"""Get the answer as a value of your own type, which type checkers know."""

from typing import assert_type

from pydantic import BaseModel

from models import says
from turnwise import Agent, OutputMismatch, RunResult


class Fruit(BaseModel):
    name: str
    count: int


agent = Agent(says('{"name": "pear", "count": 3}', "Many.", "Many.", "Many."), output_type=Fruit)
result = agent.run_sync("Which fruit is in the basket?")
assert_type(result, RunResult[Fruit])
assert_type(result.output.count, int)
print(result.output.name, result.output.count + 1)

number = agent.run_sync("How many are there?", output_type=int)  # another type for this run
assert_type(number, RunResult[int])
try:
    print(number.output)
except OutputMismatch as mismatch:
    print("no number:", mismatch.text, mismatch.stop_reason.value, mismatch.requests)

text = Agent(says("Pears.")).run_sync("What do you like?")
assert_type(text.output, str)
