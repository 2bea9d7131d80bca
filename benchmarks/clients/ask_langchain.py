"""LangChain: the chat model's `astream` with the history as messages."""

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
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage

LOOK = {"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}


def history_of(case: Case) -> list[AnyMessage]:
    found: list[AnyMessage] = [SystemMessage(INSTRUCTIONS), HumanMessage(FIRST)]
    for id, arguments in steps_of(case):
        call = {"name": TOOL, "args": json.loads(arguments), "id": id, "type": "tool_call"}
        found.append(AIMessage("", tool_calls=[call]))
        found.append(ToolMessage(RESULT, tool_call_id=id))
    return [*found, AIMessage(SUMMARY), HumanMessage(PROMPT)]


async def main(given: Task) -> None:
    name = given["cases"][0]["model"]
    if given["family"] == "anthropic_messages":
        from langchain_anthropic import ChatAnthropic

        model = ChatAnthropic(model=name, base_url=given["url"], max_retries=0, max_tokens=8_000).bind_tools([LOOK])
    else:
        from langchain_openai import ChatOpenAI

        model = ChatOpenAI(model=name, base_url=given["url"] + "/v1", max_retries=0).bind_tools([LOOK])

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        messages = history_of(case)

        async def ask() -> str:
            return "".join([text_of(chunk.content) async for chunk in model.astream(messages)])

        return ask

    await measure(given, prepare=prepare, distribution="langchain")


def text_of(content: object) -> str:
    return content if isinstance(content, str) else "".join([block.get("text", "") for block in content])  # type: ignore[attr-defined]


run(main)
