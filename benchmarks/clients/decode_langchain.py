"""LangChain below its agent: the chat model's `astream`, with a tool bound to it; the way `sum` adds up the chunks, too, which
is how its documentation has one get at the calls of a stream."""

from langchain_core.language_models import BaseChatModel
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, measure, run

WRITE = {
    "type": "function",
    "function": {"name": TOOL, "description": "Write a file.", "parameters": PARAMETERS},
}


def model_of(given: Task, name: str) -> BaseChatModel:
    if given["family"] == "anthropic_messages":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name, base_url=given["url"], max_retries=0, max_tokens=8_000)
    from langchain_openai import ChatOpenAI

    is_responses = given["family"] == "openai_responses"
    return ChatOpenAI(model=name, base_url=given["url"] + "/v1", max_retries=0, use_responses_api=is_responses)


def length(chunk: object, kind: str) -> int:
    if kind == "tool arguments":
        return sum(len(call["args"] or "") for call in chunk.tool_call_chunks)  # type: ignore[attr-defined]
    content = chunk.content  # type: ignore[attr-defined]
    if isinstance(content, str):
        return len(content) if kind == "text" else 0
    seen = 0
    for block in content:
        if kind == "text":
            seen += len(block.get("text") or "")
        else:
            seen += len(block.get("thinking") or "") + sum(
                len(one.get("text") or "") for one in block.get("summary") or ()
            )
    return seen


async def main(given: Task) -> None:
    models: dict[str, object] = {}

    async def read(case: Case) -> int:
        name = case["model"]
        if name not in models:
            models[name] = model_of(given, name).bind_tools([WRITE])
        if given["way"] == "sum":
            total, seen = None, 0
            async for chunk in models[name].astream(PROMPT):  # type: ignore[attr-defined]
                total = chunk if total is None else total + chunk
                seen += length(chunk, case["kind"])
            assert total is not None and len(total.tool_calls) == 1
            return seen
        return sum([length(chunk, case["kind"]) async for chunk in models[name].astream(PROMPT)])  # type: ignore[attr-defined]

    await measure(given, read=read, distribution="langchain")


run(main)
