"""`messages_from(...)`. Its `losses` list everything that it could not convert."""

import json
import os
from pathlib import Path

from turnwise import Agent, Model, messages_from

chat = json.loads((Path(__file__).parents[1] / "chat.json").read_text())
history = messages_from(chat)
agent = Agent(
    Model("openai_responses:plain-answer", base_url=os.environ["OPENAI_BASE_URL"]),
    instructions=history.instructions,
)
result = agent.run_sync("Do I need an umbrella?", history=history.messages)
print(result.output)
