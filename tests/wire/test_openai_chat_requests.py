"""Chat Completions requests: the body that we write, the same read back, and every recorded one."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import recordings
from tables import each
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
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
from turnwise.wire.openai_chat import FAMILY
from wire.openai_chat_requests import (
    KNOWN,
    OPENAI,
    PLAIN,
    USER,
    WIDEST,
    body_of,
    message_of,
    opaque,
    read,
    read_messages,
)

# The body


def test_a_body_holds_what_stays_the_same_first_and_what_may_change_last() -> None:
    """The whole body as OpenAI takes it."""
    request = Request(
        model="gpt-5",
        system=(Text("be kind"), Text("be brief")),
        messages=(
            USER,
            Message(
                "assistant",
                (Reasoning("hm"), Text("I look."), ToolCall(id="a", name="read", arguments='{"path": "x"}')),
            ),
            Message("tool", (ToolResult(call_id="a", name="read", content=(Text("text"),)),)),
        ),
        tools=(
            ToolSpec(name="read", description="Reads.", parameters='{"type":"object"}', strict=True),
            ToolSpec(name="patch", free_form=True),
        ),
        tool_choice=NamedTool("read"),
        parallel_tool_calls=False,
        output=OutputSchema(schema='{"type":"object"}', name="out"),
        settings=Settings(
            max_output_tokens=9, temperature=0.5, top_p=0.9, stop=("x",), seed=7, reasoning_effort="high"
        ),
        extra=opaque(user="u", n=1),
    )
    call = FAMILY.encode_request(request, OPENAI)
    assert call.path == "/chat/completions"
    assert list(json.loads(call.body).items()) == [
        ("model", "gpt-5"),
        (
            "tools",
            [
                {
                    "type": "function",
                    "function": {
                        "name": "read",
                        "description": "Reads.",
                        "parameters": {"type": "object"},
                        "strict": True,
                    },
                },
                {"type": "custom", "custom": {"name": "patch"}},
            ],
        ),
        (
            "messages",
            [
                {"role": "developer", "content": "be kind\n\nbe brief"},
                {"role": "user", "content": "hi"},
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "a", "content": "text"},
            ],
        ),
        ("tool_choice", {"type": "function", "function": {"name": "read"}}),
        ("parallel_tool_calls", False),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "out", "strict": True, "schema": {"type": "object"}}},
        ),
        ("max_completion_tokens", 9),
        ("temperature", 0.5),
        ("top_p", 0.9),
        ("stop", ["x"]),
        ("seed", 7),
        ("reasoning_effort", "high"),
        ("stream", True),
        ("stream_options", {"include_usage": True}),
        ("user", "u"),
        ("n", 1),
    ]


def test_arguments_and_schemas_go_back_byte_for_byte() -> None:
    """Blanks, key order and large numbers stay as the model and the user wrote them."""
    schema = '{"type": "object",  "properties": {}, "b":12345678901234567890, "a":1.0}'
    arguments = '{"b": 1,\n "a":12345678901234567890}'
    request = Request(
        model="m",
        messages=(USER, Message("assistant", (ToolCall(id="a", name="f", arguments=arguments),))),
        tools=(ToolSpec(name="f", parameters=schema),),
        output=OutputSchema(schema=schema),
    )
    body = FAMILY.encode_request(request, PLAIN).body
    assert body.count(schema.encode()) == 2
    assert json.loads(body)["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("state", [ArgumentsState.TRUNCATED, ArgumentsState.INVALID])
def test_a_call_that_is_not_complete_goes_back_without_arguments(state: ArgumentsState) -> None:
    """Several servers parse the string of every call in the history and refuse the request where it is no JSON."""
    call = ToolCall(id="a", name="f", arguments='{"path": "x', state=state)
    assert message_of(Message("assistant", (call,)))[0]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_extra_fields_lie_over_the_body_and_null_takes_away() -> None:
    request = Request(model="m", messages=(USER,), extra=opaque(stream_options=None, top_k=4, model="other"))
    body = body_of(request)
    assert (body["model"], body["top_k"], "stream_options" in body) == ("other", 4, False)
    profile = msgspec.structs.replace(PLAIN, body='{"top_k":1,"safe":true}')
    body = body_of(request, profile)
    assert (body["top_k"], body["safe"]) == (4, True)


def test_tool_settings_without_tools_are_not_sent() -> None:
    """OpenAI refuses `tool_choice` and `parallel_tool_calls` where there are no tools."""
    request = Request(model="m", messages=(USER,), tool_choice="none", parallel_tool_calls=True, stream=False)
    assert body_of(request) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_an_endpoint_may_want_its_tools_dropped_where_none_may_be_called() -> None:
    request = Request(model="m", messages=(USER,), tools=(ToolSpec(name="f"),), tool_choice="none")
    assert body_of(request)["tool_choice"] == "none"
    dropped = body_of(request, msgspec.structs.replace(PLAIN, tool_choice_none="drop_tools"))
    assert "tools" not in dropped
    assert "tool_choice" not in dropped


@each(
    ("word", "effort", "fields"),
    [
        ("reasoning_effort", "low", {"reasoning_effort": "low"}),
        ("reasoning", "low", {"reasoning": {"effort": "low"}}),
        ("thinking", "low", {"thinking": {"type": "enabled"}}),
        ("thinking", "none", {"thinking": {"type": "disabled"}}),
        ("thinking_effort", "low", {"thinking": {"type": "enabled"}, "reasoning_effort": "low"}),
        ("thinking_effort", "none", {"thinking": {"type": "disabled"}}),
        ("enable_thinking", "none", {"enable_thinking": False}),
        ("chat_template_kwargs", "high", {"chat_template_kwargs": {"enable_thinking": True}}),
        (None, "high", {}),
    ],
)
def test_effort_is_asked_for_in_the_endpoints_own_words(word: str | None, effort: Any, fields: dict[str, Any]) -> None:
    profile = msgspec.structs.replace(PLAIN, reasoning_request=word, stream_usage=False)
    body = body_of(Request(model="m", messages=(), settings=Settings(reasoning_effort=effort), stream=False), profile)
    assert body == {"model": "m", "messages": [], **fields}


def test_a_budget_is_asked_for_where_the_endpoint_takes_one() -> None:
    request = Request(model="m", messages=(), settings=Settings(reasoning_tokens=100), stream=False)
    assert body_of(request, KNOWN["openrouter"])["reasoning"] == {"max_tokens": 100}
    alibaba = body_of(request, KNOWN["alibaba"])
    assert (alibaba["enable_thinking"], alibaba["thinking_budget"]) == (True, 100)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (None, {"role": "assistant", "content": "a"}),
        ("reasoning_content", {"role": "assistant", "content": "a", "reasoning_content": "hm"}),
        ("reasoning", {"role": "assistant", "content": "a", "reasoning": "hm"}),
        ("reasoning_details", {"role": "assistant", "content": "a", "reasoning_details": [{"type": "x", "data": "y"}]}),
        (
            "content",
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "a"},
                ],
            },
        ),
    ],
)
def test_reasoning_goes_back_in_the_field_that_the_endpoint_takes(field: str | None, message: dict[str, Any]) -> None:
    """Openly refused at OpenAI, wanted within a tool loop by DeepSeek, Moonshot and OpenRouter, as parts by Mistral."""
    parts = (Reasoning("hm", opaque(reasoning_details=[{"type": "x", "data": "y"}])), Text("a"))
    profile = msgspec.structs.replace(PLAIN, reasoning_replay=field)
    assert message_of(Message("assistant", parts), profile) == [message]


def test_plain_reasoning_goes_back_to_openrouter_as_text() -> None:
    message = Message("assistant", (Reasoning("hm", Opaque("gemini", '{"x":1}')), Text("a")))
    assert message_of(message, KNOWN["openrouter"]) == [{"role": "assistant", "content": "a", "reasoning": "hm"}]


@pytest.mark.parametrize(
    ("file", "part"),
    [
        (
            File(media_type="image/png", data=b"hi"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ),
        (
            File(media_type="image/*", url="http://a/b.png", opaque=opaque(image_url={"detail": "low"})),
            {"type": "image_url", "image_url": {"url": "http://a/b.png", "detail": "low"}},
        ),
        (
            File(media_type="audio/mpeg", data=b"hi"),
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "mp3"}},
        ),
        (
            File(media_type="application/pdf", data=b"hi", name="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
        ),
        (File(media_type="application/octet-stream", file_id="f1"), {"type": "file", "file": {"file_id": "f1"}}),
        (
            File(media_type="video/*", url="http://a/b.mp4"),
            {"type": "video_url", "video_url": {"url": "http://a/b.mp4"}},
        ),
    ],
    ids=["image", "image by address", "audio", "pdf", "file id", "video"],
)
def test_files_are_content_parts_and_come_back(file: File, part: dict[str, Any]) -> None:
    message = Message("user", (Text("look"), file))
    assert message_of(message) == [{"role": "user", "content": [{"type": "text", "text": "look"}, part]}]
    assert read_messages(*message_of(message)).messages == (message,)


def test_documents_go_to_mistral_in_its_own_part() -> None:
    file = File(media_type="application/pdf", data=b"hi", name="a.pdf")
    part = {"type": "document_url", "document_url": "data:application/pdf;base64,aGk=", "document_name": "a.pdf"}
    message = Message("user", (file,))
    assert message_of(message, KNOWN["mistral"]) == [{"role": "user", "content": [part]}]
    assert read_messages({"role": "user", "content": [part]}).messages == (message,)


def test_what_an_endpoint_does_not_take_is_named_in_words() -> None:
    message = Message("user", (File(media_type="application/pdf", data=b"hi", name="a.pdf"),))
    told = {"type": "text", "text": "[file `a.pdf` of type application/pdf left out: this endpoint does not take it]"}
    for name in ("groq", "deepseek"):
        assert message_of(message, KNOWN[name]) == [{"role": "user", "content": [told]}]


def test_files_of_results_follow_the_whole_run_of_results() -> None:
    """A tool message takes text only, and nothing may stand between a call and its results."""
    image = File(media_type="image/png", data=b"hi")
    messages = (
        Message("assistant", (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))),
        Message("tool", (ToolResult(call_id="a", name="f", content=(Text("one"), image)),)),
        Message("tool", (ToolResult(call_id="b", name="f", content=(Text("x"), Text("y"))),)),
        Message("user", (Text("go on"),)),
    )
    sent = body_of(Request(model="m", messages=messages))["messages"]
    assert sent[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "x\n\ny"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Files that the call `a` returned:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ],
        },
        {"role": "user", "content": "go on"},
    ]


def test_mistral_gets_ids_of_nine_characters_the_same_for_call_and_result() -> None:
    messages = (
        Message("assistant", (ToolCall(id="call_1", name="f"), ToolCall(id="abcDEF123", name="f"))),
        Message("tool", (ToolResult(call_id="call_1", name="f"), ToolResult(call_id="abcDEF123", name="f"))),
    )
    sent = body_of(Request(model="m", messages=messages), KNOWN["mistral"])["messages"]
    ids = [call["id"] for call in sent[0]["tool_calls"]]
    assert [message["tool_call_id"] for message in sent[1:]] == ids
    assert ids[1] == "abcDEF123"
    assert len(ids[0]) == 9
    assert ids[0].isalnum()


def test_a_free_form_tool_is_a_json_tool_with_one_string_elsewhere() -> None:
    """Only OpenAI has custom tools."""
    request = Request(
        model="m",
        messages=(USER, Message("assistant", (ToolCall(id="a", name="patch", arguments='say "hi"', free_form=True),))),
        tools=(ToolSpec(name="patch", free_form=True),),
        tool_choice=NamedTool("patch"),
    )
    sent = body_of(request, KNOWN["groq"])
    assert sent["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert json.loads(sent["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"input": 'say "hi"'}
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    sent = body_of(request, OPENAI)
    assert sent["messages"][1]["tool_calls"][0] == {
        "id": "a",
        "type": "custom",
        "custom": {"name": "patch", "input": 'say "hi"'},
    }
    assert sent["tool_choice"] == {"type": "custom", "custom": {"name": "patch"}}


@pytest.mark.parametrize("means", ["json_object", "none"])
def test_a_schema_is_told_in_words_where_the_endpoint_takes_none(means: Any) -> None:
    profile = msgspec.structs.replace(PLAIN, output=means)
    request = Request(model="m", messages=(USER,), system=(Text("be kind"),), output=OutputSchema(schema='{"a":1}'))
    sent = body_of(request, profile)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert '{"a":1}' in sent["messages"][0]["content"]
    assert sent.get("response_format") == ({"type": "json_object"} if means == "json_object" else None)


# Reading


def test_leading_instructions_are_the_system_and_later_ones_stay_in_place() -> None:
    request = read_messages(
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "b"}]},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "c"},
    )
    assert request.system == (Text("a"), Text("b"))
    assert request.messages == (USER, Message("system", (Text("c"),)))


def test_results_take_name_and_kind_from_their_call_and_neighbours_are_one_message() -> None:
    request = read_messages(
        {
            "role": "assistant",
            "content": "",
            "refusal": None,
            "tool_calls": [
                {"id": "a", "index": 0, "type": "function", "function": {"name": "f", "arguments": ""}},
                {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "tool", "tool_call_id": "c", "content": None},
    )
    assert request.messages == (
        Message(
            "assistant",
            (ToolCall(id="a", name="f"), ToolCall(id="b", name="g", arguments="x", free_form=True)),
        ),
        Message(
            "tool",
            (
                ToolResult(call_id="b", name="g", content=(Text("2"),), free_form=True),
                ToolResult(call_id="a", name="f", content=(Text("1"),)),
                ToolResult(call_id="c", name=""),
            ),
        ),
    )


def test_functions_of_the_first_days_are_read_as_tools() -> None:
    request = read(
        {
            "model": "m",
            "messages": [
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "1"},
            ],
            "functions": [{"name": "f", "parameters": {"type": "object"}}],
            "function_call": {"name": "f"},
        }
    )
    assert request.tools == (ToolSpec(name="f", parameters='{"type":"object"}'),)
    assert request.tool_choice == NamedTool("f")
    (call,), (result,) = request.messages[0].parts, request.messages[1].parts
    assert isinstance(call, ToolCall)
    assert result == ToolResult(call_id=call.id, name="f", content=(Text("1"),))


@pytest.mark.promise("assembly:kinds")
def test_fields_without_a_word_of_ours_are_kept_where_they_stood() -> None:
    """`cache_control`, names, server-side tools, unknown content parts: read, written, and the same again."""
    schema = {"type": "object", "properties": {}}
    wire = {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "parameters": schema},
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "openrouter:web_search", "parameters": {"max_uses": 1}},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "b", "name": "ann"},
            {"role": "user", "content": [{"type": "reference", "reference_ids": [1]}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}, "x": 1}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "c", "cache_control": {"type": "ephemeral"}},
        ],
        "n": 2,
        "provider": {"only": ["xai"]},
    }
    request = read(wire)
    assert request.messages[2].parts == (
        ProviderItem("openai_chat", "reference", '{"type":"reference","reference_ids":[1]}'),
    )
    assert body_of(request) == wire


@each(
    ("body", "complaint"),
    [
        (b"{", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'{"model":"m"}', "`messages` must be an array"),
        (b'{"model":7,"messages":[]}', "`model` must be a string"),
        (b'{"messages":[7]}', r"`messages\[0\]` must be an object"),
        (b'{"messages":[{"role":"bot"}]}', r"`messages\[0\].role` is 'bot'"),
        (b'{"messages":[{"role":"user","content":7}]}', r"`messages\[0\].content` must be a string or an array"),
        (b'{"messages":[{"role":"user","content":[{"text":"a"}]}]}', r"`messages\[0\].content\[0\].type`"),
        (b'{"messages":[{"role":"tool","content":"a"}]}', r"`messages\[0\].tool_call_id` must be a string"),
        (b'{"messages":[{"role":"assistant","tool_calls":[{}]}]}', r"`messages\[0\].tool_calls\[0\].function`"),
        (b'{"messages":[],"tools":{}}', "`tools` must be an array"),
        (b'{"messages":[],"tools":[{"type":"function"}]}', r"`tools\[0\].function` must be an object"),
        (b'{"messages":[],"max_tokens":"9"}', "`max_tokens` must be an integer"),
        (b'{"messages":[],"temperature":"hot"}', "`temperature` must be a number"),
        (b'{"messages":[],"parallel_tool_calls":1}', "`parallel_tool_calls` must be true or false"),
    ],
)
def test_a_request_that_cannot_be_read_says_what_and_where(body: bytes, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        FAMILY.decode_request(body, "")


def recorded_requests(corpus: Path) -> list[tuple[str, dict[str, Any]]]:
    found = [(row.file, row.request) for row in recordings.of_family(corpus, "openai_chat") if row.request is not None]
    for folder in ("errors/openai_chat__*.json", "conversations/openai-chat-*.json"):
        for path in sorted(corpus.glob(folder)):
            recorded = json.loads(path.read_text())
            exchanges = recorded.get("exchanges") or [recorded]
            found += [(path.name, exchange["request"]["body"]) for exchange in exchanges]
    return found


def test_every_recorded_request_is_read_and_written_to_the_same_again(corpus: Path) -> None:
    """Those that were answered with 400 too: their faults are in models and values, not in the format."""
    requests = recorded_requests(corpus)
    for name, body in requests:
        request = read(body)
        assert request.model == body.get("model", ""), name
        call = FAMILY.encode_request(request, WIDEST)
        assert FAMILY.decode_request(call.body, call.path) == lasting(request), name
    assert len(requests) >= 610


def lasting(request: Request) -> Request:
    """A budget has no word under `reasoning_effort`."""
    return msgspec.structs.replace(request, settings=msgspec.structs.replace(request.settings, reasoning_tokens=None))


def test_recorded_requests_keep_every_message_word_for_word(corpus: Path) -> None:
    """What we write for a recorded request has its texts, calls and results, in order."""
    for name, body in recorded_requests(corpus):
        sent = body_of(read(body), WIDEST)["messages"]
        assert [essence(message) for message in sent] == [essence(message) for message in body["messages"]], name


def essence(message: dict[str, Any]) -> tuple[object, ...]:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = [
            part.get("text") if part["type"] == "text" else part["type"].replace("document_url", "file")
            for part in content
        ]
        content = content[0] if len(content) == 1 and isinstance(content[0], str) else content
    role = "system" if message["role"] == "developer" else message["role"]
    calls = [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    return (role, content, calls, message.get("tool_call_id"), message.get("reasoning_details"))
