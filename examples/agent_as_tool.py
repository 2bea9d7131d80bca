"""Give an agent another agent as a tool; its result has a type, and both spend from one limit."""

from pydantic import BaseModel

from models import says
from turnwise import Agent, MaxRequests
from turnwise.testing import call


class Chapter(BaseModel):
    title: str
    pages: int


reader = Agent(
    says('{"title": "Bees", "pages": 12}', '{"title": "Wasps", "pages": 9}'),
    instructions="You read one chapter and tell what is in it.",
    output_type=Chapter,
)
lead = Agent(
    says(
        [call("read_chapter", prompt="Chapter 1"), call("read_chapter", prompt="Chapter 2")],
        "Bees and Wasps: 21 pages.",
    ),
    tools=[reader.as_tool("read_chapter", "Reads one chapter and tells its title and its pages.")],
    limits=MaxRequests(10),
)
result = lead.run_sync("What is the book about?")
print(result.text)
print("its own requests:", result.own.requests, "its agents':", [child.requests for child in result.children])
for row in result.ledger.to_rows():
    print(row["number"], row["path"], row["input_tokens"])
