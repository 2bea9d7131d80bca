"""Requests of the Messages API: what we write is what the API documents, and comes back as it was but for the losses."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

import recordings
from tables import each
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
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.anthropic_messages import FAMILY
from turnwise.wire.family import BadRequest
from turnwise.wire.profiles import Profile

PROFILE = Profile(name="test", family="anthropic_messages", default_max_tokens=8192, mid_system=True)
NAME = "anthropic_messages"
FOREIGN = Opaque("openai_responses", '{"encrypted_content":"x"}')


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


def user(*parts: Part | str) -> Message:
    return Message("user", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part | str) -> Message:
    return Message("assistant", tuple(Text(part) if isinstance(part, str) else part for part in parts))


def ask(*messages: Message, **fields: Any) -> Request:
    fields.setdefault("settings", Settings(max_output_tokens=2000))
    return Request(model="claude", messages=messages or (user("hi"),), **fields)


def body_of(request: Request, profile: Profile = PROFILE) -> dict[str, Any]:
    return json.loads(FAMILY.encode_request(request, profile).body)


CALL = ToolCall(id="toolu_1", name="read", arguments='{"path": "a.txt"}')
RESULT = ToolResult(call_id="toolu_1", name="read", content=(Text("text of a"),))


def test_a_request_looks_as_the_api_documents_it() -> None:
    """The body of a second step, field by field in the order that keeps its beginning stable."""
    request = ask(
        user("read a"),
        assistant(Reasoning("hm", opaque=own(signature="sig")), "I read it.", CALL),
        Message("tool", (RESULT, ToolResult(call_id="toolu_2", name="read", content=(Text("no"),), is_error=True))),
        user("and be quick"),
        system=(Text("Be brief.", opaque=own(cache_control={"type": "ephemeral"})),),
        tools=(ToolSpec(name="read", description="Read a file", parameters='{"type":"object"}', strict=True),),
        tool_choice="none",
        settings=Settings(max_output_tokens=2000, temperature=0.5, stop=("END",)),
        output=OutputSchema(schema='{"type":"object","properties":{}}'),
    )
    call = FAMILY.encode_request(request, PROFILE)
    assert (call.path, call.headers) == ("/v1/messages", (("anthropic-version", "2023-06-01"),))
    body = json.loads(call.body)
    assert list(body.items()) == [
        ("model", "claude"),
        ("tools", [{"name": "read", "description": "Read a file", "input_schema": {"type": "object"}, "strict": True}]),
        ("system", [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]),
        (
            "messages",
            [
                {"role": "user", "content": [{"type": "text", "text": "read a"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "sig"},
                        {"type": "text", "text": "I read it."},
                        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.txt"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text of a"},
                        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no", "is_error": True},
                        {"type": "text", "text": "and be quick"},
                    ],
                },
            ],
        ),
        ("tool_choice", {"type": "none"}),
        ("output_config", {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}}),
        ("max_tokens", 2000),
        ("temperature", 0.5),
        ("stop_sequences", ["END"]),
        ("stream", True),
    ]


@each(
    ("settings", "profile", "expected"),
    [
        (Settings(max_output_tokens=5000, reasoning_tokens=2000), PROFILE, (5000, "enabled", 2000, None)),
        (Settings(reasoning_tokens=20000), PROFILE, (28192, "enabled", 20000, None)),
        (Settings(max_output_tokens=3000, reasoning_tokens=9000), PROFILE, (3000, "enabled", 2999, None)),
        (Settings(max_output_tokens=900, reasoning_tokens=2000), PROFILE, (900, None, None, None)),
        (Settings(reasoning_effort="xhigh"), PROFILE, (8192, "adaptive", None, "xhigh")),
        (Settings(reasoning_effort="minimal"), PROFILE, (8192, "adaptive", None, "low")),
        (Settings(reasoning_effort="none"), PROFILE, (8192, "disabled", None, None)),
        (
            Settings(reasoning_effort="low"),
            msgspec.structs.replace(PROFILE, reasoning_request="budget"),
            (10240, "enabled", 2048, None),
        ),
    ],
)
def test_thinking_leaves_room_for_the_answer(settings: Settings, profile: Profile, expected: tuple[Any, ...]) -> None:
    """`budget_tokens` stays below `max_tokens` (API docs, "Extended thinking"); effort goes by `output_config`."""
    body = body_of(ask(settings=settings), profile)
    thinking = body.get("thinking", {})
    effort = body.get("output_config", {}).get("effort")
    assert (body["max_tokens"], thinking.get("type"), thinking.get("budget_tokens"), effort) == expected


def test_choice_and_parallel_calls_share_one_object() -> None:
    """`disable_parallel_tool_use` stands inside `tool_choice`; without tools there is no choice."""
    tools = (ToolSpec(name="a"),)
    got = [
        body_of(ask(tools=tools, tool_choice=choice, parallel_tool_calls=parallel)).get("tool_choice")
        for choice in ("auto", "required", "none", NamedTool("a"))
        for parallel in (None, False)
    ]
    assert got == [
        None,
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "any"},
        {"type": "any", "disable_parallel_tool_use": True},
        {"type": "none"},
        {"type": "none"},
        {"type": "tool", "name": "a"},
        {"type": "tool", "name": "a", "disable_parallel_tool_use": True},
    ]
    assert "tool_choice" not in body_of(ask(tool_choice="required"))


def test_server_tools_go_as_they_came_and_foreign_ones_stay_away() -> None:
    """A tool of the API's own is opaque; another family's means nothing here."""
    search = ToolSpec(name="web_search", opaque=own(type="web_search_20250305", name="web_search", max_uses=3))
    foreign = ToolSpec(name="web_search_preview", opaque=Opaque("openai_responses", '{"type":"web_search_preview"}'))
    free = ToolSpec(name="patch", free_form=True)
    assert body_of(ask(tools=(search, foreign, free)))["tools"] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {
            "name": "patch",
            "input_schema": {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        },
    ]


def test_argument_pieces_are_asked_for_where_the_profile_says_so() -> None:
    """Fine-grained streaming is a field of each tool of ours and needs a stream (API docs, "Fine-grained tool streaming")."""
    profile = msgspec.structs.replace(PROFILE, fine_grained_tool_streaming=True)
    tools = (ToolSpec(name="write"), ToolSpec(name="s", opaque=own(type="web_search_20250305", name="web_search")))
    streamed = body_of(ask(tools=tools), profile)["tools"]
    assert [tool.get("eager_input_streaming") for tool in streamed] == [True, None]
    assert "eager_input_streaming" not in body_of(ask(tools=tools, stream=False), profile)["tools"][0]


def test_vertex_and_bedrock_have_the_model_in_the_path() -> None:
    """The path names the model, the body the version, and both are read back."""
    vertex = Profile(
        name="vertex",
        family="anthropic_messages",
        model_in_body=False,
        path="/{model}:rawPredict",
        stream_path="/{model}:streamRawPredict",
        body='{"anthropic_version":"vertex-2023-10-16"}',
    )
    request = msgspec.structs.replace(ask(), model="claude-3-7-sonnet@20250219")
    call = FAMILY.encode_request(request, vertex)
    assert call.path == "/claude-3-7-sonnet@20250219:streamRawPredict"
    assert call.headers == ()
    body = json.loads(call.body)
    assert body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in body
    decoded = FAMILY.decode_request(call.body, call.path)
    assert (decoded.model, decoded.stream) == (request.model, True)
    bedrock = b'{"anthropic_version":"bedrock-2023-05-31","max_tokens":5,"messages":[]}'
    path = "/model/anthropic.claude-opus-4-20250514-v1%3A0/invoke-with-response-stream"
    decoded = FAMILY.decode_request(bedrock, path)
    assert (decoded.model, decoded.stream) == ("anthropic.claude-opus-4-20250514-v1:0", True)


def test_extra_fields_go_over_the_body_and_share_the_output_config() -> None:
    """`extra` is merged last; effort that a client set stays beside the format that we know."""
    extra = own(top_k=5, output_config={"effort": "max"}, max_tokens=7)
    body = body_of(ask(extra=extra, output=OutputSchema(schema='{"type":"object"}')))
    assert (body["top_k"], body["max_tokens"]) == (5, 7)
    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": {"type": "object"}},
        "effort": "max",
    }
    assert body_of(ask(extra=Opaque("gemini", '{"top_k":5}'))) == body_of(ask())


@pytest.mark.promise("step:prefix-stable")
def test_the_next_step_begins_with_the_bytes_of_this_one() -> None:
    """A later step changes choice, limits and format only after the messages."""

    def later(request: Request) -> Request:
        return msgspec.structs.replace(
            request, tool_choice="none", settings=Settings(max_output_tokens=9, temperature=1.0), stream=False
        )

    more = (assistant(CALL), Message("tool", (RESULT,)), user("answer now"))
    request = ask(tools=(ToolSpec(name="read"),), system=(Text("s"),))
    check_prefix_stable(FAMILY, request, more, profile=PROFILE, later=later)


# --- there and back

texts = st.text(min_size=1, max_size=20).filter(lambda text: text.strip() != "")
ids = st.text("abcXYZ019_-", min_size=1, max_size=12)
objects = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3).map(
    lambda value: msgspec.json.encode(value).decode()
)
marks = st.none() | st.just(own(cache_control={"type": "ephemeral"}))
citations = st.builds(
    lambda url, cited: Citation(
        family=NAME,
        raw=json.dumps(
            {
                "type": "web_search_result_location",
                "url": url,
                "title": "t",
                "encrypted_index": "e",
                "cited_text": cited,
            }
        ),
        url=url,
        title="t",
        cited_text=cited,
    ),
    texts,
    texts,
)
plain_texts = st.builds(Text, texts, opaque=marks)
images = st.builds(File, media_type=st.just("image/png"), data=st.binary(max_size=9), opaque=marks)
documents = st.one_of(
    st.builds(File, media_type=st.just("application/pdf"), data=st.binary(max_size=9), name=st.none() | texts),
    st.builds(File, media_type=st.just("text/plain"), data=texts.map(str.encode), name=texts),
    st.builds(File, media_type=st.just("application/pdf"), url=texts),
    st.builds(File, media_type=st.just("image/*"), file_id=texts),
)
items = ids.map(
    lambda call: ProviderItem(
        NAME,
        "server_tool_use",
        '{"type":"server_tool_use","id":"' + call + '","name":"web_search","input":{"query":"q"}}',
    )
)
reasoning = st.one_of(
    st.builds(Reasoning, st.text(max_size=9), opaque=st.just(own(signature="sig"))),
    st.just(Reasoning("", opaque=own(data="encrypted"))),
)
answers = st.lists(
    reasoning
    | items
    | st.builds(Text, texts, citations=st.lists(citations, max_size=2).map(tuple))
    | st.builds(
        ToolCall,
        id=ids,
        name=ids,
        arguments=objects,
        opaque=st.none() | st.just(own(caller={"type": "code_execution_20260120", "tool_id": "s"})),
    ),
    min_size=1,
    max_size=4,
)


def results_of(call: ToolCall, kinds: st.SearchStrategy[Text | File]) -> st.SearchStrategy[ToolResult]:
    """An error only where all its content is words (a loss)."""
    return st.lists(kinds, max_size=2).flatmap(
        lambda content: st.builds(
            ToolResult,
            call_id=st.just(call.id),
            name=st.just(call.name),
            content=st.just(tuple(content)),
            is_error=st.booleans() if content and all(isinstance(one, Text) for one in content) else st.just(False),
        )
    )


def test_an_error_without_words_goes_as_a_plain_result() -> None:
    """The API refuses `is_error` beside a file and beside nothing."""
    image = File(media_type="image/png", data=b"x")
    for content in ((), (image,), (Text("no"), image)):
        request = ask(
            user("read"),
            assistant(CALL),
            Message("tool", (ToolResult(call_id="toolu_1", name="read", content=content, is_error=True),)),
        )
        assert "is_error" not in body_of(request)["messages"][-1]["content"][0]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Messages that lose nothing: roles alternate, every call has its result with its name, the user has the last word."""
    messages = [Message("user", tuple(draw(st.lists(plain_texts | images | documents, min_size=1, max_size=3))))]
    for parts in draw(st.lists(answers, max_size=3)):
        messages.append(Message("assistant", tuple(parts)))
        results = tuple(
            draw(results_of(part, draw(st.sampled_from([plain_texts | images, plain_texts]))))
            for part in parts
            if isinstance(part, ToolCall)
        )
        if results:
            messages.append(Message("tool", results))
        if not results or draw(st.booleans()):
            messages.append(Message("user", (draw(plain_texts),)))
    return tuple(messages)


