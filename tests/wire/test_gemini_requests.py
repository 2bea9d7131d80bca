"""Requests of the Gemini API: what we write is what the API documents, and comes back as it was but for the losses."""

import json
from typing import Any

import httpx2
import msgspec
import pytest
from google import genai
from google.genai import types

from tables import each
from turnwise.lab.raw import parse
from turnwise.lab.strict.gemini import check
from turnwise.lab.strict.verdicts import ModelRules
from turnwise.testing.wire_conformance import check_prefix_stable, check_request_round_trip
from turnwise.vocab import (
    ArgumentsState,
    Citation,
    File,
    Message,
    Opaque,
    OutputSchema,
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
from turnwise.wire.gemini import FAMILY
from turnwise.wire.profiles import Profile, builtin_profiles
from wire.gemini_requests import (
    CALL,
    FAILED,
    FOREIGN,
    FULL,
    NAME,
    NO_IDS,
    OTHER,
    PROFILE,
    RESULT,
    ask,
    assistant,
    body_of,
    decoded,
    own,
    user,
)


def test_a_call_behind_another_message_of_the_models_is_one_content_with_it() -> None:
    """The API takes a call right behind a user's turn only: neighbours of the model's are one content, what is between
    them that cannot be sent notwithstanding; their parts stay as they were, and a user's stay two."""
    foreign = Message("user", (ProviderItem("anthropic_messages", "x", "{}"),))
    parted = (user("x"), user("y"), assistant("so far"), foreign, assistant("then", CALL), Message("tool", (RESULT,)))
    joined = (user("x"), user("y"), assistant("so far", "then", CALL), Message("tool", (RESULT,)))
    body = body_of(ask(*parted))
    assert [content["role"] for content in body["contents"]] == ["user", "user", "model", "user"]
    assert body == body_of(ask(*joined))
    check(parse(json.dumps(body).encode()), ModelRules())


def test_a_request_looks_as_the_api_documents_it() -> None:
    """Path and body of a second step, field by field in the order that keeps its beginning stable."""
    call = FAMILY.encode_request(FULL, PROFILE)
    assert call.path == "/models/gemini-3:streamGenerateContent?alt=sse"
    body = json.loads(call.body)
    assert list(body) == ["systemInstruction", "tools", "contents", "toolConfig", "generationConfig", "safetySettings"]
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}, {"text": "Be kind."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "read", "description": "Read a file", "parametersJsonSchema": {"type": "object"}}
                ]
            },
            {"googleSearch": {}},
        ],
        "contents": [
            {"role": "user", "parts": [{"text": "read a and b"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "hm", "thought": True},
                    {"text": "I read them."},
                    {
                        "functionCall": {"id": "c1", "name": "read", "args": {"path": "a.txt"}},
                        "thoughtSignature": "c2ln",
                    },
                    {"functionCall": {"id": "c2", "name": "read", "args": {"path": "b.txt"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "c1", "name": "read", "response": {"output": "text of a"}}},
                    {"functionResponse": {"id": "c2", "name": "read", "response": {"error": "no such file"}}},
                ],
            },
            {"role": "user", "parts": [{"text": "and be quick"}]},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}},
        "generationConfig": {
            "maxOutputTokens": 2000,
            "temperature": 0.5,
            "topP": 0.9,
            "stopSequences": ["END"],
            "seed": 7,
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
            "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True},
            "topK": 3,
        },
        "safetySettings": [{"category": "C", "threshold": "T"}],
    }
    assert FAMILY.decode_request(call.body, call.path) == FULL


def test_the_sdks_own_types_take_what_we_write() -> None:
    """They forbid every field that they do not know."""
    image = File(media_type="image/png", data=b"\x89PNG")
    shown = ToolResult(call_id="c1", name="read", content=(Text("see"), image))
    for request in (FULL, ask(user("look", image), assistant(CALL), Message("tool", (shown,)))):
        body = body_of(request)
        for content in body["contents"]:
            types.Content.model_validate(content)
        for tool in body.get("tools", []):
            types.Tool.model_validate(tool)
        types.ToolConfig.model_validate(body.get("toolConfig", {}))
        types.GenerationConfig.model_validate(body.get("generationConfig", {}))


