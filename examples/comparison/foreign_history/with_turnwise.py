"""`messages_from(...)`. Its `losses` list everything that it could not convert."""

import json
import os
from pathlib import Path

from turnwise import Agent, messages_from

chat = json.loads((Path(__file__).parents[1] / "chat.json").read_text())
history = messages_from(chat)
agent = Agent(
    "openai_responses:plain-answer",
    instructions=history.instructions,
    endpoint={"base_url": os.environ["OPENAI_BASE_URL"]},
)
result = agent.run_sync("Do I need an umbrella?", history=history.messages)
print(result.output)