settings = st.builds(
    Settings,
    max_output_tokens=st.integers(2000, 9000),
    temperature=st.none() | st.just(1.0),
    top_p=st.none() | st.floats(0, 1),
    stop=st.lists(texts, max_size=2).map(tuple),
    reasoning_effort=st.sampled_from([None, "none", "low", "medium", "high", "xhigh"]),
)
requests = st.builds(
    Request,
    model=texts,
    messages=conversations(),
    system=st.lists(plain_texts, max_size=2).map(tuple),
    tools=st.just(
        (
            ToolSpec(name="read", description="d", strict=True, opaque=own(cache_control={"type": "ephemeral"})),
            ToolSpec(name="web_search", opaque=own(type="web_search_20250305", name="web_search")),
        )
    ),
    tool_choice=st.sampled_from(["auto", "none"]),
    output=st.none() | st.just(OutputSchema(schema='{"type":"object"}')),
    settings=settings,
    stream=st.booleans(),
    extra=st.none() | st.just(own(metadata={"user_id": "u"})),
)


@given(requests)
def test_requests_come_back_as_they_were(request: Request) -> None:
    """Encode, decode: equal. And the second time nothing changes."""
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=request)


AT_LIMIT = Settings(max_output_tokens=2000)
DOWNGRADED = msgspec.structs.replace(PROFILE, mid_system=False)
TOOL = (ToolSpec(name="read"),)
LOST: dict[str, tuple[Request, Request]] = {
    "seed": (ask(settings=Settings(max_output_tokens=2000, seed=1)), ask()),
    "name and strictness of the output schema": (
        ask(output=OutputSchema(schema='{"type":"object"}', name="n", strict=False)),
        ask(output=OutputSchema(schema='{"type":"object"}')),
    ),
    "reasoning effort `minimal`": (
        ask(settings=Settings(max_output_tokens=2000, reasoning_effort="minimal")),
        ask(settings=Settings(max_output_tokens=2000, reasoning_effort="low")),
    ),
    "a missing output limit": (ask(settings=Settings()), ask(settings=Settings(max_output_tokens=8192))),
    "thinking with a forced tool choice, or with an output limit of 1,024 tokens or less": (
        ask(tools=TOOL, tool_choice="required", settings=Settings(max_output_tokens=2000, reasoning_tokens=1500)),
        ask(tools=TOOL, tool_choice="required"),
    ),
    "a thinking budget that reaches the output limit": (
        ask(settings=Settings(max_output_tokens=2000, reasoning_tokens=5000)),
        ask(settings=Settings(max_output_tokens=2000, reasoning_tokens=1999)),
    ),
    "temperature together with thinking": (
        ask(settings=Settings(max_output_tokens=2000, reasoning_tokens=1500, temperature=0.5)),
        ask(settings=Settings(max_output_tokens=2000, reasoning_tokens=1500)),
    ),
    "tool choice without tools": (ask(tool_choice="required", parallel_tool_calls=False), ask()),
    "`parallel_tool_calls` with the tool choice `none`": (
        ask(tools=TOOL, tool_choice="none", parallel_tool_calls=True),
        ask(tools=TOOL, tool_choice="none"),
    ),
    "free-form tools": (
        ask(tools=(ToolSpec(name="patch", free_form=True),)),
        ask(
            tools=(
                ToolSpec(
                    name="patch",
                    parameters='{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}',
                ),
            )
        ),
    ),
    "free-form calls": (
        ask(assistant(ToolCall(id="a", name="patch", arguments='say "hi"', free_form=True)), user("x")),
        ask(assistant(ToolCall(id="a", name="patch", arguments='{"input":"say \\"hi\\""}')), user("x")),
    ),
    "`is_error` of a tool result without text, or with a file": (
        ask(assistant(CALL), Message("tool", (msgspec.structs.replace(RESULT, content=(), is_error=True),))),
        ask(assistant(CALL), Message("tool", (msgspec.structs.replace(RESULT, content=()),))),
    ),
    "the mark that a result belongs to a free-form call": (
        ask(assistant(CALL), Message("tool", (msgspec.structs.replace(RESULT, free_form=True),))),
        ask(assistant(CALL), Message("tool", (RESULT,))),
    ),
    "arguments of a call that is not complete": (
        ask(assistant(ToolCall(id="a", name="n", arguments='{"a', state=ArgumentsState.TRUNCATED)), user("x")),
        ask(assistant(ToolCall(id="a", name="n")), user("x")),
    ),
    "the reason why a call is not complete": (
        ask(assistant(ToolCall(id="a", name="n", state=ArgumentsState.INVALID, reason="cut")), user("x")),
        ask(assistant(ToolCall(id="a", name="n")), user("x")),
    ),
    "characters of a call id other than `a-z`, `A-Z`, `0-9`, `_` and `-`": (
        ask(
            assistant(ToolCall(id="functions.read:0", name="read")),
            Message("tool", (ToolResult(call_id="functions.read:0", name="read"),)),
        ),
        ask(
            assistant(ToolCall(id="functions_read_0_b2012d8e", name="read")),
            Message("tool", (ToolResult(call_id="functions_read_0_b2012d8e", name="read"),)),
        ),
    ),
    "tool name in a result whose call is not in the request": (
        ask(Message("tool", (RESULT,))),
        ask(Message("tool", (msgspec.structs.replace(RESULT, name=""),))),
    ),
    "messages of one role that follow each other": (
        ask(user("a"), user("b"), assistant("c"), assistant("d"), user("e")),
        ask(user("a", "b"), assistant("c", "d"), user("e")),
    ),
    "messages in which nothing can be sent": (
        ask(user("a"), assistant(ProviderItem("gemini", "x", "{}")), user("b")),
        ask(user("a", "b")),
    ),
    "empty texts": (ask(user("a", ""), assistant("", CALL), user("b")), ask(user("a"), assistant(CALL), user("b"))),
    "texts of white space only, except next to other parts of an assistant message": (
        ask(user("a", " "), assistant(" ", CALL), user("b"), assistant("\n"), user("c")),
        ask(user("a"), assistant(" ", CALL), user("b", "c")),
    ),
    "white space at the end of the last message, if it is the assistant's": (
        ask(user("a"), assistant("The answer is ")),
        ask(user("a"), assistant("The answer is")),
    ),
    "reasoning without this API's signature": (
        ask(user("a"), assistant(Reasoning("r"), Reasoning("s", opaque=FOREIGN), "b"), user("c")),
        ask(user("a"), assistant("b"), user("c")),
    ),
    "refusals": (ask(user("a"), assistant(Refusal("no")), user("b")), ask(user("a"), assistant("no"), user("b"))),
    "files in assistant messages": (
        ask(user("a"), assistant(File(media_type="image/png", data=b"x"), "b"), user("c")),
        ask(user("a"), assistant("b"), user("c")),
    ),
    "audio and video": (
        ask(user(File(media_type="audio/wav", data=b"x", name="a.wav"))),
        ask(user("[file `a.wav` of type audio/wav left out: this endpoint does not take it]")),
    ),
    "name of an image": (
        ask(user(File(media_type="image/png", data=b"x", name="a.png"))),
        ask(user(File(media_type="image/png", data=b"x"))),
    ),
    "media type of a text document": (
        ask(user(File(media_type="application/json", data=b"{}"))),
        ask(user(File(media_type="text/plain", data=b"{}"))),
    ),
    "media type of a file by URL or id": (
        ask(user(File(media_type="image/png", url="u"), File(media_type="text/csv", file_id="f"))),
        ask(user(File(media_type="image/*", url="u"), File(media_type="application/*", file_id="f"))),
    ),
    "opaque data, citations and provider items of other families, and their server-side tools": (
        ask(
            user(Text("a", opaque=FOREIGN, citations=(Citation(family="gemini", raw="{}"),))),
            assistant(ProviderItem("gemini", "x", "{}"), "b"),
            user("c"),
            tools=(ToolSpec(name="s", opaque=FOREIGN),),
        ),
        ask(user("a"), assistant("b"), user("c")),
    ),
}


