"""Generated and recorded Gemini requests there and back again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordings
from tables import each
from turnwise.testing.wire_conformance import check_request_round_trip
from turnwise.vocab import (
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import BadRequest
from turnwise.wire.gemini import FAMILY
from wire.gemini_requests import (
    NAME,
    PATH,
    PROFILE,
    assistant,
    decoded,
    own,
    user,
)

# Generated requests

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
WORDS = st.text("abcXYZ_", min_size=1, max_size=8)
OBJECTS = st.dictionaries(TEXTS, TEXTS | st.integers(-5, 5) | st.none(), max_size=3).map(json.dumps)
OPAQUE = st.none() | TEXTS.map(lambda text: own(thoughtSignature=text))
FILES = st.one_of(
    st.builds(File, media_type=st.just("image/png"), data=st.binary(max_size=5), opaque=OPAQUE),
    st.just(File(media_type="application/pdf", url="https://example.com/a.pdf")),
    st.just(File(media_type="video/mp4", file_id="https://generativelanguage.googleapis.com/v1beta/files/x")),
)
SAID = st.lists(st.builds(Text, TEXTS, opaque=OPAQUE) | FILES, min_size=1, max_size=3)
THOUGHT = st.lists(
    st.builds(Text, TEXTS, opaque=OPAQUE)
    | st.builds(Reasoning, TEXTS, OPAQUE)
    | FILES
    | st.just(ProviderItem(NAME, "executableCode", '{"executableCode":{"code":"1"}}')),
    max_size=3,
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """User, then steps of calls with their results in call order, each call with an id of its own."""
    messages = [user(*draw(SAID))]
    for step in range(draw(st.integers(0, 3))):
        names = draw(st.lists(WORDS, min_size=1, max_size=3))
        calls = [
            ToolCall(id=f"id_{step}_{i}", name=name, arguments=draw(OBJECTS), opaque=draw(OPAQUE))
            for i, name in enumerate(names)
        ]
        results = [
            ToolResult(
                call_id=call.id,
                name=call.name,
                content=(Text(draw(TEXTS | OBJECTS)), *draw(st.lists(FILES, max_size=1))),
                is_error=draw(st.booleans()),
            )
            for call in calls
        ]
        messages += [assistant(*draw(THOUGHT), *calls), Message("tool", tuple(results))]
        if draw(st.booleans()):
            messages.append(user(*draw(SAID)))
    return tuple(messages)


TOOLS = st.lists(st.builds(ToolSpec, name=WORDS, description=TEXTS | st.just(""), parameters=OBJECTS), max_size=3)
SETTINGS = st.builds(
    Settings,
    max_output_tokens=st.none() | st.integers(1, 9),
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    stop=st.lists(TEXTS, max_size=2).map(tuple),
    seed=st.none() | st.integers(),
    reasoning_effort=st.none() | st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh"]),
)
CHOICES = st.sampled_from(["auto", "none", "required"]) | WORDS.map(NamedTool)
SERVED = st.sampled_from([(), (ToolSpec(name="googleSearch", opaque=own(googleSearch={"a": 1})),)])
EXTRAS = st.none() | st.sampled_from([own(cachedContent="c", generationConfig={"topK": 1}), own(labels={"a": "b"})])


@given(
    conversations(),
    st.lists(TEXTS.map(Text), max_size=2),
    TOOLS,
    SERVED,
    CHOICES,
    SETTINGS,
    st.none() | OBJECTS,
    EXTRAS,
    st.booleans(),
)
def test_any_request_comes_back_as_it_was(
    messages: tuple[Message, ...],
    system: list[Text],
    tools: list[ToolSpec],
    served: tuple[ToolSpec, ...],
    choice: Any,
    settings: Settings,
    schema: str | None,
    extra: Opaque | None,
    stream: bool,
) -> None:
    """Encoded and decoded it is equal, but for the losses (a choice without tools is one)."""
    request = Request(
        model="gemini-3",
        messages=messages,
        system=tuple(system),
        tools=(*tools, *served),
        tool_choice=choice if tools else "auto",
        output=None if schema is None else OutputSchema(schema=schema),
        settings=settings,
        stream=stream,
        extra=extra,
    )
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=request)


# What clients send


def test_the_snake_case_names_are_read_too() -> None:
    """ProtoJSON takes both; only the API's own names are changed, never keys of arguments, results and schemas."""
    body = {
        "system_instruction": {"parts": [{"text": "s", "thought": False}]},
        "generation_config": {
            "max_output_tokens": "5",
            "thinking_config": {"thinking_budget": -1, "include_thoughts": True},
            "response_mime_type": "application/json",
            "response_schema": {"type": "OBJECT", "properties": {"snake_key": {"type": "STRING"}}},
        },
        "tools": [
            {"function_declarations": [{"name": "a", "parameters_json_schema": {"x_y": 1}}]},
            {"code_execution": {}},
        ],
        "safety_settings": None,
        "contents": [
            {
                "role": "model",
                "parts": [{"function_call": {"name": "a", "args": {"snake_key": 1}}, "thought_signature": "s"}],
            },
            {"parts": [{"inline_data": {"mime_type": "image/png", "data": "_-8"}}]},
        ],
    }
    assert decoded(body) == Request(
        model="gemini-3",
        system=(Text("s"),),
        messages=(
            assistant(ToolCall(id="call_0", name="a", arguments='{"snake_key": 1}', opaque=own(thoughtSignature="s"))),
            user(File(media_type="image/png", data=b"\xff\xef")),
        ),
        tools=(
            ToolSpec(name="a", parameters='{"x_y": 1}'),
            ToolSpec(name="codeExecution", opaque=own(codeExecution={})),
        ),
        output=OutputSchema(schema='{"type":"object","properties":{"snake_key":{"type":"string"}}}'),
        settings=Settings(max_output_tokens=5),
        stream=False,
        extra=own(generationConfig={"thinkingConfig": {"includeThoughts": True, "thinkingBudget": -1}}),
    )


