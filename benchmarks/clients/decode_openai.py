"""The openai package: its raw stream, or its `.stream()`, which also accumulates (and takes strict tools only)."""

import httpx2
from memory import Memory
from openai import AsyncOpenAI
from timing import PARAMETERS, PROMPT, TOOL, Case, Task, events_of, measure, run

FUNCTION = {"name": TOOL, "description": "Write a file.", "parameters": PARAMETERS, "strict": True}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS = [{"type": "function", **FUNCTION}]
MESSAGES = [{"role": "user", "content": PROMPT}]


async def chat_raw(client: AsyncOpenAI, case: Case) -> int:
    seen = 0
    stream = await client.chat.completions.create(
        model=case["model"], messages=MESSAGES, tools=CHAT_TOOLS, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        if delta.tool_calls:
            seen += len(delta.tool_calls[0].function.arguments or "")
        elif delta.content and case["kind"] == "text":
            seen += len(delta.content)
        elif case["kind"] == "reasoning":
            seen += len(getattr(delta, "reasoning_content", None) or "")
    return seen


async def chat_stream(client: AsyncOpenAI, case: Case) -> int:
    seen = 0
    async with client.chat.completions.stream(model=case["model"], messages=MESSAGES, tools=CHAT_TOOLS) as stream:
        async for event in stream:
            if event.type == "content.delta" and case["kind"] == "text":
                seen += len(event.delta)
            elif event.type == "tool_calls.function.arguments.delta":
                seen += len(event.arguments_delta)
            elif event.type == "chunk" and case["kind"] == "reasoning" and event.chunk.choices:
                seen += len(getattr(event.chunk.choices[0].delta, "reasoning_content", None) or "")
    return seen


DELTAS = {
    "text": "response.output_text.delta",
    "tool arguments": "response.function_call_arguments.delta",
    "reasoning": "response.reasoning_summary_text.delta",
}


async def responses_raw(client: AsyncOpenAI, case: Case) -> int:
    wanted = DELTAS[case["kind"]]
    stream = await client.responses.create(model=case["model"], input=PROMPT, tools=TOOLS, stream=True)
    return sum([len(event.delta) async for event in stream if event.type == wanted])


async def responses_stream(client: AsyncOpenAI, case: Case) -> int:
    wanted = DELTAS[case["kind"]]
    async with client.responses.stream(model=case["model"], input=PROMPT, tools=TOOLS) as stream:
        return sum([len(event.delta) async for event in stream if event.type == wanted])


WAYS = {
    ("openai_chat", "raw"): chat_raw,
    ("openai_chat", "stream"): chat_stream,
    ("openai_responses", "raw"): responses_raw,
    ("openai_responses", "stream"): responses_stream,
}


async def main(given: Task) -> None:
    way = WAYS[given["family"], given["way"]]
    base_url = given["url"] + "/v1"
    memory = Memory()
    fed = AsyncOpenAI(base_url=base_url, max_retries=0, http_client=httpx2.AsyncClient(transport=memory))
    client = AsyncOpenAI(base_url=base_url, max_retries=0)
    pieces: dict[str, list[bytes]] = {}

    async def read(case: Case) -> int:
        if not case["memory"]:
            return await way(client, case)
        if case["model"] not in pieces:
            pieces[case["model"]] = events_of(given, case=case)
        memory.pieces = pieces[case["model"]]
        return await way(fed, case)

    await measure(given, read=read, distribution="openai")


run(main)