@each("what", LOST)
def test_each_loss_is_exactly_as_the_table_says(what: str) -> None:
    """One request for each row of the loss table: what becomes of it, and that nothing else changes."""
    request, expected = LOST[what]
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=expected)


def test_system_messages_become_the_users_where_the_model_takes_none() -> None:
    """Models before Opus 4.8 answer 400 to role `system` in `messages`; the profile says who takes it."""
    request = ask(user("a"), Message("system", (Text("be kind"),)))
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=request)
    check_request_round_trip(FAMILY, request, profile=DOWNGRADED, expected=ask(user("a", "be kind")))


def test_every_loss_of_requests_has_its_proof() -> None:
    """No row without a test, no test without a row."""
    rows = {loss.what for loss in FAMILY.losses if loss.direction in ("request", "both")}
    assert rows - set(LOST) == {"system messages inside the conversation, if `mid_system` is off in the profile"}
    assert set(LOST) <= rows


# --- what clients send


def test_unknown_blocks_and_fields_are_kept() -> None:
    """Nothing of a client's request is lost because we have no word for it."""
    body = {
        "model": "claude",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": {"type": "content", "content": "text"}, "title": "t"},
                    {"type": "search_result", "source": "s", "title": "t", "content": []},
                ],
            },
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "n", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [{"type": "tool_reference", "tool_name": "x"}, {"type": "text", "text": "y"}],
                    }
                ],
            },
        ],
        "tools": [{"type": "browser_toolset_20260801"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
        "output_config": {"effort": "max"},
        "max_tokens": 2000,
        "metadata": {"user_id": "u"},
    }
    request = FAMILY.decode_request(json.dumps(body).encode(), "")
    assert body_of(request) == body
    (result,) = request.messages[2].parts
    assert isinstance(result, ToolResult)
    assert (result.name, result.content) == ("n", (Text("y"),))


@each(
    ("body", "message"),
    [
        ("nonsense", "The request body is not valid"),
        ("[1]", "The request body is not valid"),
        ('{"model":"m","max_tokens":1}', "messages: Field required"),
        ('{"model":"m","messages":[]}', "max_tokens: Field required"),
        ('{"max_tokens":1,"messages":[]}', "model: Field required"),
        ('{"model":"m","max_tokens":"x","messages":[]}', "max_tokens"),
        ('{"model":"m","max_tokens":1,"messages":[{"role":"tool","content":"x"}]}', "messages.0.role"),
        ('{"model":"m","max_tokens":1,"messages":[{"role":"user"}]}', "messages.0.content: Field required"),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":""}]}',
            "messages.0: all messages must have non-empty content except for the optional final assistant message",
        ),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text"}]}]}',
            "messages.0.content.0.text: Field required",
        ),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":'
            '[{"type":"tool_use","id":"a","name":"n","input":[]}]}]}',
            "messages.0.content.0.input: Input should be a valid dictionary",
        ),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]}',
            "messages.0.content.0.tool_use_id: Field required",
        ),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"t"}]}',
            "tools.0.custom.input_schema: Field required",
        ),
        (
            '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"x"}}',
            "tool_choice.type",
        ),
    ],
)
def test_a_malformed_request_is_told_where_and_what(body: str, message: str) -> None:
    """The lab answers with these texts; they read as the API's own."""
    with pytest.raises(BadRequest) as caught:
        FAMILY.decode_request(body.encode(), "/v1/messages")
    assert message in str(caught.value)


