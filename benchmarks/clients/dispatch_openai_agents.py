"""openai-agents: a run whose model asks for ten calls more in one response, less one that asks for one."""

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from dispatch import ARGUMENTS, RESULT, Run, cpu_of, look, look_async, of_ten_more, repeats, run
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Asking(Model):
    """Asks for so many calls, and ends when it has their results."""

    def __init__(self) -> None:
        self.calls = 0

    async def get_response(self, system_instructions, input, *_args, **_options) -> ModelResponse:  # type: ignore[no-untyped-def]
        returned = [item for item in input if item.get("type") == "function_call_output"]
        assert all(item["output"] == RESULT for item in returned)
        if returned:
            assert len(returned) == self.calls
            text = ResponseOutputText(text="done", type="output_text", annotations=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)
        asked = [
            ResponseFunctionToolCall(arguments=ARGUMENTS, call_id=f"call_{n}", name="look", type="function_call")
            for n in range(self.calls)
        ]
        return ModelResponse(output=[*asked], usage=Usage(), response_id=None)

    def stream_response(self, *_args, **_options):  # type: ignore[no-untyped-def]
        raise NotImplementedError


def make() -> Run:
    async def one(kind: str) -> float:
        model = Asking()
        chosen = function_tool(look_async if kind == "async" else look, name_override="look")
        agent = Agent(name="looker", model=model, tools=[chosen])

        async def work() -> None:
            await Runner.run(agent, "Look.")

        async def cost(calls: int) -> float:
            model.calls = calls
            return await cpu_of(work, repeat=max(5, repeats() // 100))

        return await of_ten_more(cost)

    return {f"{kind} 10": (lambda kind=kind: one(kind)) for kind in ("async", "sync")}


run(make, distribution="openai-agents")