def test_what_the_sdk_sends_is_read_as_it_was_meant() -> None:
    """A request made by google-genai's client: history, tools, tool choice, schema, thinking."""
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(
            200, json={"candidates": [{"content": {"parts": [{"text": "ok"}]}, "finishReason": "STOP"}]}
        )

    client = genai.Client(
        api_key="none", http_options=types.HttpOptions(client_args={"transport": httpx2.MockTransport(answer)})
    )
    call = types.Part(
        function_call=types.FunctionCall(id="c1", name="read", args={"path": "a"}), thought_signature=b"sig"
    )
    result = types.FunctionResponse(id="c1", name="read", response={"output": "text"})
    client.models.generate_content(
        model="gemini-3",
        contents=[
            types.UserContent(["look", types.Part.from_bytes(data=b"\xff\xfe", mime_type="image/png")]),
            types.ModelContent([call]),
            types.UserContent([types.Part(function_response=result), "go on"]),
        ],
        config=types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[
                types.Tool(
                    function_declarations=[
                        types.FunctionDeclaration(
                            name="read",
                            description="Read",
                            parameters=types.Schema(
                                type=types.Type.OBJECT,
                                properties={"path": types.Schema(type=types.Type.STRING, nullable=True, min_length=1)},
                            ),
                        )
                    ]
                )
            ],
            tool_config=types.ToolConfig(
                function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
            ),
            thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True),
            response_mime_type="application/json",
            response_json_schema={"type": "object"},
            max_output_tokens=10,
            top_k=4,
        ),
    )
    [request] = sent
    read = FAMILY.decode_request(request.content, request.url.raw_path.decode())
    parameters = json.loads(read.tools[0].parameters)
    assert parameters == {"type": "object", "properties": {"path": {"type": ["string", "null"], "minLength": 1}}}
    assert msgspec.structs.replace(read, tools=()) == Request(
        model="gemini-3",
        system=(Text("Be brief."),),
        messages=(
            user("look", File(media_type="image/png", data=b"\xff\xfe")),
            assistant(ToolCall(id="c1", name="read", arguments='{"path": "a"}', opaque=own(thoughtSignature="c2ln"))),
            Message("tool", (ToolResult(call_id="c1", name="read", content=(Text("text"),)),)),
            user("go on"),
        ),
        tool_choice="required",
        output=OutputSchema(schema='{"type": "object"}'),
        settings=Settings(max_output_tokens=10, reasoning_effort="low"),
        stream=False,
        extra=own(generationConfig={"topK": 4.0}),
    )


# Paths


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3", "/models/gemini-3:generateContent"),
        ("models/gemini-3", "/models/gemini-3:generateContent"),
        ("tunedModels/my-1", "/tunedModels/my-1:generateContent"),
        ("vendor/case-1", "/models/vendor/case-1:generateContent"),
        ("a b?c", "/models/a%20b%3Fc:generateContent"),
        ("../../x", "/models/..%2F..%2Fx:generateContent"),
    ],
)
def test_the_model_stands_in_the_path(model: str, path: str) -> None:
    """Quoted, so that no name ends or leaves the path; a resource's whole name stays whole."""
    request = Request(model=model, messages=(user("hi"),), stream=False)
    assert FAMILY.encode_request(request, PROFILE).path == path


def test_profiles_may_have_paths_of_their_own() -> None:
    """Vertex AI puts project and location before the model."""
    profile = Profile(
        name="v", family="gemini", path="/p/{model}:generateContent", stream_path="/p/{model}:streamGenerateContent?x=1"
    )
    assert FAMILY.encode_request(ask(), profile).path == "/p/gemini-3:streamGenerateContent?x=1"
    assert FAMILY.encode_request(ask(stream=False), profile).path == "/p/gemini-3:generateContent"


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro", False),
        ("/models/a%20b:streamGenerateContent?alt=sse", "a b", True),
        ("/v1/projects/p/locations/l/publishers/google/models/g:generateContent?%24alt=json", "g", False),
        ("/v1beta/tunedModels/t:streamGenerateContent", "tunedModels/t", True),
    ],
)
def test_the_path_says_which_model_and_whether_it_streams(path: str, model: str, stream: bool) -> None:
    """The Gemini API's paths and Vertex AI's."""
    request = decoded({"contents": [{"parts": [{"text": "hi"}]}]}, path)
    assert (request.model, request.stream) == (model, stream)


