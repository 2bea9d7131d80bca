"""Chat Completions requests there and back again: what is kept, and what is lost by the table."""

import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import completion_create_params
from pydantic import TypeAdapter

from tables import each
from thoroughness import examples
from turnwise.testing.wire_conformance import check_prefix_stable, check_request_round_trip
from turnwise.vocab import (
    ArgumentsState,
    Citation,
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import BadRequest
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import builtin_profiles
from wire.openai_chat_requests import (
    KNOWN,
    OPENAI,
    PLAIN,
    WIDEST,
    body_of,
    opaque,
)

# Round trips up to the losses

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
NAMES = st.text(string.ascii_letters, min_size=1, max_size=6)
IDS = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
JSON_TEXTS = st.dictionaries(NAMES, st.integers(0, 9) | TEXTS, max_size=2).map(
    lambda v: msgspec.json.encode(v).decode()
)
SCHEMAS = JSON_TEXTS.map(lambda v: msgspec.json.encode({**json.loads(v), "type": "object", "properties": {}}).decode())
CACHED = opaque(cache_control={"type": "ephemeral"})
OPAQUES = st.sampled_from([None, None, CACHED])
FOREIGN = st.sampled_from([None, Opaque("gemini", '{"thoughtSignature":"s"}')])

INPUT_TEXTS = st.builds(Text, TEXTS, opaque=OPAQUES)
FILES = st.sampled_from(
    [
        File(media_type="image/png", data=b"\x00\x01"),
        File(media_type="image/*", url="https://a/b"),
        File(media_type="image/*", url="https://a/b", opaque=opaque(image_url={"detail": "high"})),
        File(media_type="application/pdf", data=b"x", name="a.pdf"),
        File(media_type="application/octet-stream", file_id="file-1"),
        File(media_type="audio/wav", data=b"x"),
    ]
)
ITEMS = st.just(ProviderItem("openai_chat", "reference", '{"type":"reference","reference_ids":[1]}'))
TOOLS = st.builds(
    ToolSpec,
    name=NAMES,
    description=st.sampled_from(["", "Does it."]),
    parameters=SCHEMAS,
    strict=st.booleans(),
    opaque=OPAQUES,
) | st.builds(ToolSpec, name=NAMES, free_form=st.just(True))


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """A user message, an answer and, where it calls, the results: what the family carries whole."""
    user = Message("user", tuple(draw(st.lists(INPUT_TEXTS | FILES | ITEMS, min_size=1, max_size=3))))
    parts: list[Part] = []
    details = opaque(reasoning_details=[{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}])
    if draw(st.booleans()):
        parts.append(Reasoning("hm", details))
    if draw(st.booleans()):
        parts.append(draw(INPUT_TEXTS))
    if draw(st.booleans()):
        parts.append(Refusal(draw(TEXTS)))
    calls: list[ToolCall] = []
    for call_id in draw(st.lists(IDS, unique=True, max_size=2)):
        free_form = draw(st.booleans())
        arguments = draw(TEXTS if free_form else JSON_TEXTS)
        calls.append(
            ToolCall(id=call_id, name=draw(NAMES), arguments=arguments, free_form=free_form, opaque=draw(OPAQUES))
        )
    messages = [user]
    if parts or calls:
        messages.append(Message("assistant", (*parts, *calls)))
    if calls:
        results = [
            ToolResult(
                call_id=call.id,
                name=call.name,
                content=tuple(draw(st.lists(st.builds(Text, TEXTS), max_size=2))),
                free_form=call.free_form,
            )
            for call in calls
        ]
        messages.append(Message("tool", tuple(results)))
    if draw(st.booleans()):
        messages.append(Message("system", (draw(INPUT_TEXTS),)))
    return messages


@st.composite
def carried_requests(draw: st.DrawFn) -> Request:
    tools = tuple(draw(st.lists(TOOLS, max_size=3, unique_by=lambda tool: tool.name)))
    choices = ["auto", "none", "required", *[NamedTool(tool.name) for tool in tools]] if tools else ["auto"]
    turns = draw(st.lists(exchanges(), min_size=1, max_size=2))
    return Request(
        model=draw(NAMES),
        messages=tuple([message for turn in turns for message in turn]),
        system=tuple(draw(st.lists(INPUT_TEXTS, max_size=1))),
        tools=tools,
        tool_choice=draw(st.sampled_from(choices)),
        parallel_tool_calls=draw(st.sampled_from([None, True, False])) if tools else None,
        output=draw(st.none() | st.builds(OutputSchema, schema=JSON_TEXTS, name=NAMES, strict=st.booleans())),
        settings=draw(
            st.builds(
                Settings,
                max_output_tokens=st.none() | st.integers(1, 9),
                temperature=st.none() | st.floats(0, 2),
                top_p=st.none() | st.floats(0, 1),
                stop=st.lists(TEXTS, max_size=2).map(tuple),
                seed=st.none() | st.integers(0, 9),
                reasoning_effort=st.sampled_from([None, "none", "high"]),
            )
        ),
        stream=draw(st.booleans()),
        extra=draw(st.sampled_from([None, opaque(user="u"), opaque(n=2, logit_bias={"1": 2})])),
    )


@settings(deadline=None)
@given(carried_requests())
def test_a_request_that_the_family_can_carry_comes_back_equal(request: Request) -> None:
    check_request_round_trip(FAMILY, request, profile=WIDEST, expected=request)


@each(
    ("messages", "expected"),
    [
        (
            [Message("assistant", (ToolCall(id="a", name="f"), Text("x"), Refusal("r"), Text("y"), Reasoning("hm")))],
            [Message("assistant", (Reasoning("hm"), Text("xy"), Refusal("r"), ToolCall(id="a", name="f")))],
        ),
        (
            [Message("assistant", (Text(""), ToolCall(id="a", name="f")))],
            [Message("assistant", (ToolCall(id="a", name="f"),))],
        ),
        ([Message("user", (Text("a", opaque=Opaque("gemini", '{"x":1}')),))], [Message("user", (Text("a"),))]),
        (
            [
                Message(
                    "assistant", (ProviderItem("gemini", "x", "{}"), Text("a"), File(media_type="image/png", data=b"x"))
                )
            ],
            [Message("assistant", (Text("a"),))],
        ),
        (
            [Message("assistant", (Text("a", citations=(Citation(family="openai_chat", raw="{}"),)),))],
            [Message("assistant", (Text("a"),))],
        ),
        (
            [Message("user", (File(media_type="image/png", url="http://a", name="b"),))],
            [Message("user", (File(media_type="image/*", url="http://a"),))],
        ),
        (
            [
                Message("tool", (ToolResult(call_id="a", name="f", is_error=True),)),
                Message("tool", (ToolResult(call_id="b", name="g"),)),
            ],
            [Message("tool", (ToolResult(call_id="a", name=""), ToolResult(call_id="b", name="")))],
        ),
        (
            [Message("tool", (ToolResult(call_id="a", name="", content=(File(media_type="image/png", data=b"x"),)),))],
            [
                Message("tool", (ToolResult(call_id="a", name=""),)),
                Message("user", (Text("Files that the call `a` returned:"), File(media_type="image/png", data=b"x"))),
            ],
        ),
        (
            [
                Message(
                    "assistant",
                    (ToolCall(id="a", name="f", arguments='{"x', state=ArgumentsState.TRUNCATED, reason="cut"),),
                )
            ],
            [Message("assistant", (ToolCall(id="a", name="f"),))],
        ),
    ],
    ids=[
        "order",
        "empty text",
        "opaque",
        "items and files",
        "citations",
        "media type",
        "results",
        "result files",
        "cut call",
    ],
)
def test_what_is_lost_becomes_what_the_loss_table_says(messages: list[Message], expected: list[Message]) -> None:
    profile = msgspec.structs.replace(WIDEST, reasoning_replay="reasoning_content")
    request = Request(model="m", messages=tuple(messages))
    after = Request(model="m", messages=tuple(expected))
    check_request_round_trip(FAMILY, request, profile=profile, expected=after)


@pytest.mark.promise("step:prefix-stable")
@settings(deadline=None)
@given(carried_requests(), st.lists(exchanges(), min_size=1, max_size=1), st.sampled_from(sorted(KNOWN)))
def test_the_next_steps_body_begins_with_the_bytes_of_this_one(
    request: Request, more: list[list[Message]], name: str
) -> None:
    """Other choice, limits, sampling and streaming stand after the messages, at every endpoint."""
    profile = KNOWN[name]
    if profile.family != "openai_chat":
        profile = PLAIN
    in_words = len(profile.tool_choices) < 4  # a choice that is said behind the messages is for its request only
    request = msgspec.structs.replace(request, tool_choice="auto") if in_words else request
    if request.messages[-1].role == "tool":
        more = [[message for message in more[0] if message.role != "tool"]]

    def later(longer: Request) -> Request:
        changed = Settings(max_output_tokens=1, temperature=1.0)
        choice = "none" if longer.tools and not in_words else "auto"
        return msgspec.structs.replace(longer, settings=changed, tool_choice=choice, stream=not longer.stream)

    check_prefix_stable(FAMILY, request, more[0], profile=profile, later=later)


@settings(deadline=None, max_examples=examples(50))
@given(carried_requests())
def test_the_openai_package_takes_every_message_that_we_write(request: Request) -> None:
    """Its own parameter types, validated: messages, tools, tool choice and response format."""
    plain = [
        message for message in request.messages if not any(isinstance(part, ProviderItem) for part in message.parts)
    ]
    sent = body_of(msgspec.structs.replace(request, messages=tuple(plain), extra=None), OPENAI)
    PARAMS.validate_python(sent)


PARAMS: TypeAdapter[Any] = TypeAdapter(
    completion_create_params.CompletionCreateParamsStreaming
    | completion_create_params.CompletionCreateParamsNonStreaming
)


@pytest.mark.promise("assembly:bounded")
@each("depth", [900, 950, *range(960, 1000, 3), 100_000])
def test_a_request_nested_beyond_reading_is_refused_by_name(depth: int) -> None:
    """Whether reading or keeping it is what goes too deep: never another exception."""
    nest = "[" * depth + "]" * depth
    for body in (
        '{"messages":[],"x":%s}',
        '{"messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":%s}}]}',
    ):
        try:
            FAMILY.decode_request((body % nest).encode(), "")
        except BadRequest as error:
            assert "deep" in str(error) or "no JSON object" in str(error)


@pytest.mark.parametrize(
    ("part", "content"),
    [
        (
            File(media_type="image/png", data=b"png"),
            "[file of type image/png left out: this endpoint does not take it]",
        ),
        (Reasoning("hm"), "(no text)"),
    ],
)
def test_an_assistant_message_without_text_and_calls_has_content_all_the_same(part: Part, content: str) -> None:
    """Strict servers answer 400 to `"content": null` without calls: an image that the model made, thoughts alone."""
    request = Request(model="m", messages=(Message("assistant", (part,)),))
    body = json.loads(FAMILY.encode_request(request, builtin_profiles()["openai_chat"]).body)
    assert body["messages"] == [{"role": "assistant", "content": content}]
