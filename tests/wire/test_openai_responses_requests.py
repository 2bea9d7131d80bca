"""Requests of the Responses API: what we send is what the API documents, and what clients send is read whole."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from pydantic import TypeAdapter

from recordings import of_family
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
from turnwise.wire.openai_responses import FAMILY, LOSSES
from turnwise.wire.profiles import Profile, builtin_profiles

PROFILE = builtin_profiles()["openai_responses"]
ITEMS = TypeAdapter(list[ResponseInputItemParam])


def own(**fields: object) -> Opaque:
    return Opaque("openai_responses", json.dumps(fields, separators=(",", ":"), ensure_ascii=False))


def encoded(request: Request, *, profile: Profile = PROFILE) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(FAMILY.encode_request(request, profile).body)
    return body


def decoded(**body: object) -> Request:
    return FAMILY.decode_request(json.dumps({"model": "m", "store": False, **body}).encode(), "/responses")


# ---- generated requests

texts = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.sampled_from(["read", "write", "sql"])
objects = st.dictionaries(texts, st.integers() | texts | st.none() | st.lists(texts, max_size=2), max_size=2)


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


json_objects = objects.map(compact)
item_fields = st.integers(0, 9).map(lambda n: own(id=f"msg_{n}", status="completed"))
citations = st.lists(
    texts.map(
        lambda title: Citation(
            family="openai_responses",
            raw=json.dumps({"type": "url_citation", "url": "u", "title": title + "!"}, separators=(",", ":")),
            url="u",
            title=title + "!",
        )
    ),
    max_size=2,
).map(tuple)
encrypted = st.builds(
    Reasoning, texts, texts.map(lambda text: own(id="rs_1", encrypted_content=f"g{text}", status="completed"))
)
items = st.sampled_from(["web_search_call", "code_interpreter_call", "compaction"]).map(
    lambda kind: ProviderItem("openai_responses", kind, f'{{"type":"{kind}","id":"x_1","n":[1,2.50]}}')
)
files = st.one_of(
    st.binary(max_size=4).map(lambda data: File(media_type="image/png", data=data)),
    st.binary(max_size=4).map(lambda data: File(media_type="application/pdf", data=data, name="a.pdf")),
    st.just(File(media_type="image/*", url="https://a.example/b.png", opaque=own(content_part={"detail": "low"}))),
    st.just(File(media_type="image/*", file_id="file-1")),
    st.just(File(media_type="application/octet-stream", url="https://a.example/b")),
    st.just(File(media_type="application/octet-stream", file_id="file-2")),
)
user_messages = st.lists(st.builds(Text, texts) | files, min_size=1, max_size=3).map(
    lambda parts: Message("user", tuple(parts))
)
contents = st.lists(st.builds(Text, texts) | files, max_size=2).map(tuple)


@st.composite
def steps(draw: st.DrawFn) -> list[Message]:
    """An assistant's message, and the results of its calls."""
    calls: list[ToolCall] = []
    for n in range(draw(st.integers(0, 3))):
        free_form = draw(st.booleans())
        arguments = draw(texts if free_form else json_objects)
        opaque = draw(st.none() | st.just(own(id=f"fc_{n}", status="completed")))
        calls.append(
            ToolCall(id=f"call_{n}", name=draw(names), arguments=arguments, free_form=free_form, opaque=opaque)
        )
    others: list[Part] = draw(
        st.lists(
            st.builds(Text, texts, citations, item_fields) | st.builds(Refusal, texts, item_fields) | encrypted | items,
            min_size=0 if calls else 1,
            max_size=3,
        )
    )
    found = [Message("assistant", (*others, *calls))]
    if calls:
        results = [
            ToolResult(
                call_id=call.id,
                name=call.name,
                content=draw(contents),
                free_form=call.free_form,
                opaque=draw(st.none() | st.just(own(status="completed"))),
            )
            for call in calls
        ]
        found.append(Message("tool", tuple(results)))
    return found


