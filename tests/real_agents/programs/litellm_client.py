"""litellm with a tool, for `asked.py`."""

import json

import litellm

PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": PLACE}}]
WAYS = {"chat": ("openai", "/v1"), "messages": ("anthropic", ""), "gemini": ("gemini", "/v1beta")}


def ask(api, url, model, streamed, prompt):
    """The text of the answer after the results."""
    family, path = WAYS[api]
    asked = {"model": f"{family}/{model}", "api_base": url + path, "api_key": "none", "tools": TOOLS, "num_retries": 0}
    messages = [{"role": "user", "content": prompt}]
    while True:
        answer = litellm.completion(**asked, messages=messages, stream=streamed)
        message = (litellm.stream_chunk_builder(list(answer)) if streamed else answer).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            said = f"quiet at the {json.loads(call.function.arguments)['place']}"
            messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": said})
