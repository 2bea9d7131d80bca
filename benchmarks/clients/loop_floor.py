"""The least that a loop can cost: aiohttp, one typed decode an event, each message encoded once. No rules, no checks, no
healing, no concurrency of tools."""

import aiohttp
import msgspec
from looping import DESCRIPTION, INSTRUCTIONS, PARAMETERS, PROMPT, TOOL, Archive, Case, Task, measure, run


class Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class Call(msgspec.Struct):
    index: int
    function: Function
    id: str = ""


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] = []


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice] = []


class Arguments(msgspec.Struct):
    key: str


CHUNKS = msgspec.json.Decoder(Chunk)
ARGUMENTS = msgspec.json.Decoder(Arguments)
FUNCTION = {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]


def read(stream: bytes) -> tuple[str, list[Call]]:
    texts: list[str] = []
    calls: list[Call] = []
    for line in stream.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        for choice in CHUNKS.decode(line[6:]).choices:
            if choice.delta.content:
                texts.append(choice.delta.content)
            for piece in choice.delta.tool_calls:
                if piece.index == len(calls):
                    calls.append(piece)
                else:
                    calls[piece.index].function.arguments += piece.function.arguments
    return "".join(texts), calls


async def main(given: Task) -> None:
    async def loop(case: Case, url: str, archive: Archive) -> str:
        encode = msgspec.json.encode
        messages = [encode({"role": "system", "content": INSTRUCTIONS}), encode({"role": "user", "content": PROMPT})]
        head = encode({"model": case["model"], "stream": True, "tools": TOOLS})[:-1] + b',"messages":['
        async with aiohttp.ClientSession() as session:
            while True:
                body = head + b",".join(messages) + b"]}"
                async with session.post(url + "/v1/chat/completions", data=body) as response:
                    text, calls = read(await response.read())
                if not calls:
                    return text
                said = [
                    {"id": call.id, "type": "function", "function": msgspec.to_builtins(call.function)}
                    for call in calls
                ]
                messages.append(encode({"role": "assistant", "content": text or None, "tool_calls": said}))
                for call in calls:
                    found = await archive.look(ARGUMENTS.decode(call.function.arguments).key)
                    messages.append(encode({"role": "tool", "tool_call_id": call.id, "content": found}))

    await measure(given, loop=loop, distribution="")


run(main)
