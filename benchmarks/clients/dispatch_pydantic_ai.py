"""pydantic-ai: a run whose model asks for ten calls more in one response, less one that asks for one."""

from dispatch import ARGUMENTS, RESULT, Run, cpu_of, look, look_async, of_ten_more, repeats, run
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def make() -> Run:
    async def one(kind: str) -> float:
        asked = 0

        def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
            returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
            assert all(part.content == RESULT for part in returned)
            if returned:
                assert len(returned) == asked
                return ModelResponse(parts=[TextPart("done")])
            calls = [ToolCallPart("look", ARGUMENTS, tool_call_id=f"call_{number}") for number in range(asked)]
            return ModelResponse(parts=calls)

        agent: Agent[None, str] = Agent(FunctionModel(answer))
        agent.tool_plain(name="look")(look_async if kind == "async" else look)

        async def work() -> None:
            await agent.run("Look.")

        async def cost(calls: int) -> float:
            nonlocal asked
            asked = calls
            return await cpu_of(work, repeat=max(5, repeats() // 100))

        return await of_ten_more(cost)

    return {f"{kind} 10": (lambda kind=kind: one(kind)) for kind in ("async", "sync")}


run(make, distribution="pydantic-ai-slim")
