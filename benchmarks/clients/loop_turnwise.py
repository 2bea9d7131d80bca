"""turnwise: `Agent.stream`, whose events are watched as the others' are, with everything that it does by default; with a
journal where the case names one."""

from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from looping import INSTRUCTIONS, PROMPT, Archive, Case, Task, measure, run

from turnwise import Agent, Journal, MaxSteps, Model, RunFinished, tool
from turnwise.base.clock import SystemClock


async def main(given: Task) -> None:
    async def loop(case: Case, url: str, archive: Archive) -> str:
        @tool
        async def look(key: str) -> str:
            """Look something up.

            Args:
                key: What to look up.
            """
            return await archive.look(key)

        with ExitStack() as stack:
            journal = None
            if case["journal"]:
                journal = stack.enter_context(Journal(Path(f"{case['journal']}-{uuid4()}"), clock=SystemClock()))
            agent = Agent(
                Model(f"openai_chat:{case['model']}", base_url=url + "/v1", api_key="nothing"),
                tools=[look],
                instructions=INSTRUCTIONS,
                limits=MaxSteps(case["steps"] + 5),
                journal=journal,
            )
            async with agent:
                async for event in agent.stream(PROMPT):
                    if isinstance(event, RunFinished):
                        result = event.result
                        assert result.complete, (result.stop_reason, result.fault)
                        return result.text
        raise AssertionError("the stream ended without a result")

    await measure(given, loop=loop, distribution="turnwise")


run(main)