# --- judged by others

ACCEPTED = TypeAdapter(MessageCreateParamsStreaming | MessageCreateParamsNonStreaming)


@given(requests)
def test_the_sdks_own_types_take_what_we_write(request: Request) -> None:
    """`anthropic.types.MessageCreateParams` validates the body; `temperature` left its types with API version 2026-10-21."""
    body = body_of(request)
    body.pop("temperature", None)
    body.pop("top_p", None)
    walk(ACCEPTED.validate_python(body))


def walk(value: object) -> None:
    """Pydantic checks an Iterable only while it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            walk(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            walk(inner)


def test_recorded_requests_are_read_and_written_again(corpus: Path) -> None:
    """Every recorded request decodes, and what we make of it decodes to the same."""
    read = 0
    bodies = [(row.request, "", row.file) for row in recordings.of_family(corpus, NAME) if row.request]
    for file in sorted((corpus / "conversations").glob("anthropic-*.json")):
        for exchange in json.loads(file.read_text())["exchanges"]:
            bodies.append((exchange["request"]["body"], exchange["request"]["path"], file.name))
    for body, path, name in bodies:
        request = FAMILY.decode_request(json.dumps(body).encode(), path)
        call = FAMILY.encode_request(request, PROFILE)
        assert FAMILY.decode_request(call.body, call.path) == request, name
        read += 1
    assert read >= 250


def test_recorded_bad_requests_are_refused_only_where_the_api_refused_their_shape(corpus: Path) -> None:
    """Of the recorded requests that failed, only malformed ones fail here, with the API's own words."""
    refused: dict[str, str] = {}
    for file in sorted((corpus / "errors").glob("anthropic__*.json")):
        recorded = json.loads(file.read_text())
        try:
            FAMILY.decode_request(json.dumps(recorded["request"]["body"]).encode(), recorded["request"]["path"])
        except BadRequest as error:
            refused[str(error)] = json.loads(recorded["response"]["body"])["error"]["message"]
    assert len(refused) == 3
    assert all(ours == theirs for ours, theirs in refused.items())


