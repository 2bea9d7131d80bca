"""No: it accepts the texts of Chat Completions unchanged. The program translates calls and results by hand."""

import json
from pathlib import Path

from agents import Agent, Runner, TResponseInputItem

items: list[TResponseInputItem] = []
for message in json.loads((Path(__file__).parents[1] / "chat.json").read_text()):
    match message:
        case {"role": "tool", "tool_call_id": id, "content": text}:
            items.append({"type": "function_call_output", "call_id": id, "output": text})
        case {"role": "assistant", "tool_calls": calls}:
            for call in calls:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                items.append({"type": "function_call", "call_id": call["id"], "name": name, "arguments": arguments})
        case _:
            items.append(message)
agent = Agent(name="weather", model="plain-answer")
result = Runner.run_sync(agent, [*items, {"role": "user", "content": "Do I need an umbrella?"}])
print(result.final_output_as(str))