# Calls and results


def test_call_ids_stay_away_where_the_endpoint_does_not_take_them() -> None:
    """Calls and results pair by name and order then, and the results are put in the order of their calls."""
    request = ask(user("x"), assistant(CALL, OTHER), Message("tool", (FAILED,)), Message("tool", (RESULT,)))
    body = body_of(request, NO_IDS)
    assert [list(part["functionCall"]) for part in body["contents"][1]["parts"]] == [["name", "args"]] * 2
    assert [part["functionResponse"] for part in body["contents"][2]["parts"]] == [
        {"name": "read", "response": {"output": "text of a"}},
        {"name": "read", "response": {"error": "no such file"}},
    ]
    paired = [
        [getattr(part, "id", None) or getattr(part, "call_id", None) for part in message.parts]
        for message in decoded(body).messages
    ]
    assert paired == [[None], ["call_0", "call_1"], ["call_0", "call_1"]]


def test_results_without_ids_take_the_oldest_open_call_of_their_name() -> None:
    """Also where ids and none are mixed, and where no call is open any more."""

    def call(name: str, **id: str) -> dict[str, Any]:
        return {"functionCall": {"name": name, **id}}

    def result(name: str, **id: str) -> dict[str, Any]:
        return {"functionResponse": {"name": name, "response": {}, **id}}

    contents = [
        {"role": "model", "parts": [call("a"), call("b"), call("a"), call("a", id="call_1")]},
        {"role": "function", "parts": [result("b"), result("a", id="call_1"), result("a"), result("a"), result("a")]},
    ]
    calls, results = decoded({"contents": contents}).messages
    assert [part.id for part in calls.parts if isinstance(part, ToolCall)] == ["call_0", "call_2", "call_3", "call_1"]
    ids = [part.call_id for part in results.parts if isinstance(part, ToolResult)]
    assert ids == ["call_2", "call_1", "call_0", "call_3", "call_4"]


@each(
    ("text", "is_error", "response"),
    [
        ("plain", False, {"output": "plain"}),
        ("plain", True, {"error": "plain"}),
        ('{"temperature": 21}', False, {"temperature": 21}),
        ('{"temperature": 21}', True, {"error": '{"temperature": 21}'}),
        ('{"output":"x"}', False, {"output": '{"output":"x"}'}),
        ('{"error":"x"}', False, {"output": '{"error":"x"}'}),
        ('{"output":{"x":1}}', False, {"output": {"x": 1}}),
        ("[1]", False, {"output": "[1]"}),
        ('{"cut', False, {"output": '{"cut'}),
        ("{}", False, {"output": "{}"}),
        (' {"a":1}', False, {"output": ' {"a":1}'}),
        ("", False, {"output": ""}),
    ],
)
def test_results_go_as_objects_and_come_back_as_they_were(text: str, is_error: bool, response: dict[str, Any]) -> None:
    """A JSON object goes as that object, unless it would be read as one of the API's own words."""
    result = ToolResult(call_id="c1", name="read", content=(Text(text),), is_error=is_error)
    request = ask(user("x"), assistant(CALL), Message("tool", (result,)))
    assert body_of(request)["contents"][2]["parts"][0]["functionResponse"]["response"] == response
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=request)


