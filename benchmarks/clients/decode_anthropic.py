"""The anthropic package: its raw stream, or its `.stream()`, which also accumulates."""

import httpx2
from anthropic import AsyncAnthropic
from memory import Memory
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, events_of, measure, run

ASKED = {
    "max_tokens": 8_000,
    "messages": [{"role": "user", "content": PROMPT}],
    "tools": [{"name": TOOL, "description": "Write a file.", "input_schema": PARAMETERS}],
}


def length(event: object) -> int:
    if getattr(event, "type", "") != "content_block_delta":
        return 0
    delta = event.delta  # type: ignore[attr-defined]
    match delta.type:
        case "text_delta":
            return len(delta.text)
        case "input_json_delta":
            return len(delta.partial_json)
        case "thinking_delta":
            return len(delta.thinking)
        case _:
            return 0


async def raw(client: AsyncAnthropic, case: Case) -> int:
    stream = await client.messages.create(model=case["model"], stream=True, **ASKED)
    return sum([length(event) async for event in stream])


async def accumulated(client: AsyncAnthropic, case: Case) -> int:
    async with client.messages.stream(model=case["model"], **ASKED) as stream:
        return sum([length(event) async for event in stream])


async def main(given: Task) -> None:
    way = {"raw": raw, "stream": accumulated}[given["way"]]
    memory = Memory()
    fed = AsyncAnthropic(base_url=given["url"], max_retries=0, http_client=httpx2.AsyncClient(transport=memory))
    client = AsyncAnthropic(base_url=given["url"], max_retries=0)
    pieces: dict[str, list[bytes]] = {}

    async def read(case: Case) -> int:
        if not case["memory"]:
            return await way(client, case)
        if case["model"] not in pieces:
            pieces[case["model"]] = events_of(given, case=case)
        memory.pieces = pieces[case["model"]]
        return await way(fed, case)

    await measure(given, read=read, distribution="anthropic")


run(main)
