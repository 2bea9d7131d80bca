"""Take over a chat that was kept for OpenAI's SDK, go on with it, and write it for Anthropic's."""

from models import says
from turnwise import Agent, messages_from, messages_to

chat = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "What is the weather in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": "Sunny."},
]
history = messages_from(chat)
print(history.family, history.instructions, len(history.messages), "losses:", len(history.losses))

agent = Agent(says("No, you need none."), instructions=history.instructions)
result = agent.run_sync("Do I need an umbrella?", history=history.messages)
print(result.text)

written = messages_to(result.history, family="anthropic_messages", instructions=history.instructions)
print("system:", written.instructions)
for message in written.messages:
    print(message["role"], [block["type"] for block in message["content"]])
for loss in written.losses:
    print("lost:", loss.where, loss.what)
