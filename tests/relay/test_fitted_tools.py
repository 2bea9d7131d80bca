"""Tools of a Chat client for a Chat server that refuses some of their schemas or names.

Reports: MoonshotAI/kimi-cli#2531 and #2061 (names, `$ref`); langchain-ai/langchainjs#9804 (unions); QwenLM/qwen-code#11834
(no `parameters`).
"""

import json
import re
from typing import Any

import pytest

from lab.public_tools import PUBLIC_SCHEMAS
from relay.asking_relay import plain, send, told_of
from tables import each
from turnwise.assembly.response_reading import ResponseReader
from turnwise.lab.strict import Rejected, check
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.relay.event_reader import EventReader
from turnwise.relay.terms import RouteTerms, UpstreamRequest
from turnwise.vocab import Finished, FinishReason, Started, Text, ToolCall, ToolCallDelta, ToolResult, calls_of
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import Profile, builtin_profiles

ROWS = [*builtin_dialects(), "openai-chat"]
# Known from reports alone (langchain-ai/langchainjs#9804); and below `then` no judge looks.
UNJUDGED = {("openai-chat", "root_one_of_needs"), ("openai-chat", "root_condition"), ("groq", "root_condition")}
PLAIN: dict[str, Any] = {"type": "object", "properties": {"q": {"type": "string"}}}


def tool(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    given = {} if parameters is None else {"parameters": parameters}
    return {"type": "function", "function": {"name": name, "description": "D.", **given, **more}}


def sent_to(row: str, tools: list[Any], **more: Any) -> UpstreamRequest:
    body = json.dumps(plain("openai_chat", tools=tools, stream=True, **more)).encode()
    return send("openai_chat", body, to="openai_chat", profile=builtin_profiles()[row])


def text_of(result: ToolResult) -> str:
    return "".join([part.text for part in result.content if isinstance(part, Text)])


def is_taken(row: str, body: bytes) -> bool:
    try:
        check("openai_chat", body=json.loads(body), dialect=builtin_dialects().get(row))
    except Rejected:
        return False
    return True


@pytest.mark.promise("heal:dialect")
@each("row", ROWS)
def test_a_schema_changes_where_the_row_refuses_it_and_only_there(row: str) -> None:
    """Proves: of forty schemas each one that the server takes goes up in its own bytes; each other one goes up in a form that it
    takes, told."""
    for name, schema in PUBLIC_SCHEMAS.items():
        tools = [tool("plain", PLAIN), tool(name, schema, strict=False)]
        asked = json.dumps(plain("openai_chat", tools=tools)).encode()
        sent = sent_to(row, tools)
        as_asked = json.dumps(tools).encode() in sent.call.body
        assert is_taken(row, sent.call.body), name
        assert as_asked == is_taken(row, asked) or (row, name) in UNJUDGED, name
        assert as_asked == (told_of(sent) == []), name


@pytest.mark.promise("heal:dialect")
def test_a_tool_without_parameters_and_one_that_takes_no_object() -> None:
    """Proves: MiniMax gets `parameters` where there are none; a tool that no call could fit is left out by name, with a choice
    that names it, and the rest of the request goes up."""
    sent = sent_to("minimax", [tool("bare"), tool("plain", PLAIN)])
    assert is_taken("minimax", sent.call.body) and told_of(sent) == ["tools.parameters"]
    assert sent_to("deepseek", [tool("bare")]).told == ()
    choice = {"type": "function", "function": {"name": "rows"}}
    sent = sent_to("deepseek", [tool("rows", {"type": "array"}), tool("plain", PLAIN)], tool_choice=choice)
    body = json.loads(sent.call.body)
    assert [one["function"]["name"] for one in body["tools"]] == ["plain"] and "tool_choice" not in body
    assert told_of(sent) == ["tools"] and "`rows`" in sent.told[0].what and is_taken("deepseek", sent.call.body)
    referring = {"$ref": "#/$defs/T", "$defs": {"T": {"type": "string"}}}
    sent = sent_to("moonshot", [tool("rows", referring), tool("plain", PLAIN)])
    assert [one["function"]["name"] for one in json.loads(sent.call.body)["tools"]] == ["plain"]
    for target in ("anthropic_messages", "openai_responses", "gemini"):
        crossed = send("openai_chat", plain("openai_chat", tools=[tool("rows", referring)]), to=target)
        assert "tools" not in json.loads(crossed.call.body) and "`rows`" in crossed.told[0].what
    crossed = send(
        "openai_chat", plain("openai_chat", tools=[tool("rows", {"type": "array"})]), to="anthropic_messages"
    )
    assert "tools" not in json.loads(crossed.call.body) and "tools" in told_of(crossed)


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize(
    ("row", "name"), [("moonshot", "2captcha"), ("mistral", "a.b"), ("gemini-openai", "1st"), ("mistral", "x" * 65)]
)
def test_a_name_that_the_row_refuses_is_the_clients_own_again_in_the_answer(row: str, name: str) -> None:
    """Proves: tools, history and choice have one name that the server takes; the client's stream has its own. A server without
    such a rule gets the client's bytes."""
    call = {"id": "abcdefgh1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": "ok"},
    ]
    choice = {"type": "function", "function": {"name": name}}
    tools = [tool(name, PLAIN), tool("plain", PLAIN)]
    sent = sent_to(row, tools, messages=messages, tool_choice=choice, model="kimi-k3")
    body, profile = json.loads(sent.call.body), builtin_profiles()[row]
    fitted = body["tools"][0]["function"]["name"]
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", fitted) and "tools.name" in told_of(sent)
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == fitted
    assert row != "mistral" or (body["tool_choice"]["function"]["name"], is_taken(row, sent.call.body)) == (
        fitted,
        True,
    )
    assert read_back(sent, fitted, profile) == name
    assert json.dumps(name).encode() in sent_to("vllm", tools, messages=messages).call.body


