"""openai-agents: `Runner.run_streamed`, every event of it."""

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool, set_tracing_disabled
from looping import INSTRUCTIONS, PROMPT, Archive, Case, Task, measure, run
from openai import AsyncOpenAI


async def main(given: Task) -> None:
    set_tracing_disabled(True)

    async def loop(case: Case, url: str, archive: Archive) -> str:
        @function_tool
        async def look(key: str) -> str:
            """Look something up.

            Args:
                key: What to look up.
            """
            return await archive.look(key)

        async with AsyncOpenAI(base_url=url + "/v1", max_retries=0) as client:
            model = OpenAIChatCompletionsModel(model=case["model"], openai_client=client)
            agent = Agent(name="archivist", instructions=INSTRUCTIONS, model=model, tools=[look])
            quiet = RunConfig(tracing_disabled=True)
            result = Runner.run_streamed(agent, PROMPT, max_turns=case["steps"] + 5, run_config=quiet)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

    await measure(given, loop=loop, distribution="openai-agents")


run(main)