def test_calls_whose_ids_differ_in_punctuation_alone_keep_their_own_results() -> None:
    """The API takes no dots and colons; both ids as `a_b` would be refused as one id used twice."""
    ids = ("a.b", "a:b", "a_b")
    calls = Message("assistant", tuple([ToolCall(id=id, name="read") for id in ids]))
    results = Message("tool", tuple([ToolResult(call_id=id, name="read", content=(Text(id),)) for id in ids]))
    sent = json.loads(FAMILY.encode_request(ask(user("x"), calls, results), PROFILE).body)["messages"]
    called = [block["id"] for block in sent[1]["content"]]
    assert len(set(called)) == 3 and called[2] == "a_b"
    assert [(block["tool_use_id"], block["content"]) for block in sent[2]["content"]] == list(
        zip(called, ids, strict=True)
    )


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize("choice", ["auto", "required", NamedTool("t")])
def test_the_setting_for_stale_thinking_stands_beside_no_forced_call(choice: ToolChoice) -> None:
    """It brings `thinking` with it, which the API refuses beside a forced tool choice; the header goes with it alone. Of the
    models that bind, Haiku 5.5 can be forced; for the others the choice goes up as `auto`."""
    tool = ToolSpec(name="t", parameters='{"type":"object","properties":{}}')
    hello = Message("user", (Text("hi"),))
    request = Request(model="claude-haiku-5-5", messages=(hello,), tools=(tool,), tool_choice=choice)
    call = FAMILY.encode_request(msgspec.structs.replace(request, drops_stale_thinking=True), PROFILE)
    asks = "thinking-binding-controls-2026-08-01" in dict(call.headers).get("anthropic-beta", "")
    assert asks == (choice == "auto")
    thinking = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert json.loads(call.body).get("thinking") == (thinking if asks else None)