def test_results_of_other_clients_are_read() -> None:
    """`result` is what many write; an object is kept as it is."""
    contents = [
        {"parts": [{"functionResponse": {"name": "a", "response": {"result": "5"}}}]},
        {"parts": [{"function_response": {"name": "a", "response": {"result": 5, "unit": "m"}}}, {"text": "and?"}]},
    ]
    messages = decoded({"contents": contents}).messages
    assert [message.role for message in messages] == ["tool", "tool", "user"]
    assert [part.content for message in messages for part in message.parts if isinstance(part, ToolResult)] == [
        (Text("5"),),
        (Text('{"result": 5, "unit": "m"}'),),
    ]


@pytest.mark.parametrize(
    ("call", "args"),
    [
        (ToolCall(id="a", name="x", arguments='{"p": "cut', state=ArgumentsState.TRUNCATED), {}),
        (ToolCall(id="a", name="x", arguments="}", state=ArgumentsState.INVALID), {}),
        (ToolCall(id="a", name="x", arguments='{"p": "claims to be complete'), {}),
        (ToolCall(id="a", name="x", arguments="[1]"), {"input": [1]}),
        (ToolCall(id="a", name="x", arguments="*** text", free_form=True), {"input": "*** text"}),
    ],
)
def test_arguments_are_always_an_object(call: ToolCall, args: dict[str, Any]) -> None:
    """`args` is a protobuf Struct; a body with anything else would be refused as a whole."""
    body = body_of(ask(user("x"), assistant(call)))
    assert body["contents"][1]["parts"][0]["functionCall"]["args"] == args


def test_losses_of_requests_become_what_the_table_says() -> None:
    """One request with nearly all of them, and what is left of it."""
    request = ask(
        Message("system", (Text("mid"),)),
        user(
            "x",
            File(media_type="image/*", data=b"\x89PNG"),
            File(media_type="image/*", url="https://e/x.png", name="n"),
        ),
        assistant(
            Reasoning("hm", FOREIGN),
            Reasoning("", FOREIGN),
            Refusal("no"),
            Text("y", (Citation(family=NAME, raw="{}"),)),
            Text(""),
            ProviderItem("anthropic_messages", "server_tool_use", "{}"),
            ToolCall(id="a", name="free", arguments="text", free_form=True),
        ),
        Message("tool", (ToolResult(call_id="a", name="free", content=(Text("1"), Text("2")), free_form=True),)),
        assistant(ProviderItem("anthropic_messages", "server_tool_use", "{}")),
        tools=(
            ToolSpec(name="free", free_form=True, strict=True),
            ToolSpec(name="web_search", opaque=Opaque("anthropic_messages", "{}")),
        ),
        tool_choice="none",
        parallel_tool_calls=False,
        output=OutputSchema(schema="{}", name="n", strict=False),
        settings=Settings(reasoning_tokens=0),
        extra=Opaque("openai_chat", '{"user":"u"}'),
    )
    expected = ask(
        user("mid"),
        user("x", File(media_type="image/png", data=b"\x89PNG"), File(media_type="*/*", url="https://e/x.png")),
        assistant(Reasoning("hm"), "no", "y", ToolCall(id="a", name="free", arguments='{"input":"text"}')),
        Message("tool", (ToolResult(call_id="a", name="free", content=(Text("1\n2"),)),)),
        tools=(
            ToolSpec(
                name="free",
                parameters='{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}',
            ),
        ),
        tool_choice="none",
        output=OutputSchema(schema="{}"),
        settings=Settings(reasoning_effort="none"),
    )
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=expected)


# Settings


