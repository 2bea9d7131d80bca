"""`messages_from(...)`. Its `losses` list everything that it could not convert."""

import json
from pathlib import Path

from turnwise import Agent, messages_from

chat = json.loads((Path(__file__).parents[1] / "chat.json").read_text())
history = messages_from(chat)
agent = Agent("openai:plain-answer", instructions=history.instructions)
result = agent.run_sync("Do I need an umbrella?", history=history.messages)
print(result.output)