@st.composite
def requests(draw: st.DrawFn) -> Request:
    messages = [draw(user_messages)]
    for _ in range(draw(st.integers(0, 2))):
        messages += draw(steps())
        messages.append(draw(user_messages | st.builds(lambda text: Message("system", (Text(text),)), texts)))
    named = draw(st.lists(names, unique=True, max_size=3))
    tools = [
        draw(
            st.builds(
                ToolSpec,
                name=st.just(name),
                description=texts,
                parameters=objects.map(lambda value: {**value, "type": "object"}).map(compact),
                strict=st.booleans(),
                opaque=st.none() | st.just(own(defer_loading=True)),
            )
            | st.builds(ToolSpec, name=st.just(name), description=texts, free_form=st.just(True))
        )
        for name in named
    ]
    if named and draw(st.booleans()):
        tools.append(ToolSpec(name="web_search", opaque=own(type="web_search", search_context_size="low")))
    choices = st.sampled_from(["auto", "none", "required"]) | st.sampled_from(
        [NamedTool(name) for name in named] or ["auto"]
    )
    return Request(
        model=draw(st.sampled_from(["gpt-5", "gpt-4.1"])),
        messages=tuple(messages),
        system=tuple(draw(st.lists(st.builds(Text, texts), max_size=2))),
        tools=tuple(tools),
        tool_choice=draw(choices) if tools else "auto",
        parallel_tool_calls=draw(st.none() | st.booleans()) if tools else None,
        output=draw(st.none() | st.builds(OutputSchema, schema=json_objects, strict=st.booleans())),
        settings=draw(
            st.builds(
                Settings,
                max_output_tokens=st.none() | st.integers(1, 9000),
                temperature=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
                top_p=st.none() | st.just(0.9),
                reasoning_effort=st.sampled_from([None, "none", "low", "xhigh"]),
                stop=st.sampled_from([(), ("x",)]),
                seed=st.none() | st.just(7),
                reasoning_tokens=st.none() | st.just(100),
            )
        ),
        stream=draw(st.booleans()),
        extra=draw(
            st.sampled_from(
                [
                    None,
                    own(metadata={"a": "b"}, previous_response_id="resp_0", store=True),
                    own(include=["message.output_text.logprobs"], text={"verbosity": "low"}),
                    own(reasoning={"summary": "auto"}),
                ]
            )
        ),
    )


def without_losses(request: Request) -> Request:
    kept = msgspec.structs.replace(request.settings, stop=(), seed=None, reasoning_tokens=None)
    return msgspec.structs.replace(request, settings=kept)


@settings(max_examples=examples(120), deadline=None)
@given(requests())
def test_encoded_and_decoded_a_request_is_the_same_but_for_the_losses(request: Request) -> None:
    """Every part in its place, every setting; `stop`, `seed` and the reasoning budget are losses of this API."""
    check_request_round_trip(FAMILY, request, profile=PROFILE, expected=without_losses(request))


@settings(max_examples=examples(60), deadline=None)
@given(requests())
def test_every_item_that_we_send_is_one_that_the_sdk_knows(request: Request) -> None:
    """openai-python's own types accept the input; its `compaction` and custom fields included."""
    sent = [
        item
        for item in encoded(request)["input"]
        if item.get("type") not in ("web_search_call", "code_interpreter_call", "compaction")
    ]
    ITEMS.validate_python(sent)


def test_a_refusal_of_another_family_goes_back_as_plain_text() -> None:
    """Typed content needs an item id; there is none to give."""
    message = Message("assistant", (Refusal("No."),))
    assert encoded(Request(model="m", messages=(message,)))["input"] == [
        {"type": "message", "role": "assistant", "content": "No."}
    ]


@pytest.mark.promise("step:prefix-stable")
@settings(max_examples=examples(60), deadline=None)
@given(requests(), steps())
def test_a_later_step_begins_with_the_bytes_of_the_one_before(request: Request, more: list[Message]) -> None:
    """Also where tool choice, limits and output change."""

    def later(longer: Request) -> Request:
        return msgspec.structs.replace(
            longer,
            tool_choice="none",
            output=None,
            stream=False,
            settings=Settings(max_output_tokens=5, reasoning_effort=longer.settings.reasoning_effort),
        )

    check_prefix_stable(FAMILY, request, more, profile=PROFILE, later=later)


# ---- shapes


