"""LiteLLM's SDK: `acompletion` with the history as dicts, streamed."""

from collections.abc import Awaitable, Callable

import litellm
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

FUNCTION = {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}
KNOWN = {"max_tokens": 200_000, "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6, "mode": "chat"}
litellm.telemetry = False


def history_of(case: Case) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": FIRST}]
    for id, arguments in steps_of(case):
        call = {"id": id, "type": "function", "function": {"name": TOOL, "arguments": arguments}}
        found.append({"role": "assistant", "content": None, "tool_calls": [call]})
        found.append({"role": "tool", "tool_call_id": id, "content": RESULT})
    return [*found, {"role": "assistant", "content": SUMMARY}, {"role": "user", "content": PROMPT}]


async def main(given: Task) -> None:
    is_anthropic = given["family"] == "anthropic_messages"
    provider = "anthropic" if is_anthropic else "openai"
    name = f"{provider}/{given['cases'][0]['model']}"
    litellm.register_model({name: KNOWN | {"litellm_provider": provider}})

    def prepare(case: Case) -> Callable[[], Awaitable[str]]:
        messages = history_of(case)

        async def ask() -> str:
            stream = await litellm.acompletion(
                model=name,
                api_base=given["url"] if is_anthropic else given["url"] + "/v1",
                api_key="nothing",
                messages=messages,
                tools=[{"type": "function", "function": FUNCTION}],
                stream=True,
                num_retries=0,
                **({"max_tokens": 8_000} if is_anthropic else {}),
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

        return ask

    await measure(given, prepare=prepare, distribution="litellm")


run(main)
