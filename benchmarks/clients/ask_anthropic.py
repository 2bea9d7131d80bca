"""The anthropic package: `create` with the history as dicts, streamed."""

import json
from collections.abc import Awaitable, Callable

from anthropic import AsyncAnthropic
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


def history_of(case: Case) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"role": "user", "content": FIRST}]
    for id, arguments in steps_of(case):
        call = {"type": "tool_use", "id": id, "name": TOOL, "input": json.loads(arguments)}
        found.append({"role": "assistant", "content": [call]})
        found.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": RESULT}]})
    return [*found, {"role": "assistant", "content": SUMMARY}, {"role": "user", "content": PROMPT}]


async def main(given: Task) -> None:
    client = AsyncAnthropic(base_url=given["url"], max_retries=0)

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        messages = history_of(case)

        async def ask() -> str:
            stream = await client.messages.create(
                model=case["model"],
                max_tokens=8_000,
                system=INSTRUCTIONS,
                messages=messages,
                tools=[{"name": TOOL, "description": DESCRIPTION, "input_schema": PARAMETERS}],
                stream=True,
            )
            return "".join(
                [getattr(event.delta, "text", "") async for event in stream if event.type == "content_block_delta"]
            )

        return ask

    await measure(given, prepare=prepare, distribution="anthropic")


run(main)