SHOWN = {"type": "adaptive", "display": "summarized"}


@pytest.mark.promise("heal:generation")
@each(
    ("model", "fields", "expected"),
    [
        ("claude-opus-5-5", {}, SHOWN),
        ("anthropic/claude-sonnet-5.5", {}, SHOWN),
        ("claude-fable-5-2", {"settings": Settings(reasoning_effort="high")}, SHOWN),
        ("claude-fable-5-2", {"settings": Settings(reasoning_effort="none")}, SHOWN),
        ("claude-sonnet-5-5", {"settings": Settings(reasoning_effort="none")}, {"type": "between_tools"}),
        ("claude-opus-5-5", {"extra": Opaque("anthropic_messages", '{"thinking":{"display":"omitted"}}')}, None),
        ("claude-opus-5-5", {"tool_choice": "required"}, SHOWN),
        ("claude-fable-5", {"tool_choice": "required"}, {}),
        ("claude-haiku-5-5", {}, {}),
        ("claude-opus-5", {}, {}),
        ("claude-opus-4-6", {"settings": Settings(reasoning_effort="high")}, {"type": "adaptive"}),
    ],
)
def test_thinking_is_shown_where_the_model_moves_its_words_into_it(
    model: str, fields: dict[str, Any], expected: dict[str, str] | None
) -> None:
    """Proves: models that put what they say between calls into thinking are asked for it as text, whatever else is asked of
    their thinking; no other model is, none whose thinking is off or that is forced to a call without it, and a caller's own
    `display` stands. A request that does not want it says nothing. Sources: Claude docs, "Thinking", "Progress updates between
    tool calls"; "What's new in Claude Opus 5.5" and "Sonnet 5.5", "Text between tool calls" (November 2026)."""
    tool = ToolSpec(name="t", parameters='{"type":"object","properties":{}}')
    request = Request(model=model, messages=(Message("user", (Text("hi"),)),), tools=(tool,), **fields)
    plain = json.loads(FAMILY.encode_request(request, PROFILE).body)
    shown = json.loads(FAMILY.encode_request(msgspec.structs.replace(request, shows_thinking=True), PROFILE).body)
    assert shown.pop("thinking", {}) == ({"display": "omitted"} if expected is None else expected)
    assert shown == {key: value for key, value in plain.items() if key != "thinking"}
    assert plain.get("thinking", {}).get("display") != "summarized"
