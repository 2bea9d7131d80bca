"""Ollama's own API, as the lab plays it and as its clients read it."""

from typing import Literal

import msgspec

from turnwise.lab.caches import PromptPieces
from turnwise.lab.families.family import (
    CallSeen,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    canonical,
    join,
    naive_lines,
    rule,
    shaped,
)
from turnwise.lab.raw import Raw, dump, rows, table, text
from turnwise.lab.strict.ollama_chat import JUDGE


def read_ollama(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = []
    for fields in map(table, rows(body.get("messages"))):
        content = text(fields.get("content"))
        texts = (content,) if content else ()
        match text(fields.get("role")):
            case "tool":
                id, name = text(fields.get("tool_call_id")), text(fields.get("tool_name"))
                said.append(SentMessage(role="results", results=(ResultSeen(id=id, name=name, content=content),)))
            case "system" | "assistant" as role:
                calls = tuple([seen_call(table(call)) for call in rows(fields.get("tool_calls"))])
                said.append(SentMessage(role=role, texts=texts, calls=calls))
            case _:
                said.append(SentMessage(role="user", texts=texts, files=len(rows(fields.get("images")))))
    tools = [table(table(tool).get("function")) for tool in rows(body.get("tools"))]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=not tools and any(one.calls for one in said),  # there is no other way
        output_schema=body.get("format"),
    )


def seen_call(call: dict[str, Raw]) -> CallSeen:
    function = table(call.get("function"))
    return CallSeen(
        id=text(call.get("id")), name=text(function.get("name")), arguments=canonical(function.get("arguments"))
    )


def prompt_of_ollama(body: Raw) -> PromptPieces:
    fields = table(body)
    return PromptPieces([dump(fields.get("tools")), *map(dump, rows(fields.get("messages")))])


class LineFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, msgspec.Raw]


class LineCall(msgspec.Struct, frozen=True):
    function: LineFunction
    id: str = ""

    @property
    def seen(self) -> tuple[str, str, str]:
        return self.id, self.function.name, dump(self.function.arguments).decode()


class LineMessage(msgspec.Struct, frozen=True):
    content: str = ""
    tool_calls: list[LineCall] = []


class NaiveLine(msgspec.Struct, frozen=True):
    message: LineMessage = LineMessage()
    done_reason: str = ""
    error: str = ""


class StrictLine(msgspec.Struct, frozen=True):
    model: str
    created_at: str
    message: LineMessage
    done: bool
    done_reason: Literal["", "stop", "length"] = ""


def read_naively(body: bytes) -> StreamReading:
    return _reading(naive_lines(body, as_type=NaiveLine))


def _reading(lines: list[NaiveLine]) -> StreamReading:
    calls = [call.seen for line in lines for call in line.message.tool_calls]
    word = next((line.done_reason for line in lines if line.done_reason), "")
    error = next((line.error for line in lines if line.error), "")
    said = "".join([line.message.content for line in lines])
    return StreamReading(said, calls, "calls" if calls and word == "stop" else word, error)


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    lines = body.split(b"\n")
    rule(lines.pop() == b"", "the stream ends in the middle of a line")
    found = [shaped(line, as_type=NaiveLine) for line in lines]
    for place, (line, said) in enumerate(zip(lines, found, strict=True)):
        is_last = place == len(found) - 1
        rule(is_last or not said.error, "something follows the error")
        if not said.error:
            whole = shaped(line, as_type=StrictLine)
            rule(is_last or not whole.done, "something follows the last line")
            rule(whole.done == bool(whole.done_reason), "only the last line says why the answer ended")
    rule(bool(found) and bool(found[-1].error or found[-1].done_reason), "the stream ends without `done`")
    return _reading(found)


FAMILY = LabFamily(
    judge=JUDGE,
    title="Ollama's own API",
    recorded_as="ollama",
    routes=(("/api/chat", False),),
    strict_paths=r"/api/(?:chat|tags)",
    read=read_ollama,
    prompt=prompt_of_ollama,
    cut_calls="object",
    lines=True,
    comment=b"\n",
    read_naively=read_naively,
    read_strictly=read_strictly,
)
