"""turnwise: `Agent.run` with a history, which is checked for calls and results that do not pair before it is sent."""

import json
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

from turnwise import Agent, Message, Model, Text, ToolCall, ToolResult, ToolSpec
from turnwise.endpoints.aiohttp_transport import AiohttpTransport

LOOK = ToolSpec(name=TOOL, description=DESCRIPTION, parameters=json.dumps(PARAMETERS))


def history_of(case: Case) -> list[Message]:
    found = [Message("user", (Text(FIRST),))]
    for id, arguments in steps_of(case):
        found.append(Message("assistant", (ToolCall(id=id, name=TOOL, arguments=arguments),)))
        found.append(Message("tool", (ToolResult(call_id=id, name=TOOL, content=(Text(RESULT),)),)))
    found.append(Message("assistant", (Text(SUMMARY),)))
    return found


async def main(given: Task) -> None:
    root = given["url"]
    base_url = {"anthropic_messages": root, "gemini": f"{root}/v1beta"}.get(given["family"], f"{root}/v1")
    async with AiohttpTransport() as transport:

        def prepare(case: Case) -> Callable[[], Awaitable[str]]:
            history = history_of(case)
            agent = Agent(
                Model(f"{given['family']}:{case['model']}", base_url=base_url, api_key="nothing", transport=transport),
                tools=[LOOK],
                instructions=INSTRUCTIONS,
            )

            async def ask() -> str:
                result = await agent.run(PROMPT, history=history)
                assert result.complete and not result.repairs, (result.fault, result.repairs)
                return result.text

            return ask

        await measure(given, prepare=prepare, distribution="turnwise")


run(main)
