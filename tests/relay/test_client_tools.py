"""A client's tools whose form the upstream's API does not have: names, namespaces of functions, the client's own search.

Reports: openai/codex#8174, github/copilot-cli#2581 and #1879 (names); MetaFARS/codex-relay#6, envoyproxy/ai-gateway#2317 and
openai/codex#32318 (namespaces, `tool_search`); LeenHawk/gproxy#239 (`tool_reference`).
"""

import json
import re
from typing import Any

import pytest

from relay.asking_relay import FAMILIES, PROFILES, ask, body_of, plain, refusal, send, told_of
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, UpstreamSide
from turnwise.relay.event_reader import EventReader
from turnwise.relay.terms import UpstreamRequest
from turnwise.vocab import (
    Finished,
    FinishReason,
    Message,
    Response,
    Started,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    calls_of,
)
from turnwise.wire.family import family

DOTTED, LONG = "calendar.respond:to", "mcp__" + "x" * 125
TAKEN = {"openai_chat": r"[\w-]{1,64}", "openai_responses": r"[\w-]{1,64}", "anthropic_messages": r"[\w-]{1,128}"}
OTHERS = [name for name in FAMILIES if name != "openai_responses"]
FUNCTION = {"type": "function", "name": "status", "parameters": {"type": "object", "properties": {}}, "strict": False}
GROUP = {"type": "namespace", "name": "mcp__burp__", "description": "burp", "tools": [FUNCTION]}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def gemini(*, calls: bool) -> dict[str, Any]:
    tools = [{"functionDeclarations": [{"name": DOTTED, "description": "d"}, {"name": LONG, "description": "d"}]}]
    contents: list[Any] = [{"role": "user", "parts": [{"text": "hi"}]}]
    if calls:
        contents += [
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": DOTTED, "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": DOTTED, "response": {"ok": True}}}]},
        ]
    return {"contents": contents, "tools": tools}


def answered(source: str, asked: dict[str, Any], sent: UpstreamRequest, call: ToolCall, *, stream: bool) -> Response:
    """The answer with this call as the client reads it."""
    target = sent_to(sent)
    there, here = family(target), family(source)
    request = ask(source, asked, stream=stream).request
    relay = Relay(
        upstream=UpstreamSide(
            request=sent.request, tools=sent.tools, call=sent.call, family=there, profile=PROFILES[target]
        ),
        client=ClientSide(request=request, family=here),
        rules=RelayRules(),
    )
    relay.first()
    out = b""
    if stream:
        encoder = there.stream_encoder(sent.request)
        delta = ToolCallDelta(block="a", index=0, id=call.id, name=call.name, arguments=call.arguments)
        frames = [Started(id="r", model="m"), delta, Finished(FinishReason.TOOL_CALLS, None)]
        reader = relay.reader()
        assert isinstance(reader, EventReader)
        reader.feed(b"".join([*map(encoder.encode, frames), encoder.finish()]))
        reply = reader.finish()
        out = reader.take_out()
    else:
        response = Response(message=Message("assistant", (call,)), finish=FinishReason.TOOL_CALLS, id="r", model="m")
        body = there.encode_body(response, sent.request)
        relay.saw_body(body)
        reply, _ = read_body(body, family=there, profile=PROFILES[target])
    step = relay.ended(reply, None, waited_s=0, jitter=0.5)
    assert isinstance(step.next, RelayEnd) and step.next.fault is None
    out += step.out
    if not stream:
        return read_body(out, family=here, profile=PROFILES[source])[0]
    decoder = ResponseReader(here, profile=PROFILES[source])
    decoder.feed(out)
    return decoder.finish()


def sent_to(sent: UpstreamRequest) -> str:
    paths = {"/chat/completions": "openai_chat", "/responses": "openai_responses", "/v1/messages": "anthropic_messages"}
    return paths.get(sent.call.path, "gemini")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("target", TAKEN)
def test_a_name_of_another_family_goes_up_fitted_and_comes_back_as_it_was(target: str, stream: bool) -> None:
    """Proves: each name, in tools, calls and results, is one that the upstream takes; a longer history has the same names; the
    client reads its own."""
    sent = send("gemini", gemini(calls=False), to=target, stream=stream)
    names = [tool.name for tool in sent.request.tools]
    assert len(set(names)) == 2 and all(re.fullmatch(TAKEN[target], name) for name in names)
    longer = send("gemini", gemini(calls=True), to=target, stream=stream)
    assert [tool.name for tool in longer.request.tools] == names
    parts = [part for message in longer.request.messages for part in message.parts]
    assert [part.name for part in parts if isinstance(part, ToolCall | ToolResult)] == [names[0], names[0]]
    for name, own in zip(names, (DOTTED, LONG), strict=True):
        call = ToolCall(id="call_1", name=name, arguments='{"a":1}')
        response = answered("gemini", gemini(calls=False), sent, call, stream=stream)
        assert [(one.name, one.arguments) for one in calls_of(response.message)] == [(own, '{"a":1}')]


