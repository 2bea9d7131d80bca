"""Five deliberately naive loops, each with the mistake of one incident. They stand here to be measured, not to be used."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

Json = dict[str, Any]

READ_TOOL: Json = {
    "name": "read",
    "description": "Read a file.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}
WRITE_TOOL: Json = {
    "name": "write",
    "description": "Write a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
}
EDIT_TOOL: Json = {
    "name": "edit",
    "description": "Edit a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}},
        "required": ["path", "old", "new"],
    },
}
SEARCH_TOOL: Json = {
    "name": "search",
    "description": "Search the web.",
    "parameters": {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
}


class Client:
    """Posts to the lab and reads server-sent events the quick way."""

    def __init__(self, session: aiohttp.ClientSession, *, base_url: str) -> None:
        self._session = session
        self._base_url = base_url

    async def stream(self, path: str, body: Json) -> AsyncIterator[Json]:
        async with self._session.post(f"{self._base_url}{path}", json={**body, "stream": True}) as response:
            if response.status != 200:
                raise RuntimeError(f"{response.status} {(await response.json())['error']['message']}")
            async for line in response.content:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    async def chat(self, body: Json) -> Json:
        """A Chat Completions body, not streamed: the message of choice 0 with its `finish_reason`."""
        async with self._session.post(f"{self._base_url}/chat/completions", json=body) as response:
            answer = await response.json()
            if response.status != 200:
                raise RuntimeError(f"{response.status} {answer['error']['message']}")
            choice = answer["choices"][0]
            return {**choice["message"], "finish_reason": choice["finish_reason"]}


def chat_body(model: str, messages: list[Json], *tools: Json) -> Json:
    return {
        "model": model,
        "messages": messages,
        "tools": [{"type": "function", "function": tool} for tool in tools],
    }


def run_tool(folder: Path, name: str, arguments: Json) -> str:
    path = folder / str(arguments.get("path", ""))
    match name:
        case "read":
            return path.read_text() if path.is_file() else f"no such file: {path.name!r}"
        case "write":
            path.write_text(str(arguments.get("content", "")))
            return "ok"
        case "edit":
            path.write_text(path.read_text().replace(str(arguments["old"]), str(arguments["new"])))
            return "ok"
        case _:
            return "nothing found"


async def new_call_at_every_id(client: Client, folder: Path, prompt: str) -> str:
    """Takes 'the id is not null' for 'a new call begins' (Koog's StreamFrameFlowBuilder)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    calls: list[Json] = []
    async for chunk in client.stream("/chat/completions", chat_body("id-in-every-chunk", messages, READ_TOOL)):
        choices: list[Json] = chunk.get("choices") or []
        for choice in choices:
            deltas: list[Json] = choice["delta"].get("tool_calls") or []
            for delta in deltas:
                function: Json = delta.get("function") or {}
                if delta.get("id") is not None:
                    calls.append({"id": delta["id"], "name": function.get("name"), "arguments": ""})
                calls[-1]["arguments"] += function.get("arguments") or ""
    whole = 0
    for call in calls:
        try:
            json.loads(call["arguments"])
            whole += bool(call["name"])
        except ValueError:
            pass
    return f"{len(calls)} calls seen, {whole} of them whole; the file was never read"


async def follow_up_per_call(client: Client, folder: Path, prompt: str) -> str:
    """Starts a request at each `output_item.done`, with that call's result only (deep-chat)."""
    tools = [{"type": "function", **READ_TOOL}]
    question: Json = {"role": "user", "content": prompt}
    answers: list[str] = []

    async def ask(items: list[Json]) -> None:
        body = {"model": "demo-parallel", "input": [question, *items], "tools": tools}
        async for event in client.stream("/responses", body):
            if event["type"] == "response.output_text.done":
                answers.append(event["text"])
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                item = event["item"]
                output = run_tool(folder, item["name"], json.loads(item["arguments"]))
                result = {"type": "function_call_output", "call_id": item["call_id"], "output": output}
                await ask([item, result])

    await ask([])
    return f"{len(answers)} answers, each from one result: '{answers[0]}'"


async def close_what_was_cut(client: Client, folder: Path, prompt: str) -> str:
    """Mends cut arguments by closing the string and the object, and runs them (lenient JSON parsers)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    for _ in range(5):
        message = await client.chat(chat_body("demo-cut", messages, WRITE_TOOL))
        calls: list[Json] = message.get("tool_calls") or []
        if not calls:
            size = (folder / "report.txt").stat().st_size
            return f"'{message['content']}' The file has {size:,} of 40,000 bytes"
        for call in calls:
            arguments = call["function"]["arguments"]
            try:
                json.loads(arguments)
            except ValueError:
                call["function"]["arguments"] = arguments.rstrip("\\") + '"}'
        messages.append({"role": "assistant", "content": message["content"], "tool_calls": calls})
        for call in calls:
            output = run_tool(folder, call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return "no end after 5 steps"


async def stop_at_the_cap(client: Client, folder: Path, prompt: str) -> str:
    """Counts to 8 and returns what text there is (gitmost)."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    text = ""
    for _ in range(8):
        message = await client.chat(chat_body("research", messages, SEARCH_TOOL))
        calls: list[Json] = message.get("tool_calls") or []
        text = "" if calls else message["content"]
        if not calls:
            break
        messages.append({"role": "assistant", "content": message["content"], "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "nothing found"} for call in calls]
    return f"ended after 8 steps with the text '{text}'"


async def hide_a_request(client: Client, folder: Path, prompt: str) -> str:
    """Asks for a title on the side, and reports one prompt as one request (the Chutes bill)."""
    await client.chat({"model": "plain-answer", "messages": [{"role": "user", "content": f"A title for: {prompt}"}]})
    messages: list[Json] = [{"role": "user", "content": prompt}]
    while True:
        message = await client.chat(chat_body("read-edit-answer", messages, READ_TOOL, EDIT_TOOL))
        calls: list[Json] = message.get("tool_calls") or []
        if not calls:
            return "the user sees 1 prompt; nobody counted the rest"
        messages.append({"role": "assistant", "content": message["content"], "tool_calls": calls})
        for call in calls:
            output = run_tool(folder, call["function"]["name"], json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
