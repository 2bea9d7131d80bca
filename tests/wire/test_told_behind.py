"""Tools and instructions that Claude is told behind the messages (promise step:bound-thinking)."""

import json
from collections.abc import Sequence

import msgspec
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lab.judging import refusal_of
from turnwise.lab.strict import ModelRules
from turnwise.vocab import Message, Request, Text, ToolCall, ToolResult, ToolSpec, new_tool, new_tools_in
from turnwise.wire.anthropic_messages.request import TOOLS_BETA, encode_request
from turnwise.wire.generations import GENERATIONS, tells_behind
from turnwise.wire.profiles import builtin_profiles
from wire.test_anthropic_messages_requests import walk

ROW = builtin_profiles()["anthropic"]
ACCEPTED = TypeAdapter(MessageCreateParamsStreaming | MessageCreateParamsNonStreaming)
TOOLS = (ToolSpec(name="read", description="Reads."), ToolSpec(name="look"), ToolSpec(name="find"))
CHANGED = Message("system", (Text("They have changed.\n", note="instructions"), Text("Be short.")))
told = st.sampled_from([CHANGED, *[Message("system", (new_tool(tool.name),)) for tool in TOOLS[1:]]])


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """The user's words, then steps with calls and answers; words may stand behind results, too."""
    said = [Message("user", (Text("Go."),))]
    for number in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            call = ToolCall(id=f"toolu_{number}", name="read")
            said += [Message("assistant", (call,)), Message("tool", (ToolResult(call_id=call.id, name="read"),))]
            if draw(st.booleans()):
                continue
        else:
            said.append(Message("assistant", (Text("Done."),)))
        said.append(Message("user", (Text("And?"),)))
    return said


def written(model: str, messages: Sequence[Message], *, appended: tuple[str, ...]) -> Request:
    return Request(model=model, messages=tuple(messages), tools=TOOLS, appended_tools=appended, system_in_input=True)


@pytest.mark.promise("step:bound-thinking")
@given(messages=conversations(), added=st.lists(st.tuples(st.integers(0, 30), told), max_size=4))
def test_what_is_told_stands_where_the_api_takes_it(messages: list[Message], added: list[tuple[int, Message]]) -> None:
    """Proves: wherever such messages are in a history, the judge and the SDK's own types take the body; each tool is offered
    once, and the beta is asked for where a message defines one. The judge's rules of place are the API's (read in 2026-11)."""
    history = list(messages)
    for place, message in added:
        history.insert(place % (len(history) + 1), message)
    names = tuple(dict.fromkeys(new_tools_in(*[message for _, message in added])))
    call = encode_request(written("claude-opus-5-5", history, appended=names), ROW)
    body = json.loads(call.body)
    betas = [value for name, value in call.headers if name == "anthropic-beta"]
    assert refusal_of("anthropic_messages", body, ModelRules(adaptive=True, betas=",".join(betas))) is None
    walk(ACCEPTED.validate_python(body))
    blocks = [block for one in body["messages"] if one["role"] == "system" for block in one["content"]]
    defined = [block["tool"]["definition"]["name"] for block in blocks if block["type"] == "tool_addition"]
    assert sorted({*defined, *[tool["name"] for tool in body["tools"]]}) == ["find", "look", "read"]
    assert not {*defined} & {tool["name"] for tool in body["tools"]}
    assert betas == ([TOOLS_BETA] if names else [])


def test_the_models_that_take_it_are_the_documented_ones() -> None:
    """Source: Claude docs, "Mid-conversation system messages and tool changes": not Sonnet 5, and none before Opus 4.8."""
    takes = {name for row in GENERATIONS for name in row.names if tells_behind(name)}
    claude = {name for row in GENERATIONS for name in row.names if name.startswith("claude-")}
    assert claude - takes == {"claude-opus-4-7", "claude-sonnet-5"}
    assert (
        not tells_behind("claude-sonnet-4-6") and not tells_behind("claude-opus-6") and not tells_behind("gpt-6.2-sol")
    )


def test_what_does_not_take_it_has_tools_in_front_and_the_users_text() -> None:
    """Proves: another model, another server, and a server that has refused it read the words that the message says, as ever."""
    messages = [Message("user", (Text("Hi."),)), Message("system", (new_tool("look"),)), CHANGED]
    plain = written("claude-opus-5-5", messages, appended=("look",))
    for request, row in (
        (msgspec.structs.replace(plain, model="claude-sonnet-5"), ROW),
        (plain, builtin_profiles()["bedrock-anthropic"]),
        (plain, builtin_profiles()["anthropic_messages"]),
        (msgspec.structs.replace(plain, lessons=("nothing_behind",)), ROW),
    ):
        call = encode_request(request, row)
        body = json.loads(call.body)
        assert [tool["name"] for tool in body["tools"]] == ["read", "look", "find"]
        assert [one["role"] for one in body["messages"]] == ["user"]
        assert "Be short." in call.body.decode() and "anthropic-beta" not in dict(call.headers)
    alone = encode_request(msgspec.structs.replace(plain, tools=TOOLS[1:2]), ROW)
    assert [tool["name"] for tool in json.loads(alone.body)["tools"]] == ["look"]
