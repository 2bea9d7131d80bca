"""openai-agents: `Runner.run_streamed` with the history as input items."""

from collections.abc import Awaitable, Callable

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool, set_tracing_disabled
from asking import FIRST, INSTRUCTIONS, PROMPT, RESULT, SUMMARY, TOOL, Case, Task, measure, run, steps_of
from openai import AsyncOpenAI


@function_tool
async def look(key: str) -> str:
    """Look something up.

    Args:
        key: What to look up.
    """
    return key


def items(case: Case) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"role": "user", "content": FIRST}]
    for id, arguments in steps_of(case):
        found.append({"type": "function_call", "call_id": id, "name": TOOL, "arguments": arguments})
        found.append({"type": "function_call_output", "call_id": id, "output": RESULT})
    return [*found, {"role": "assistant", "content": SUMMARY}, {"role": "user", "content": PROMPT}]


async def main(given: Task) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=given["url"] + "/v1", max_retries=0)
    model = OpenAIChatCompletionsModel(model=given["cases"][0]["model"], openai_client=client)
    agent = Agent(name="archivist", instructions=INSTRUCTIONS, model=model, tools=[look])

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        asked = items(case)

        async def ask() -> str:
            result = Runner.run_streamed(agent, asked, run_config=RunConfig(tracing_disabled=True))
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        return ask

    await measure(given, prepare=prepare, distribution="openai-agents")


run(main)
