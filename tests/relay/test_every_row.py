"""Every kind of request to every server with rules of its own, three ways: from the library, and through the gateway from clients
of Chat Completions and of Anthropic's Messages; each with forty tools in the shapes of public MCP servers.

None is refused; what does not get there is listed here.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from lab.public_tools import PUBLIC_SCHEMAS
from relay.asking_relay import send
from tables import each
from turnwise.lab.strict import Rejected, check
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.vocab import (
    File,
    Message,
    NamedTool,
    OutputSchema,
    Part,
    Reasoning,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import FamilyName, builtin_profiles

TOOLS = tuple(
    [ToolSpec(name=name, description="D.", parameters=json.dumps(schema)) for name, schema in PUBLIC_SCHEMAS.items()]
)
CLIENTS: Mapping[str, tuple[FamilyName, str]] = {
    "chat": ("openai_chat", "openai-chat"),
    "anthropic": ("anthropic_messages", "anthropic"),
}
WAYS = ("library", *CLIENTS)
PICTURE = b"\x89PNG\r\n\x1a\npicture-in-a-result"
RULES, LATER = Text("instruction-text-one"), Text("instruction-text-two")
ANSWER = OutputSchema(
    schema='{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
)


def user(text: str) -> Message:
    return Message("user", (Text(text),))


def said(*parts: Part) -> Message:
    return Message("assistant", parts)


def called(*ids: str, text: str = "", thought: str = "") -> Iterator[Message]:
    """Calls of one message, and their results."""
    before: list[Part] = [Reasoning(thought)] if thought else []
    before += [Text(text)] if text else []
    calls = [
        ToolCall(id=f"call_{id}_0123456789", name="files_list", arguments=f'{{"path":"path-of-{id}"}}') for id in ids
    ]
    yield said(*before, *calls)
    yield Message("tool", tuple([result(call, Text(f"result-of-{call.id}")) for call in calls]))


def result(call: ToolCall, *content: Text | File) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=content)


LOOK = ToolCall(id="call_look_0123456789", name="files_list", arguments='{"path":"path-of-picture"}')
PICTURED = (
    *called("early", text="text-before-calls", thought="a thought"),
    said(Text("first-answer-text")),
    user("second-question"),
    said(LOOK),
    Message("tool", (result(LOOK, Text("text-beside-picture"), File(media_type="image/png", data=PICTURE)),)),
)
HELLO = user("first-question")
KINDS: Mapping[str, Request] = {
    "plain turn": Request(model="m", system=(RULES,), messages=(HELLO,)),
    "two system texts": Request(model="m", system=(RULES, LATER), messages=(HELLO,)),
    "parallel calls": Request(model="m", system=(RULES,), messages=(HELLO, *called("a", "b", text="text-of-calls"))),
    "forced answer": Request(model="m", messages=(HELLO, *called("a"), *called("b")), tool_choice="none"),
    "question after an empty answer": Request(model="m", messages=(HELLO, *called("a"), user("question-again"))),
    "loop note": Request(model="m", messages=(HELLO, *called("a"), *called("b"), user("note-about-loop"))),
    "words in mid-turn": Request(
        model="m", system=(RULES,), messages=(HELLO, *called("a"), user("words-in-mid-turn"), *called("b"))
    ),
    "cut call": Request(
        model="m",
        messages=(HELLO, said(Text("text-before-cut")), user("go-on-from-there")),
        tool_choice=NamedTool("files_list"),
    ),
    "structured output": Request(model="m", messages=(HELLO,), output=ANSWER),
    "later turn": Request(model="m", system=(RULES,), messages=(HELLO, *PICTURED)),
}


class Sent(NamedTuple):
    """A body as it goes up, and why the server refuses it."""

    body: bytes
    refused: str


def sent(way: str, row: str, kind: str, *, tools: tuple[ToolSpec, ...] = TOOLS) -> Sent:
    profile = builtin_profiles()[row]
    has_tools = kind != "structured output"
    settings = Settings(max_output_tokens=500)
    asked = replace(KINDS[kind], tools=tools if has_tools else (), settings=settings)
    if way == "library":
        body = family(profile.family).encode_request(asked, profile).body
    else:
        source, own = CLIENTS[way]
        client = json.loads(family(source).encode_request(asked, builtin_profiles()[own]).body)
        if asked.tools:
            client["tools"] = [client_tool(source, tool) for tool in tools]
        body = send(source, client, to="openai_chat", profile=profile).call.body
    try:
        check(profile.family, body=json.loads(body), dialect=builtin_dialects()[row])
    except Rejected as error:
        return Sent(body, error.message)
    return Sent(body, "")


def client_tool(source: FamilyName, tool: ToolSpec) -> dict[str, Any]:
    """As the client says it: Anthropic's own server takes no schema without a type."""
    about, schema = {"name": tool.name, "description": tool.description}, json.loads(tool.parameters)
    if source == "openai_chat":
        return {"type": "function", "function": {**about, "parameters": schema}}
    return {**about, "input_schema": {"type": "object", **schema}}


def words_of(request: Request) -> Iterator[bytes]:
    """All that has to be found in the body."""
    yield from [text.text.encode() for text in request.system]
    for message in request.messages:
        for part in message.parts:
            match part:
                case Text(text=text):
                    yield text.encode()
                case ToolCall(arguments=arguments):
                    yield json.loads(arguments)["path"].encode()
                case ToolResult(content=content):
                    for one in content:
                        yield one.text.encode() if isinstance(one, Text) else base64.b64encode(one.data or b"")
                case _:
                    pass


@pytest.mark.costly
@pytest.mark.promise("heal:dialect")
@each("row", builtin_dialects())
def test_no_server_refuses_a_kind_of_request_whatever_the_tools(row: str) -> None:
    """Proves: three ways and ten kinds with forty tools pass the judge of the server and the family's own; each text, image and
    result of the history is in the body, but for images that the server takes in no form."""
    takes_images = builtin_profiles()[row].files != "none"
    for way in WAYS:
        for kind, request in KINDS.items():
            body, refused = sent(way, row, kind)
            assert refused == "", (way, kind)
            missing = [word for word in words_of(request) if word not in body]
            assert missing == ([] if takes_images or kind != "later turn" else [base64.b64encode(PICTURE)]), (way, kind)
            names = [one["function"]["name"] for one in json.loads(body).get("tools", [])]
            assert names in ([], [tool.name for tool in TOOLS]), (way, kind)


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("way", ["library", "chat"])
def test_a_schema_of_an_answer_that_the_server_refuses_goes_in_words(way: str) -> None:
    """Proves: DeepSeek gets `json_object` and the schema in its instructions, from the library and from a client alike; a server
    that is not known to refuse a schema gets the client's own field."""
    body = json.loads(sent(way, "deepseek", "structured output").body)
    assert body["response_format"] == {"type": "json_object"}
    assert body["messages"][0]["role"] == "system" and ANSWER.schema in body["messages"][0]["content"]
    if way == "chat":
        assert json.loads(sent(way, "alibaba", "structured output").body)["response_format"]["type"] == "json_schema"
