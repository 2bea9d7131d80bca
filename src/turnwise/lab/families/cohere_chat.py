"""Cohere's v2 API, as the lab plays it and as its clients read it."""

from typing import Literal

import msgspec

from turnwise.lab.caches import PromptPieces
from turnwise.lab.families.family import (
    DONE,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    arguments_object,
    events_of,
    files_of,
    join,
    naive_events,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.families.openai_chat import chat_call
from turnwise.lab.raw import Raw, dig, dump, rows, table, text
from turnwise.lab.strict.cohere_chat import JUDGE


def read_cohere(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = []
    for fields in map(table, rows(body.get("messages"))):
        content = fields.get("content")
        match text(fields.get("role")):
            case "tool":
                result = ResultSeen(id=text(fields.get("tool_call_id")), name="", content=result_of(content))
                said.append(SentMessage(role="results", results=(result,)))
            case "system" | "assistant" as role:
                calls = tuple([chat_call(table(call)) for call in rows(fields.get("tool_calls"))])
                texts = tuple([one for one in texts_of(content) if one])
                said.append(SentMessage(role=role, texts=texts, calls=calls))
            case _:
                said.append(SentMessage(role="user", texts=texts_of(content), files=files_of(content)))
    tools = [table(table(tool).get("function")) for tool in rows(body.get("tools"))]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=body.get("tool_choice") == "NONE",
        output_schema=dig(body.get("response_format"), "json_schema"),
    )


def result_of(content: Raw) -> str:
    """Texts, and documents as JSON."""
    if isinstance(content, str):
        return content
    data = [dig(part, "document", "data") for part in rows(content)]
    told = [one if isinstance(one, str) else dump(one).decode() for one in data if one is not None]
    return "".join([*texts_of(content), *told])


def prompt_of_cohere(body: Raw) -> PromptPieces:
    fields = table(body)
    return PromptPieces([dump(fields.get("tools")), *map(dump, rows(fields.get("messages")))])


class PlayedContent(msgspec.Struct, frozen=True):
    text: str = ""


class PlayedFunction(msgspec.Struct, frozen=True):
    name: str = ""
    arguments: str = ""


class PieceOfCall(msgspec.Struct, frozen=True):
    function: PlayedFunction = PlayedFunction()
    id: str = ""


class PlayedMessage(msgspec.Struct, frozen=True):
    content: PlayedContent | list[PlayedContent] = PlayedContent()
    tool_calls: PieceOfCall | list[PieceOfCall] = []


class PlayedDelta(msgspec.Struct, frozen=True):
    message: PlayedMessage = PlayedMessage()
    finish_reason: str = ""
    error: str = ""


class PlayedEvent(msgspec.Struct, frozen=True):
    type: str
    index: int = 0
    delta: PlayedDelta = PlayedDelta()


FINISH = {"COMPLETE": "stop", "STOP_SEQUENCE": "stop", "MAX_TOKENS": "length", "TOOL_CALL": "calls"}


def reading_of(events: list[PlayedEvent]) -> StreamReading:
    said, finish, error = "", "", ""
    calls: dict[int, list[str]] = {}
    for event in events:
        message = event.delta.message
        said += message.content.text if isinstance(message.content, PlayedContent) else ""
        finish, error = event.delta.finish_reason or finish, event.delta.error or error
        if isinstance(call := message.tool_calls, PieceOfCall):
            held = calls.setdefault(event.index, ["", "", ""])
            for place, piece in enumerate((call.id, call.function.name, call.function.arguments)):
                held[place] += piece
    made = [(call[0], call[1], call[2] or "{}") for call in calls.values()]
    return StreamReading(said, made, FINISH.get(finish, finish), error)


def read_naively(body: bytes) -> StreamReading:
    return reading_of(naive_events(body, as_type=PlayedEvent))


class KnownEvent(msgspec.Struct, frozen=True):
    type: Literal[
        "message-start",
        "content-start",
        "content-delta",
        "content-end",
        "tool-plan-delta",
        "tool-call-start",
        "tool-call-delta",
        "tool-call-end",
        "citation-start",
        "citation-end",
        "message-end",
    ]
    index: int = 0


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    events = [event for event in events_of(body) if event.data != DONE]
    told = [shaped(event.data, as_type=KnownEvent) for event in events]
    rule(all(event.name == one.type for event, one in zip(events, told, strict=True)), "an event has another name")
    kinds = [one.type for one in told]
    rule(kinds[:1] == ["message-start"] and kinds.count("message-start") == 1, "the stream has not one start")
    rule(kinds[-1:] == ["message-end"] and kinds.count("message-end") == 1, "the stream has not one end, or goes on")
    for kind in ("content", "tool-call"):
        open_block: int | None = None
        for one in told:
            if one.type == f"{kind}-start":
                rule(open_block is None, f"a {kind} begins within another")
                open_block = one.index
            elif one.type in (f"{kind}-delta", f"{kind}-end"):
                rule(open_block == one.index, f"a {kind} goes on that is not open")
                open_block = None if one.type.endswith("end") else open_block
    reading = reading_of([shaped(event.data, as_type=PlayedEvent) for event in events])
    for _, _, arguments in reading.calls if reading.finish == "calls" else ():
        arguments_object(arguments)
    return reading


FAMILY = LabFamily(
    judge=JUDGE,
    title="Cohere's v2 API",
    recorded_as="cohere",
    routes=(("/v2/chat", False),),
    strict_paths=r"/v2/chat|/v1/models",
    read=read_cohere,
    prompt=prompt_of_cohere,
    cut_calls="text",
    names_events=True,
    error_event=lambda rejected: {
        "type": "message-end",
        "delta": {"finish_reason": "ERROR", "error": rejected.message},
    },
    read_naively=read_naively,
    read_strictly=read_strictly,
)
