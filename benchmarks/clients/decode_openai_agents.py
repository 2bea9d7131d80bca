"""openai-agents: `Runner.run_streamed`, every event of it; the run stops at its first tool call, so one request is made."""

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from timing import INSTRUCTIONS, PARAMETERS, PROMPT, TOOL, Case, Task, measure, run

DELTAS = {
    "text": ("response.output_text.delta",),
    "tool arguments": ("response.function_call_arguments.delta",),
    "reasoning": ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
}


async def written(_context: object, _arguments: str) -> str:
    return "written"


async def main(given: Task) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=given["url"] + "/v1", max_retries=0)
    of = OpenAIChatCompletionsModel if given["family"] == "openai_chat" else OpenAIResponsesModel
    tool = FunctionTool(
        name=TOOL,
        description="Write a file.",
        params_json_schema=PARAMETERS,
        on_invoke_tool=written,
        strict_json_schema=False,
    )

    async def read(case: Case) -> int:
        agent = Agent(
            name="writer",
            instructions=INSTRUCTIONS,
            model=of(model=case["model"], openai_client=client),
            tools=[tool],
            tool_use_behavior="stop_on_first_tool",
        )
        wanted = DELTAS[case["kind"]]
        seen = 0
        result = Runner.run_streamed(agent, PROMPT, run_config=RunConfig(tracing_disabled=True))
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type in wanted:
                seen += len(event.data.delta)
        return seen

    await measure(given, read=read, distribution="openai-agents")


run(main)