def test_gemini_schemas_become_json_schema() -> None:
    """Types in capitals, nullable, counts as strings; a property that is called like a keyword stays."""
    schema = {
        "type": "OBJECT",
        "propertyOrdering": ["type"],
        "properties": {
            "type": {"type": "STRING", "enum": ["A"], "nullable": True},
            "number": {"type": 3},
            "list": {"type": "ARRAY", "minItems": "2", "items": {"any_of": [{"type": "NUMBER"}], "nullable": True}},
        },
        "required": ["type"],
    }
    tool = {"name": "a", "parameters": schema}
    request = decoded({"tools": [{"functionDeclarations": [tool]}], "contents": []})
    assert json.loads(request.tools[0].parameters) == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "enum": ["A", None]},
            "number": {"type": "integer"},
            "list": {"type": "array", "minItems": 2, "items": {"anyOf": [{"type": "number"}, {"type": "null"}]}},
        },
        "required": ["type"],
    }


@each(
    ("body", "path", "says"),
    [
        (b"{", PATH, "the body"),
        (b"[]", PATH, "the body"),
        (b'{"contents":[{"parts":[{"text":"\xff"}]}]}', PATH, "the body"),
        (b"{}", PATH, "`contents` is missing"),
        (b'{"contents":{}}', PATH, "`contents`"),
        (b'{"contents":[]}', "/v1/chat/completions", "/v1/chat/completions"),
        (b'{"contents":[]}', "/models/x:countTokens", "countTokens"),
        (b'{"contents":[{"role":"tool","parts":[]}]}', PATH, "`contents[0].role`"),
        (b'{"contents":[{"parts":[{"text":5}]}]}', PATH, "`contents[0].parts[0].text`"),
        (b'{"contents":[{"parts":[{"functionCall":{}}]}]}', PATH, "has no `name`"),
        (b'{"contents":[{"parts":[{"functionResponse":{"response":{}}}]}]}', PATH, "has no `name`"),
        (b'{"contents":[],"tools":[{"functionDeclarations":[{}]}]}', PATH, "`tools[0]`"),
        (b'{"contents":[],"generationConfig":{"temperature":"hot"}}', PATH, "`generationConfig.temperature`"),
        (b'{"contents":[],"generationConfig":[]}', PATH, "`generationConfig`"),
        (b'{"contents":' + b"[" * 5000 + b"]" * 5000 + b"}", PATH, "the body"),
    ],
)
def test_a_request_that_cannot_be_read_says_what_and_where(body: bytes, path: str, says: str) -> None:
    """The lab answers these with 400."""
    with pytest.raises(BadRequest) as raised:
        FAMILY.decode_request(body, path)
    assert says in str(raised.value)


def parts_of(messages: Sequence[Message], kind: type[Part]) -> list[Part]:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


def test_every_recorded_request_is_read_and_written_again(corpus: Path) -> None:
    """Requests of the recorded streams, conversations and errors: decoded, encoded, decoded, they stay the same; nothing of
    their texts, calls and results is missing. The one that the API refused for its role is refused by us too."""
    bodies: list[tuple[dict[str, Any], str]] = [
        (row.request, "/v1beta/models/m:streamGenerateContent?alt=sse")
        for row in recordings.of_family(corpus, NAME)
        if row.request is not None
    ]
    for folder in ("conversations", "errors"):
        for file in sorted((corpus / folder).glob("gemini*.json")):
            recorded = json.loads(file.read_text())
            requests = [each["request"] for each in recorded.get("exchanges", [recorded])]
            bodies += [(request["body"], request["path"]) for request in requests]
    assert len(bodies) > 190
    refused = 0
    for body, path in bodies:
        try:
            request = decoded(body, path)
        except BadRequest as error:
            assert "invalid_role" in str(error)
            refused += 1
            continue
        call = FAMILY.encode_request(request, PROFILE)
        again = FAMILY.decode_request(call.body, call.path)
        # Declared tools stand before the server's own.
        assert msgspec.structs.replace(again, tools=()) == msgspec.structs.replace(request, tools=())
        assert sorted(again.tools, key=lambda tool: tool.name) == sorted(request.tools, key=lambda tool: tool.name)
        text = json.dumps(body)
        assert len(parts_of(request.messages, ToolCall)) == text.count('"functionCall":') + text.count(
            '"function_call":'
        )
        results = text.count('"functionResponse":') + text.count('"function_response":')
        assert len(parts_of(request.messages, ToolResult)) == results
    assert refused == 1