@pytest.mark.parametrize(
    ("model", "profile", "settings", "config"),
    [
        ("gemini-3-pro", PROFILE, Settings(reasoning_effort="low"), {"thinkingLevel": "LOW", "includeThoughts": True}),
        ("gemini-3-pro", PROFILE, Settings(reasoning_effort="none"), {"thinkingBudget": 0}),
        ("gemini-3-pro", PROFILE, Settings(reasoning_tokens=99), {"thinkingBudget": 99, "includeThoughts": True}),
        (
            "gemini-2.5-flash",
            PROFILE,
            Settings(reasoning_effort="medium"),
            {"thinkingBudget": 8192, "includeThoughts": True},
        ),
        (
            "models/gemini-2.5-pro",
            PROFILE,
            Settings(reasoning_effort="high", reasoning_tokens=7),
            {"thinkingBudget": 7, "includeThoughts": True},
        ),
        (
            "gemini-2.5-flash",
            Profile(name="t", family="gemini", reasoning_request="thinking_level"),
            Settings(reasoning_effort="high"),
            {"thinkingLevel": "HIGH", "includeThoughts": True},
        ),
    ],
)
def test_reasoning_is_asked_for_as_the_model_takes_it(
    model: str, profile: Profile, settings: Settings, config: dict[str, Any]
) -> None:
    """Levels since Gemini 3, budgets before; never both at once."""
    request = Request(model=model, messages=(user("x"),), settings=settings)
    assert body_of(request, profile)["generationConfig"]["thinkingConfig"] == config


@each("mode", ["VALIDATED", "AUTO", "NONE", "ANY"])
@each("names", [[], ["a"], ["a", "b"]])
def test_every_tool_choice_survives(mode: str, names: list[str]) -> None:
    """Also those that have no word of ours: they stay in `extra` and are merged over what we write."""
    calling = {"mode": mode} | ({"allowedFunctionNames": names} if names else {})
    body = {
        "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}],
        "contents": [{"role": "user", "parts": [{"text": "x"}]}],
        "toolConfig": {"functionCallingConfig": {**calling, "streamFunctionCallArguments": True}},
    }
    request = decoded(body)
    again = body_of(request).get("toolConfig", {}).get("functionCallingConfig", {})
    assert {"mode": "AUTO", **again} == {**calling, "streamFunctionCallArguments": True}


def test_profiles_decide_about_schemas_and_forbidden_tools() -> None:
    """Rows of the profile, not branches on names."""
    request = ask(output=OutputSchema(schema="{}"), tools=(ToolSpec(name="a"),), tool_choice="none")
    plain = Profile(
        name="t", family="gemini", output="json_object", tool_choice_none="drop_tools", body='{"labels":{"a":"b"}}'
    )
    body = body_of(request, plain)
    assert body["generationConfig"] == {"responseMimeType": "application/json"}
    assert (body.get("tools"), body.get("toolConfig"), body["labels"]) == (None, None, {"a": "b"})


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(
    ("model", "stream", "choice", "sent"),
    [
        ("gemini-3-flash-preview", True, "auto", {"mode": "AUTO", "streamFunctionCallArguments": True}),
        ("gemini-3.1-pro-preview", True, "required", {"mode": "ANY", "streamFunctionCallArguments": True}),
        ("gemini-3-flash-preview", True, "none", {"mode": "NONE"}),
        ("gemini-3-flash-preview", False, "auto", None),
        ("gemini-2.5-pro", True, "auto", None),
    ],
)
def test_arguments_are_asked_for_in_pieces_where_profile_and_model_give_them(
    model: str, stream: bool, choice: Any, sent: dict[str, Any] | None
) -> None:
    """Vertex AI streams them since Gemini 3; the Gemini Developer API has no such field."""
    vertex, plain = (builtin_profiles()[name] for name in ("vertex-gemini", "gemini"))
    request = Request(
        model=model, messages=(user("x"),), tools=(ToolSpec(name="a"),), tool_choice=choice, stream=stream
    )
    assert body_of(request, vertex).get("toolConfig", {}).get("functionCallingConfig") == sent
    assert "streamFunctionCallArguments" not in str(body_of(request, plain))


# Prefix


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("profile", [PROFILE, NO_IDS])
def test_the_next_step_begins_with_the_bytes_of_this_one(profile: Profile) -> None:
    """System, tools and all messages so far stand at the same place, whatever else changes."""

    def later(request: Request) -> Request:
        settings = Settings(max_output_tokens=1, temperature=1.0)
        return msgspec.structs.replace(request, tool_choice="none", settings=settings, output=None, extra=None)

    more = (assistant("then", CALL), Message("tool", (RESULT,)), user("and now answer"))
    check_prefix_stable(FAMILY, FULL, more, profile=profile, later=later)