def test_a_request_keeps_no_state_at_the_provider() -> None:
    """`store` is false and reasoning is asked for encrypted, but from models that have none; an endpoint may refuse both."""
    plain = Request(model="gpt-5", messages=(Message("user", (Text("hi"),)),))
    assert encoded(plain) == {
        "model": "gpt-5",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "stream": True,
    }
    assert "include" not in encoded(msgspec.structs.replace(plain, model="gpt-4.1"))
    stateful = msgspec.structs.replace(PROFILE, stateless=False)
    assert {"store", "include"} & encoded(plain, profile=stateful).keys() == set()


def test_extra_fields_have_the_last_word() -> None:
    """They replace in place, or are merged where words share an object."""
    request = Request(
        model="gpt-5",
        messages=(),
        settings=Settings(reasoning_effort="low"),
        extra=own(store=True, reasoning={"summary": "auto"}, stream=False, user="u"),
    )
    body = encoded(request)
    assert (body["store"], body["reasoning"], body["stream"], body["user"]) == (
        True,
        {"effort": "low", "summary": "auto"},
        False,
        "u",
    )
    assert "metadata" not in encoded(msgspec.structs.replace(request, extra=Opaque("gemini", '{"metadata":1}')))


def test_reasoning_goes_back_only_where_the_api_can_read_it() -> None:
    """A reference to what was never stored is answered with 404; other families' thoughts are not this API's."""
    bare, raw, foreign = (
        Reasoning("a", own(id="rs_1")),
        Reasoning("b", own(id="rs_2", content=[{"type": "reasoning_text", "text": "b"}])),
        Reasoning("c", Opaque("anthropic_messages", '{"signature":"s"}')),
    )
    request = Request(model="m", messages=(Message("assistant", (bare, raw, foreign, Reasoning("d"))),))
    sent = {"type": "reasoning", "summary": [], "id": "rs_2", "content": [{"type": "reasoning_text", "text": "b"}]}
    assert encoded(request)["input"] == [sent]
    stored = msgspec.structs.replace(request, extra=own(store=True))
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}], "id": "rs_1"}
    assert encoded(stored)["input"] == [summary, sent]


@pytest.mark.promise("assembly:kinds")
def test_reasoning_with_several_summaries_goes_back_as_it_came() -> None:
    """Its text is their sum; the parts stay apart on the wire."""
    item = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}],
        "encrypted_content": "g",
    }
    request = decoded(input=[item])
    assert request.messages[0].parts == (
        Reasoning("ab", own(id="rs_1", summary=item["summary"], encrypted_content="g")),
    )
    assert encoded(request)["input"] == [item]


def test_an_unfinished_call_goes_out_with_empty_arguments() -> None:
    """Servers that parse the string would refuse a cut one; free-form text has no syntax to break."""
    cut = ToolCall(id="a", name="read", arguments='{"p', state=ArgumentsState.TRUNCATED)
    free = ToolCall(id="b", name="sql", arguments="sel", state=ArgumentsState.TRUNCATED, free_form=True)
    sent = encoded(Request(model="m", messages=(Message("assistant", (cut, free)),)))["input"]
    assert (sent[0]["arguments"], sent[1]["input"]) == ("{}", "sel")


def test_other_families_data_is_left_out() -> None:
    """Opaque data, items and citations of another API mean nothing here."""
    citation = Citation(family="anthropic_messages", raw='{"type":"char_location"}')
    message = Message(
        "assistant",
        (
            Text("a", (citation,), Opaque("gemini", '{"thoughtSignature":"s"}')),
            ProviderItem("anthropic_messages", "server_tool_use", '{"type":"server_tool_use"}'),
            ToolCall(id="c", name="read", opaque=Opaque("gemini", '{"thoughtSignature":"s"}')),
            File(media_type="image/png", data=b"x"),
        ),
    )
    assert encoded(Request(model="m", messages=(message,)))["input"] == [
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
    ]


def test_files_that_an_endpoint_does_not_take_are_named_instead() -> None:
    """The model is told what is missing."""
    pdf = File(media_type="application/pdf", data=b"x", name="a.pdf")
    images_only = msgspec.structs.replace(PROFILE, files="images")
    result = ToolResult(call_id="c", name="read", content=(pdf,))
    request = Request(
        model="m",
        messages=(Message("user", (pdf, File(media_type="image/png", data=b"y"))), Message("tool", (result,))),
    )
    user, output = encoded(request, profile=images_only)["input"]
    assert [part["type"] for part in user["content"]] == ["input_text", "input_image"]
    assert output["output"] == "[file `a.pdf` of type application/pdf left out: this endpoint does not take it]"