def test_two_names_never_become_one() -> None:
    """Proves: names that differ only in what has to go stay different, also beside a tool that has the fitted name already."""
    chat = lambda *names: plain(  # noqa: E731
        "openai_responses",
        tools=[{"type": "function", "name": name, "parameters": {"type": "object"}} for name in names],
    )
    first = [tool.name for tool in send("openai_responses", chat("a.b", "a:b"), to="openai_chat").request.tools]
    assert len(set(first)) == 2
    again = [tool.name for tool in send("openai_responses", chat("a.b", first[0]), to="openai_chat").request.tools]
    assert len(set(again)) == 2 and again[1] == first[0]


def test_functions_of_two_namespaces_never_become_one() -> None:
    """Proves: where a namespace and a name spell what another tool is called, each has a name of its own, in tools and calls
    alike, and a call comes back as the tool that was meant."""
    groups: list[Any] = [
        {"type": "namespace", "name": "a__", "description": "d", "tools": [{**FUNCTION, "name": "b__c"}]},
        {"type": "namespace", "name": "a__b__", "description": "d", "tools": [{**FUNCTION, "name": "c"}]},
        {"type": "namespace", "name": "ns", "description": "d", "tools": [{**FUNCTION, "name": "read"}]},
        {**FUNCTION, "name": "ns__read"},
    ]
    item = {"type": "function_call", "call_id": "call_1", "name": "c", "namespace": "a__b__", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "fine"}
    body = plain("openai_responses", tools=groups, input=[{"role": "user", "content": "hi"}, item, output])
    sent = send("openai_responses", body, to="openai_chat")
    names = [tool.name for tool in sent.request.tools]
    assert len(set(names)) == 4 and (names[0], names[3]) == ("a__b__c", "ns__read")
    parts = [part for message in sent.request.messages for part in message.parts]
    assert [part.name for part in parts if isinstance(part, ToolCall | ToolResult)] == [names[1]] * 2
    came: list[tuple[str, str]] = []
    for name in names:
        call = ToolCall(id="call_2", name=name, arguments="{}")
        [one] = calls_of(answered("openai_responses", body, sent, call, stream=False).message)
        came.append((one.name, json.loads(one.opaque.json).get("namespace", "") if one.opaque else ""))
    assert came == [("b__c", "a__"), ("c", "a__b__"), ("read", "ns"), ("ns__read", "")]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("target", OTHERS)
def test_functions_of_a_namespace_are_called_and_come_back_with_it(target: str, stream: bool) -> None:
    """Proves: what Codex makes of an MCP server works for another family: offered, called, and in the history."""
    body = plain("openai_responses", tools=[GROUP], stream=stream)
    sent = send("openai_responses", body, to=target)
    assert ([tool.name for tool in sent.request.tools], told_of(sent)) == (["mcp__burp__status"], [])
    call = ToolCall(id="call_1", name="mcp__burp__status", arguments="{}")
    [came] = calls_of(answered("openai_responses", body, sent, call, stream=stream).message)
    assert came.name == "status" and came.opaque is not None
    assert json.loads(came.opaque.json)["namespace"] == "mcp__burp__"
    item = {
        "type": "function_call",
        "call_id": "call_1",
        "name": "status",
        "namespace": "mcp__burp__",
        "arguments": "{}",
    }
    output = {"type": "function_call_output", "call_id": "call_1", "output": "fine"}
    history = plain("openai_responses", tools=[GROUP], input=[{"role": "user", "content": "hi"}, item, output])
    again = send("openai_responses", history, to=target)
    parts = [part for message in again.request.messages for part in message.parts]
    assert [part.name for part in parts if isinstance(part, ToolCall | ToolResult)] == ["mcp__burp__status"] * 2
    assert "input.namespace" not in told_of(again)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("target", OTHERS)
