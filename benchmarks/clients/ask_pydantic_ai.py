"""pydantic-ai: `Agent.run` with a `message_history`, streamed to a handler."""

from collections.abc import AsyncIterable, Awaitable, Callable

from asking import FIRST, INSTRUCTIONS, PROMPT, RESULT, SUMMARY, TOOL, Case, Task, measure, run, steps_of
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model


def history_of(case: Case) -> list[ModelMessage]:
    found: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(FIRST)])]
    for id, arguments in steps_of(case):
        found.append(ModelResponse(parts=[ToolCallPart(tool_name=TOOL, args=arguments, tool_call_id=id)]))
        found.append(ModelRequest(parts=[ToolReturnPart(tool_name=TOOL, content=RESULT, tool_call_id=id)]))
    return [*found, ModelResponse(parts=[TextPart(SUMMARY)])]


def model_of(given: Task, name: str) -> Model:
    if given["family"] == "anthropic_messages":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(name, provider=AnthropicProvider(base_url=given["url"], api_key="nothing"))
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=given["url"] + "/v1", api_key="nothing"))


async def watch(_context: object, events: AsyncIterable[object]) -> None:
    async for _ in events:
        pass


async def main(given: Task) -> None:
    agent = Agent(model_of(given, given["cases"][0]["model"]), instructions=INSTRUCTIONS)

    @agent.tool_plain
    async def look(key: str) -> str:
        """Look something up.

        Args:
            key: What to look up.
        """
        return key

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        history = history_of(case)

        async def ask() -> str:
            return (await agent.run(PROMPT, message_history=history, event_stream_handler=watch)).output

        return ask

    await measure(given, prepare=prepare, distribution="pydantic-ai-slim")


run(main)