def test_endpoints_without_json_schema_get_json_objects() -> None:
    """And those without either get nothing."""
    request = Request(model="m", messages=(), output=OutputSchema(schema='{"type":"object"}'))
    schema = {"type": "json_schema", "name": "answer", "schema": {"type": "object"}, "strict": True}
    assert encoded(request)["text"] == {"format": schema}
    weaker = msgspec.structs.replace(PROFILE, output="json_object")
    assert encoded(request, profile=weaker)["text"] == {"format": {"type": "json_object"}}
    assert "text" not in encoded(request, profile=msgspec.structs.replace(PROFILE, output="none"))


def test_endpoints_without_free_form_tools_get_one_string_parameter() -> None:
    """The tool, its choice, its calls and their results are JSON then."""
    request = Request(
        model="m",
        messages=(
            Message("assistant", (ToolCall(id="c", name="sql", arguments='select "1"', free_form=True),)),
            Message("tool", (ToolResult(call_id="c", name="sql", content=(Text("1"),), free_form=True),)),
        ),
        tools=(ToolSpec(name="sql", description="Query.", free_form=True),),
        tool_choice=NamedTool("sql"),
    )
    body = encoded(request, profile=msgspec.structs.replace(PROFILE, free_form_tools=False))
    parameters = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    assert body["tools"] == [
        {"type": "function", "name": "sql", "description": "Query.", "parameters": parameters, "strict": False}
    ]
    assert body["tool_choice"] == {"type": "function", "name": "sql"}
    assert body["input"] == [
        {"type": "function_call", "call_id": "c", "name": "sql", "arguments": '{"input":"select \\"1\\""}'},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]
    assert encoded(request)["tool_choice"] == {"type": "custom", "name": "sql"}


# ---- what clients send


def test_a_string_is_one_users_message() -> None:
    """The shortest input there is; what it leaves unsaid keeps the API's meaning (it stores)."""
    request = FAMILY.decode_request(b'{"model":"gpt-5","input":"hi"}', "/responses")
    assert request == Request(
        model="gpt-5",
        messages=(Message("user", (Text("hi"),)),),
        stream=False,
        extra=own(include=[], store=True),
    )


def test_leading_instructions_keep_their_place_and_role() -> None:
    """`instructions`, then leading developer messages; one in mid-conversation is a message of its own."""
    request = decoded(
        instructions="a",
        include=["reasoning.encrypted_content"],
        input=[
            {"role": "system", "content": "b"},
            {"role": "developer", "content": [{"type": "input_text", "text": "c"}]},
            {"role": "user", "content": "d"},
            {"role": "developer", "content": "e"},
        ],
    )
    assert request.system == (Text("a"), Text("b"), Text("c", opaque=own(role="developer")))
    assert request.messages == (
        Message("user", (Text("d"),)),
        Message("system", (Text("e", opaque=own(role="developer")),)),
    )
    alone = decoded(input=[{"role": "system", "content": "b"}, {"role": "user", "content": "d"}])
    assert alone.system == (Text("b", opaque=own(role="system")),)
    assert [item["role"] for item in encoded(alone)["input"]] == ["system", "user"]


