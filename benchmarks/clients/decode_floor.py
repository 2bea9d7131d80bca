"""The least that reading a stream can cost in Python: aiohttp, a split of the bytes, one typed decode an event. No healing,
no assembly, no events for anybody, no check: what turnwise adds stands on top of this."""

import msgspec
from timing import Case, Task, events_of, measure, run


class Function(msgspec.Struct):
    arguments: str = ""


class Call(msgspec.Struct):
    function: Function


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call] = []


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice] = []

    def text(self) -> str:
        if not self.choices:
            return ""
        delta = self.choices[0].delta
        if delta.tool_calls:
            return delta.tool_calls[0].function.arguments
        return delta.content or delta.reasoning_content or ""


class Event(msgspec.Struct):
    """Responses: one kind of delta a stream is counted."""

    type: str
    delta: str = ""

    def text(self) -> str:
        return self.delta


class Inner(msgspec.Struct):
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class Block(msgspec.Struct):
    type: str
    delta: Inner | None = None

    def text(self) -> str:
        inner = self.delta
        return "" if inner is None else inner.text or inner.partial_json or inner.thinking


class Partial(msgspec.Struct, rename="camel"):
    string_value: str = ""


class FunctionCall(msgspec.Struct, rename="camel"):
    partial_args: list[Partial] = []


class Piece(msgspec.Struct, rename="camel"):
    text: str = ""
    function_call: FunctionCall | None = None


class Content(msgspec.Struct):
    parts: list[Piece] = []


class Candidate(msgspec.Struct):
    content: Content | None = None


class Answer(msgspec.Struct):
    candidates: list[Candidate] = []

    def text(self) -> str:
        content = self.candidates[0].content if self.candidates else None
        if content is None or not content.parts:
            return ""
        part = content.parts[0]
        if part.function_call is not None:
            return part.function_call.partial_args[0].string_value if part.function_call.partial_args else ""
        return part.text


TYPES = {"openai_chat": Chunk, "openai_responses": Event, "anthropic_messages": Block, "gemini": Answer}


async def main(given: Task) -> None:
    import aiohttp

    decode = msgspec.json.Decoder(TYPES[given["family"]]).decode
    end = b"\r\n\r\n" if given["family"] == "gemini" else b"\n\n"
    pieces: dict[str, list[bytes]] = {}

    def take(lines: list[bytes]) -> int:
        seen = 0
        for line in lines:
            at = line.find(b"data: ")
            if at >= 0 and not line.endswith(b"[DONE]"):
                seen += len(decode(line[at + 6 :]).text())
        return seen

    async def read(case: Case) -> int:
        if case["memory"]:
            if case["model"] not in pieces:
                pieces[case["model"]] = events_of(given, case=case)
            total = sum(take([piece.rstrip()]) for piece in pieces[case["model"]])
        else:
            total, rest = 0, b""
            url = f"{given['url']}/v1/models/{case['model']}:stream"
            async with session.post(url, json={"model": case["model"]}) as response:
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(end)
                    total += take(lines)
        return total

    async with aiohttp.ClientSession() as session:
        await measure(given, read=read, distribution="")


run(main)
