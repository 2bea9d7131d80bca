"""Answers in another family's words, as the gateway writes them: the vendors' schemas and types take each body and event.

The judges are not ours: the types of Open Responses (openresponses-types) and of the vendors' packages, and the schemas that
Anthropic and OpenAI publish (in llm-comply)."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import openresponses_types as open_types
import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_comply import schema
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from thoroughness import examples
from turnwise.testing.wire_conformance import encode_stream, frames_of
from turnwise.vocab import (
    Fault,
    Faulted,
    FaultKind,
    FinishReason,
    Message,
    NamedTool,
    OutputSchema,
    Part,
    Reasoning,
    Refusal,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
)
from turnwise.wire.family import family

Event = dict[str, Any]
Judge = Callable[[Event], object]

SPECS = Path(schema.__file__).parent / "specs"
OPEN_EVENTS = {
    name: kind
    for kind in vars(open_types).values()
    if isinstance(kind, type) and kind.__name__.endswith("StreamingEvent")
    for name in [next(iter(kind.model_fields["type"].annotation)).value]
}
LATER = ("custom",)
"""Calls of free-form tools: the schemas of Chat Completions in llm-comply do not know them, nor does OpenAI's type of a chunk."""
OF_FREE_FORM = ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
NOT_OPEN = ("custom_tool_call", "custom", "json_schema", *OF_FREE_FORM)
"""What OpenAI has and Open Responses has not. Of a JSON answer the latter allows no schema but null."""