def test_items_of_one_role_are_one_message() -> None:
    """Reasoning, texts, calls and server-side items are the assistant's; outputs the tool's; approvals the user's."""
    request = decoded(
        input=[
            {"role": "user", "content": "a"},
            {"role": "user", "content": "b"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"role": "assistant", "content": "c"},
            {"type": "function_call", "call_id": "x", "name": "read", "arguments": ""},
            {"type": "custom_tool_call", "call_id": "y", "name": "sql", "input": ""},
            {"type": "function_call_output", "call_id": "x", "output": "1", "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "y", "output": [{"type": "input_image", "image_url": "u"}]},
            {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
            {"id": "msg_7"},
        ]
    )
    assert request.messages == (
        Message("user", (Text("a"),)),
        Message("user", (Text("b"),)),
        Message(
            "assistant",
            (
                ProviderItem(
                    "openai_responses", "web_search_call", '{"type":"web_search_call","id":"ws_1","status":"completed"}'
                ),
                Text("c"),
                ToolCall(id="x", name="read"),
                ToolCall(id="y", name="sql", arguments="", free_form=True),
            ),
        ),
        Message(
            "tool",
            (
                ToolResult(call_id="x", name="read", content=(Text("1"),), opaque=own(status="completed")),
                ToolResult(call_id="y", name="sql", content=(File(media_type="image/*", url="u"),), free_form=True),
            ),
        ),
        Message(
            "user",
            (
                ProviderItem(
                    "openai_responses",
                    "mcp_approval_response",
                    '{"type":"mcp_approval_response","approval_request_id":"m","approve":true}',
                ),
            ),
        ),
        Message("assistant", (ProviderItem("openai_responses", "item_reference", '{"id":"msg_7"}'),)),
    )


def test_a_call_in_history_that_is_no_json_is_marked() -> None:
    """It is read as it stands; written again it has empty arguments."""
    request = decoded(input=[{"type": "function_call", "call_id": "x", "name": "read", "arguments": '{"p'}])
    assert request.messages[0].parts == (
        ToolCall(
            id="x",
            name="read",
            arguments='{"p',
            state=ArgumentsState.INVALID,
            reason="the arguments are not JSON",
        ),
    )
    assert encoded(request)["input"][0]["arguments"] == "{}"


@each(
    ("body", "said"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"model":"m"}', "`input` is missing"),
        (b'{"input":"x"}', "`model` is missing"),
        (b'{"model":"m","input":3}', "`input` must be a string or a list"),
        (b'{"model":"m","input":["x"]}', "`input[0]` must be an object"),
        (b'{"model":"m","input":[{"role":"alien","content":"x"}]}', "`input[0].role`"),
        (b'{"model":"m","input":[{"role":"user"}]}', "`input[0].content` is missing"),
        (b'{"model":"m","input":[{"type":"function_call","name":"a","arguments":"{}"}]}', "`input[0].call_id`"),
        (b'{"model":"m","input":[{"type":"function_call_output","output":"a"}]}', "`input[0].call_id`"),
        (b'{"model":"m","input":[{"type":"function_call_output","call_id":"a"}]}', "`input[0].output`"),
        (b'{"model":"m","input":"x","tools":[{"type":"function"}]}', "`tools[0].name`"),
        (b'{"model":"m","input":"x","max_output_tokens":"many"}', "max_output_tokens"),
        (b'{"model":"m","input":"\xff"}', "cannot be read"),
    ],
)
def test_a_malformed_request_is_refused_with_its_place(body: bytes, said: str) -> None:
    """What the lab answers with 400."""
    with pytest.raises(BadRequest) as refused:
        FAMILY.decode_request(body, "/responses")
    assert said in str(refused.value)


def test_every_recorded_request_is_read_and_written_again(corpus: Path) -> None:
    """Streams' requests, conversations and refused requests: read, and unchanged by our own encoder."""
    bodies = recorded_requests(corpus)
    assert len(bodies) >= 280
    for where, body in bodies:
        request = FAMILY.decode_request(json.dumps(body).encode(), "/responses")
        call = FAMILY.encode_request(request, PROFILE)
        assert FAMILY.decode_request(call.body, call.path) == request, where
        sent = json.loads(call.body)
        count = len(body["input"]) if isinstance(body["input"], list) else 1
        assert len(sent["input"]) + ("instructions" in sent) == count + ("instructions" in body), where


def recorded_requests(corpus: Path) -> list[tuple[str, dict[str, Any]]]:
    bodies = [(row.file, row.request) for row in of_family(corpus, "openai_responses") if row.request]
    for path in sorted(corpus.glob("conversations/openai-responses-*")):
        exchanges = json.loads(path.read_text(encoding="utf-8"))["exchanges"]
        bodies += [(path.name, exchange["request"]["body"]) for exchange in exchanges]
    for path in sorted(corpus.glob("errors/openai_responses__*")):
        bodies.append((path.name, json.loads(path.read_text(encoding="utf-8"))["request"]["body"]))
    return bodies


def test_every_loss_is_said_once() -> None:
    """A table that people read."""
    assert len({loss.what for loss in LOSSES}) == len(LOSSES)
    assert {loss.direction for loss in LOSSES} <= {"request", "response", "both"}