def read_back(sent: UpstreamRequest, called: str, profile: Profile) -> str:
    """The name of a call in the client's stream, when the upstream calls this one."""
    client = sent.request
    upstream = UpstreamSide(request=sent.request, tools=sent.tools, call=sent.call, family=FAMILY, profile=profile)
    relay = Relay(upstream=upstream, client=ClientSide(request=client, family=FAMILY), rules=RelayRules())
    relay.first()
    encoder = FAMILY.stream_encoder(client)
    delta = ToolCallDelta(block="a", index=0, id="call_1", name=called, arguments="{}")
    frames = [Started(id="r", model="m"), delta, Finished(FinishReason.TOOL_CALLS, None)]
    reader = relay.reader()
    assert isinstance(reader, EventReader)
    reader.feed(b"".join([*map(encoder.encode, frames), encoder.finish()]))
    step = relay.ended(reader.finish(), None, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd) and step.next.fault is None
    decoder = ResponseReader(FAMILY, profile=profile)
    decoder.feed(reader.take_out() + step.out)
    return calls_of(decoder.finish().message)[0].name


@pytest.mark.promise("heal:dialect")
def test_a_clients_name_of_a_user_goes_where_it_is_taken() -> None:
    """Proves: Mistral gets no `name` and the client is told; Groq and servers without such a rule get the client's own bytes."""
    messages = [{"role": "user", "content": "hi", "name": "ann"}]
    sent = sent_to("mistral", [tool("plain", PLAIN)], messages=messages)
    assert is_taken("mistral", sent.call.body) and told_of(sent) == ["messages.name"]
    assert json.loads(sent.call.body)["messages"] == [{"role": "user", "content": "hi"}]
    for row in ("groq", "vllm", "openai-chat"):
        kept = sent_to(row, [tool("plain", PLAIN)], messages=messages)
        assert json.dumps(messages).encode() in kept.call.body and told_of(kept) == []
        assert is_taken(row, kept.call.body)


