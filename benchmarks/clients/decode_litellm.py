"""LiteLLM's SDK: `acompletion` (Chat Completions, and Anthropic behind it) and `aresponses`."""

import litellm
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, measure, run

FUNCTION = {"name": TOOL, "description": "Write a file.", "parameters": PARAMETERS}
DELTAS = {
    "text": "response.output_text.delta",
    "tool arguments": "response.function_call_arguments.delta",
    "reasoning": "response.reasoning_summary_text.delta",
}
KNOWN = {
    "max_tokens": 200_000,
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 1e-6,
    "supports_native_streaming": True,
}
litellm.telemetry = False


async def main(given: Task) -> None:
    names = [case["model"] for case in given["cases"]] + list(given["warm"].values())
    provider = "anthropic" if given["family"] == "anthropic_messages" else "openai"
    # It looks a model up in its catalogue more than once a request, and fakes the stream of one that it does not know.
    litellm.register_model(
        {f"{provider}/{name}": KNOWN | {"litellm_provider": provider, "mode": "chat"} for name in names}
    )

    async def chat(case: Case) -> int:
        seen = 0
        is_anthropic = given["family"] == "anthropic_messages"
        stream = await litellm.acompletion(
            model=f"{'anthropic' if is_anthropic else 'openai'}/{case['model']}",
            api_base=given["url"] if is_anthropic else given["url"] + "/v1",
            api_key="nothing",
            messages=[{"role": "user", "content": PROMPT}],
            tools=[{"type": "function", "function": FUNCTION}],
            stream=True,
            num_retries=0,
            **({"max_tokens": 8_000} if is_anthropic else {}),
        )
        async for chunk in stream:
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            if delta.tool_calls:
                seen += len(delta.tool_calls[0].function.arguments or "")
            elif case["kind"] == "text":
                seen += len(delta.content or "")
            else:
                seen += len(getattr(delta, "reasoning_content", None) or "")
        return seen

    async def responses(case: Case) -> int:
        wanted = DELTAS[case["kind"]]
        stream = await litellm.aresponses(
            model=f"openai/{case['model']}",
            api_base=given["url"] + "/v1",
            api_key="nothing",
            input=PROMPT,
            tools=[{"type": "function", **FUNCTION}],
            stream=True,
            num_retries=0,
        )
        return sum([len(event.delta) async for event in stream if event.type == wanted])

    read = responses if given["family"] == "openai_responses" else chat
    await measure(given, read=read, distribution="litellm")


run(main)