def test_the_clients_own_search_for_tools_is_a_function(target: str, stream: bool) -> None:
    """Proves: its call comes back as the client's own item, and what it found is history and on offer."""
    body = plain("openai_responses", tools=[FUNCTION, SEARCH], stream=stream)
    sent = send("openai_responses", body, to=target)
    assert [tool.name for tool in sent.request.tools] == ["status", "tool_search"]
    call = ToolCall(id="call_1", name="tool_search", arguments='{"query":"x"}')
    [item] = answered("openai_responses", body, sent, call, stream=stream).message.parts
    found = json.loads(getattr(item, "json", "{}"))
    assert (found["type"], found["execution"], found["arguments"]) == ("tool_search_call", "client", {"query": "x"})
    output = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [GROUP]}
    more = {"type": "additional_tools", "role": "developer", "tools": [{**FUNCTION, "name": "later"}]}
    history = plain("openai_responses", tools=[SEARCH], input=[{"role": "user", "content": "hi"}, found, output, more])
    again = send("openai_responses", history, to=target)
    assert [tool.name for tool in again.request.tools] == ["tool_search", "mcp__burp__status", "later"]
    assert [message.role for message in again.request.messages] == ["user", "assistant", "tool"]
    assert "mcp__burp__status" in json.dumps(body_of(again)) and told_of(again) == []


@pytest.mark.parametrize("target", OTHERS)
def test_a_function_that_is_called_like_the_search_is_another_tool(target: str) -> None:
    """Proves: a client's function `tool_search` beside its own search keeps its name, and the search has another one, the same in
    tools, calls and results; a call of either comes back as what was meant."""
    function = {**FUNCTION, "name": "tool_search"}
    body = plain("openai_responses", tools=[function, SEARCH])
    sent = send("openai_responses", body, to=target)
    [own, search] = [tool.name for tool in sent.request.tools]
    assert own == "tool_search" != search
    [item] = answered(
        "openai_responses", body, sent, ToolCall(id="c1", name=search, arguments="{}"), stream=False
    ).message.parts
    found = json.loads(getattr(item, "json", "{}"))
    assert found["type"] == "tool_search_call"
    call = ToolCall(id="c2", name=own, arguments="{}")
    [item] = answered("openai_responses", body, sent, call, stream=False).message.parts
    assert isinstance(item, ToolCall) and item.name == "tool_search"
    output = {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [GROUP]}
    input = [{"role": "user", "content": "hi"}, found, output]
    again = send("openai_responses", plain("openai_responses", tools=[function, SEARCH], input=input), to=target)
    parts = [part for message in again.request.messages for part in message.parts]
    assert [part.name for part in parts if isinstance(part, ToolCall | ToolResult)] == [search] * 2


@pytest.mark.parametrize("target", OTHERS)
def test_items_of_a_client_are_carried_or_refused_by_name(target: str) -> None:
    """Proves: another agent's words are text; what is encrypted for its provider is refused; none becomes an empty message."""
    user = {"role": "user", "content": "hi"}
    said = {"type": "agent_message", "author": "/root", "content": [{"type": "input_text", "text": "the build is red"}]}
    sent = send("openai_responses", plain("openai_responses", input=[user, said]), to=target)
    assert "the build is red" in json.dumps(body_of(sent))
    sealed = {"type": "agent_message", "content": [{"type": "encrypted_content", "encrypted_content": "x"}]}
    for item in (sealed, {"type": "compaction", "encrypted_content": "x"}, {"type": "compaction_trigger"}):
        asked = plain("openai_responses", input=[user, item])
        assert refusal("openai_responses", asked, to=target) == f"input.{item['type']}"
    served = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    sent = send("openai_responses", plain("openai_responses", input=[user, served, user]), to=target)
    assert [message.role for message in sent.request.messages if not message.parts] == []
    assert told_of(sent) == ["input.web_search_call"]


@pytest.mark.parametrize("target", [name for name in FAMILIES if name != "anthropic_messages"])
def test_blocks_of_a_result_that_are_words_go_as_words(target: str) -> None:
    """Proves: tools that were found, passages of a search and documents of text reach the model of another family."""
    blocks = [
        {"type": "tool_reference", "tool_name": "WebFetch"},
        {
            "type": "search_result",
            "source": "https://x",
            "title": "T",
            "content": [{"type": "text", "text": "a passage"}],
        },
        {
            "type": "document",
            "title": "D",
            "source": {"type": "text", "media_type": "text/plain", "data": "a document"},
        },
    ]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": blocks}]},
    ]
    tools = [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    sent = send("anthropic_messages", plain("anthropic_messages", messages=messages, tools=tools), to=target)
    text = json.dumps(body_of(sent))
    assert all(words in text for words in ("WebFetch", "a passage", "https://x", "a document"))
    sealed = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "sealed", "data": "x"}]}]
    asked = plain("anthropic_messages", messages=[*messages[:2], {"role": "user", "content": sealed}], tools=tools)
    assert refusal("anthropic_messages", asked, to=target) == "messages.tool_result"
