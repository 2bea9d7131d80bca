"""The loop by hand on the openai package, as its guides show it."""

import asyncio
import json

from looping import DESCRIPTION, INSTRUCTIONS, PARAMETERS, PROMPT, TOOL, Archive, Case, Task, measure, run
from openai import AsyncOpenAI

FUNCTION = {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}


async def main(given: Task) -> None:
    async def loop(case: Case, url: str, archive: Archive) -> str:
        messages: list[dict[str, object]] = [
            {"role": "system", "content": INSTRUCTIONS},
            {"role": "user", "content": PROMPT},
        ]
        async with AsyncOpenAI(base_url=url + "/v1", max_retries=0) as client:
            while True:
                texts: list[str] = []
                calls: dict[int, dict[str, object]] = {}
                stream = await client.chat.completions.create(
                    model=case["model"],
                    messages=messages,
                    tools=[{"type": "function", "function": FUNCTION}],
                    stream=True,
                )
                async for chunk in stream:
                    if not chunk.choices:
                        continue
                    delta = chunk.choices[0].delta
                    texts.append(delta.content or "")
                    for piece in delta.tool_calls or ():
                        call = calls.setdefault(
                            piece.index, {"type": "function", "function": {"name": "", "arguments": ""}}
                        )
                        call["id"] = piece.id or call.get("id")
                        call["function"]["name"] += piece.function.name or ""  # type: ignore[index]
                        call["function"]["arguments"] += piece.function.arguments or ""  # type: ignore[index]
                if not calls:
                    return "".join(texts)
                messages.append(
                    {"role": "assistant", "content": "".join(texts) or None, "tool_calls": list(calls.values())}
                )
                found = await asyncio.gather(
                    *[archive.look(**json.loads(call["function"]["arguments"])) for call in calls.values()]  # type: ignore[index]
                )
                for call, one in zip(calls.values(), found, strict=True):
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": one})

    await measure(given, loop=loop, distribution="openai")


run(main)
