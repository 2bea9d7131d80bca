"""turnwise: the running of one step's calls, from arguments as text to results, each within its deadline."""

from dispatch import ARGUMENTS, Run, cpu_of, look, look_async, repeats, run

from turnwise import tool
from turnwise.base.clock import SystemClock
from turnwise.running.tools import ToolRun
from turnwise.turn.events import PlannedCall
from turnwise.vocab import ToolCall


def make() -> Run:
    tools = {"async": tool(name="look")(look_async).tool, "sync": tool(look).tool}
    clock = SystemClock()

    async def one(kind: str, together: int) -> float:
        calls = tuple(
            [
                PlannedCall(
                    call=ToolCall(id=f"call_{number}", name="look", arguments=ARGUMENTS),
                    arguments=ARGUMENTS,
                    timeout_s=60,
                )
                for number in range(together)
            ]
        )

        async def work() -> None:
            running = ToolRun(calls, tools={"look": tools[kind]}, clock=clock, on_start=lambda _: None)
            results = await running.run()
            assert len(results) == together and not any(result.is_error for result in results)

        return await cpu_of(work, repeat=repeats() // together) / together

    return {
        f"{kind} {together}": (lambda kind=kind, together=together: one(kind, together))
        for kind in ("async", "sync")
        for together in (1, 10)
    }


run(make, distribution="turnwise")