@pytest.mark.promise("heal:dialect")
def test_two_assistants_at_the_end_and_a_choice_that_a_model_refuses() -> None:
    """Proves: Ollama gets a line of the user behind two texts of the assistant, not behind one; OpenRouter gets a forced choice
    in words for models of Z.ai alone. Reports: NousResearch/hermes-agent#80265, vectorize-io/hindsight#4246."""
    said = [
        {"role": role, "content": text} for role, text in (("user", "hi"), ("assistant", "one"), ("assistant", "two"))
    ]
    for length, told in ((2, []), (3, ["messages[-1]"])):
        sent = sent_to("ollama", [tool("plain", PLAIN)], messages=said[:length])
        assert is_taken("ollama", sent.call.body) and told_of(sent) == told
        assert [one["content"] for one in json.loads(sent.call.body)["messages"]][:length] == ["hi", "one", "two"][
            :length
        ]
    choice = {"type": "function", "function": {"name": "plain"}}
    asked = json.dumps(plain("openai_chat", tools=[tool("plain", PLAIN)], tool_choice=choice)).encode()
    for model in ("openai/gpt-5", "z-ai/glm-5"):
        terms = RouteTerms(model=model)
        sent = send("openai_chat", asked, to="openai_chat", profile=builtin_profiles()["openrouter"], terms=terms)
        if model == "openai/gpt-5":
            assert json.loads(sent.call.body)["tool_choice"] == choice and told_of(sent) == []
    body = json.loads(sent.call.body)
    assert is_taken("openrouter", sent.call.body) and told_of(sent) == ["tool_choice"] and "tool_choice" not in body
    assert body["messages"][-1] == {"role": "user", "content": "Call the tool `plain` now."}


@pytest.mark.promise("heal:dialect")
def test_ids_that_begin_anew_in_each_message_are_of_one_call_each() -> None:
    """Proves: a history with Kimi's ids, which Anthropic's API would refuse, goes up with one id for each call and its result; a
    longer history begins with the same."""

    def step(number: int, *, calls: int) -> list[dict[str, Any]]:
        made = [
            {
                "id": "functions.read:0",
                "type": "function",
                "function": {"name": "read", "arguments": f'{{"n":{number}{n}}}'},
            }
            for n in range(calls)
        ]
        results = [
            {"role": "tool", "tool_call_id": "functions.read:0", "content": f"result-{number}{n}"} for n in range(calls)
        ]
        return [{"role": "assistant", "content": None, "tool_calls": made}, *results]

    history = [{"role": "user", "content": "hi"}, *step(1, calls=1), *step(2, calls=2), *step(3, calls=1)]
    for target in ("anthropic_messages", "openai_responses", "gemini"):
        parts: list[list[Any]] = []
        for length in (3, len(history)):
            sent = send("openai_chat", plain("openai_chat", messages=history[:length]), to=target)
            parts.append([part for message in sent.request.messages for part in message.parts])
        assert parts[1][: len(parts[0])] == parts[0]
        numbers = {part.id: json.loads(part.arguments)["n"] for part in parts[1] if isinstance(part, ToolCall)}
        results = {part.call_id: text_of(part) for part in parts[1] if isinstance(part, ToolResult)}
        assert len(numbers) == 4 and results == {id: f"result-{number}" for id, number in numbers.items()}
        body = json.loads(sent.call.body)
        check(target, body=body)


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("strict", [{}, {"strict": False}])
def test_a_responses_client_gets_its_tools_past_responses(strict: dict[str, Any]) -> None:
    """Proves: of forty schemas each that the API takes goes up in its own bytes, each other in a form that it takes, told;
    a tool that takes no object is left out by name, with a choice that names it."""
    shapes = {
        **PUBLIC_SCHEMAS,
        "bare": {},
        "untyped": {"properties": {"a": {}}},
        "referring": {"$ref": "#/definitions/T", "definitions": {"T": PLAIN}},
        "listed": {"type": ["object", "null"], "properties": {}},
    }
    for name, schema in shapes.items():
        tools = [{"type": "function", "name": name, "parameters": schema, **strict}]
        asked = plain("openai_responses", tools=tools)
        sent = send("openai_responses", asked, to="openai_responses")
        check("openai_responses", body=json.loads(sent.call.body))
        try:
            check("openai_responses", body=asked)
        except Rejected:
            assert told_of(sent) == ["tools.parameters"], name
        else:
            assert json.dumps(tools).encode() in sent.call.body and told_of(sent) == [], name
    rows = {"type": "function", "name": "rows", "parameters": {"type": "array"}, **strict}
    choice = {"type": "function", "name": "rows"}
    sent = send("openai_responses", plain("openai_responses", tools=[rows], tool_choice=choice), to="openai_responses")
    body = json.loads(sent.call.body)
    assert "tools" not in body and "tool_choice" not in body and "`rows`" in sent.told[0].what
