"""The openai package: `create` with the history as dicts, streamed."""

from collections.abc import Awaitable, Callable

from asking import (
    DESCRIPTION,
    FIRST,
    INSTRUCTIONS,
    PARAMETERS,
    PROMPT,
    RESULT,
    SUMMARY,
    TOOL,
    Case,
    Task,
    measure,
    run,
    steps_of,
)
from openai import AsyncOpenAI

FUNCTION = {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}


def chat_history(case: Case) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": FIRST}]
    for id, arguments in steps_of(case):
        call = {"id": id, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": id, "content": RESULT})
    return [*found, {"role": "assistant", "content": SUMMARY}, {"role": "user", "content": PROMPT}]


def items(case: Case) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"role": "user", "content": FIRST}]
    for id, arguments in steps_of(case):
        found.append({"type": "function_call", "call_id": id, "name": TOOL, "arguments": arguments})
        found.append({"type": "function_call_output", "call_id": id, "output": RESULT})
    return [*found, {"role": "assistant", "content": SUMMARY}, {"role": "user", "content": PROMPT}]


async def main(given: Task) -> None:
    client = AsyncOpenAI(base_url=given["url"] + "/v1", max_retries=0)

    def chat(case: Case) -> Callable[[], Awaitable[str]]:
        messages = chat_history(case)

        async def ask() -> str:
            tools = [{"type": "function", "function": FUNCTION}]
            stream = await client.chat.completions.create(
                model=case["model"], messages=messages, tools=tools, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

        return ask

    def responses(case: Case) -> Callable[[], Awaitable[str]]:
        asked = items(case)

        async def ask() -> str:
            stream = await client.responses.create(
                model=case["model"],
                instructions=INSTRUCTIONS,
                input=asked,
                tools=[{"type": "function", "strict": False, **FUNCTION}],
                stream=True,
            )
            return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])

        return ask

    prepare = chat if given["family"] == "openai_chat" else responses
    await measure(given, prepare=prepare, distribution="openai")


run(main)
