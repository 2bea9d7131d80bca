"""No: it reads only the UI messages of AG-UI and Vercel AI. The program translates each message by hand."""

import json
from pathlib import Path

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

history: list[ModelMessage] = []
names: dict[str, str] = {}
for message in json.loads((Path(__file__).parents[1] / "chat.json").read_text()):
    match message:
        case {"role": "system", "content": text}:
            history.append(ModelRequest(parts=[SystemPromptPart(text)]))
        case {"role": "user", "content": text}:
            history.append(ModelRequest(parts=[UserPromptPart(text)]))
        case {"role": "tool", "tool_call_id": id, "content": text}:
            history.append(ModelRequest(parts=[ToolReturnPart(names[id], text, id)]))
        case {"role": "assistant", "tool_calls": calls}:
            names |= {call["id"]: call["function"]["name"] for call in calls}
            parts = [ToolCallPart(names[call["id"]], call["function"]["arguments"], call["id"]) for call in calls]
            history.append(ModelResponse(parts=parts))
        case _:
            history.append(ModelResponse(parts=[TextPart(message["content"])]))
agent = Agent("openai-responses:plain-answer")
result = agent.run_sync("Do I need an umbrella?", message_history=history)
print(result.output)