TOOLS = (
    ToolSpec(name="read", parameters='{"type":"object","properties":{"path":{"type":"string"}}}'),
    ToolSpec(name="note", description="Keeps a note.", parameters='{"type":"object","properties":{}}', strict=True),
    ToolSpec(name="sql", parameters="{}", free_form=True),
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
parts: st.SearchStrategy[Part] = st.one_of(
    texts.map(Text),
    texts.map(Reasoning),
    texts.map(Refusal),
    st.integers(1, 9).map(lambda n: ToolCall(id=f"call_{n}", name="read", arguments=f'{{"path":"{n}"}}')),
    st.integers(1, 9).map(lambda n: ToolCall(id=f"toolu_{n}", name="sql", arguments="select 1", free_form=True)),
)
FOREIGN = (
    "",
    '{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}',
    '{"input_tokens":5,"output_tokens":2,"total_tokens":7}',
    '{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":2,"server_tool_use":{"web_search_requests":1}}',
    '{"promptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":7}',
)
usages = st.builds(
    lambda read, thought, text: Usage(
        input_tokens=5, output_tokens=2, cache_read_tokens=read, reasoning_tokens=thought, provider=text
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(FOREIGN),
)
requests = st.builds(
    Request,
    model=st.just("m"),
    system=st.sampled_from([(), (Text("Be brief."),)]),
    messages=st.just((Message("user", (Text("hi"),)),)),
    tools=st.sampled_from([(), TOOLS[:2], TOOLS]),
    tool_choice=st.sampled_from(["auto", "none", "required", NamedTool("read")]),
    output=st.sampled_from(
        [None, OutputSchema(schema='{"type":"object","properties":{},"additionalProperties":false}')]
    ),
    settings=st.sampled_from([Settings(), Settings(temperature=0.5, max_output_tokens=64, reasoning_effort="low")]),
)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """Whole ones of any upstream; ids of calls are unique."""
    said = tuple(
        draw(st.lists(parts, max_size=4, unique_by=lambda one: one.id if isinstance(one, ToolCall) else object()))
    )
    ends = [FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER]
    calls = any(isinstance(one, ToolCall) for one in said)
    return Response(
        message=Message("assistant", said),
        finish=FinishReason.TOOL_CALLS if calls else draw(st.sampled_from(ends)),
        usage=draw(usages),
        id=draw(st.sampled_from([None, "lab-1"])),
        model=draw(st.sampled_from([None, "m-1"])),
    )


@cache
def spec(name: str) -> schema.SpecLoader:
    loader = schema.SpecLoader(str(SPECS / name))
    for one in loader.schema_names:
        allow_null(loader.get_schema(one))
    return loader


def allow_null(value: Any) -> None:
    """In OpenAPI 3.0 `nullable` goes for an enum, too; the loader makes a type of it, and forgets the enum."""
    if isinstance(value, dict):
        kinds, words = value.get("type"), value.get("enum")
        if isinstance(words, list) and isinstance(kinds, list) and "null" in kinds and None not in words:
            words.append(None)
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        allow_null(inner)


def by_schema(name: str, of: str) -> Judge:
    def judge(value: Event) -> None:
        assert has_type(value, LATER) or spec(name).validate(value, of) == [], value

    return judge


def has_type(value: Any, types: tuple[str, ...]) -> bool:
    """Whether it or something in it is of one of these types."""
    if isinstance(value, dict):
        return value.get("type") in types or any(has_type(inner, types) for inner in value.values())
    return isinstance(value, list) and any(has_type(inner, types) for inner in value)


def chunk(value: Event) -> None:
    if not has_type(value, LATER):
        ChatCompletionChunk.model_validate(value)


def open_response(value: Event) -> None:
    if not has_type(value, NOT_OPEN):
        open_types.ResponseResource.model_validate(value)


def open_event(value: Event) -> None:
    if not has_type(value, NOT_OPEN):
        OPEN_EVENTS[value["type"]].model_validate(value)


# By family: who judges bodies, and who judges the events of a stream.
JUDGES: dict[str, tuple[tuple[Judge, ...], tuple[Judge, ...]]] = {
    "openai_chat": (
        (ChatCompletion.model_validate, by_schema("openai_chat.json", "CreateChatCompletionResponse")),
        (chunk, by_schema("openai_chat.json", "CreateChatCompletionStreamResponse")),
    ),
    "openai_responses": (
        (OpenAIResponse.model_validate, open_response),
        (TypeAdapter(ResponseStreamEvent).validate_python, open_event),
    ),
    "anthropic_messages": (
        (AnthropicMessage.model_validate, by_schema("anthropic.json", "Message")),
        (TypeAdapter(RawMessageStreamEvent).validate_python, by_schema("anthropic.json", "MessageStreamEvent")),
    ),
    "gemini": ((GenerateContentResponse.model_validate,), (GenerateContentResponse.model_validate,)),
}


def events_in(stream: bytes) -> Iterator[Event]:
    for line in stream.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning")


@pytest.mark.parametrize("name", JUDGES)
def test_others_take_every_body_and_event_that_is_written_anew(name: str) -> None:
    """Proves: whatever an upstream of another family says, a client's own types and the published schemas have no complaint."""
    of_bodies, of_events = JUDGES[name]
    writer = family(name)

    @given(response=responses(), request=requests)
    @settings(max_examples=examples(80))
    def check(response: Response, request: Request) -> None:
        body = json.loads(writer.encode_body(response, request))
        for judge in of_bodies:
            judge(body)
        for event in events_in(encode_stream(writer, frames_of(response, piece=3), request=request)):
            for judge in of_events:
                judge(event)

    check()


def test_others_take_a_stream_that_ends_with_an_error() -> None:
    """Proves: of the Responses API, whose streams say an error twice, as an event and in the response."""
    said = frames_of(Response(message=Message("assistant", (Text("a"),)), finish=FinishReason.STOP))[:-1]
    fault = Faulted(Fault(kind=FaultKind.OVERLOADED, message="busy", status=529))
    stream = encode_stream(family("openai_responses"), [*said, fault], request=Request(model="m", messages=()))
    events = list(events_in(stream))
    assert [event["type"] for event in events][-2:] == ["error", "response.failed"]
    for event in events:
        open_event(event)
