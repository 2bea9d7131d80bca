"""Names of tools that an API or a server refuses: mapped while a request is written, and back while the answer is read.

Reports: MoonshotAI/kimi-cli#2531 (a name that begins with no letter); openai/codex#8174 (dots); github/copilot-cli#2581 (length).
"""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families import traits_of
from thoroughness import examples
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.rules.history import heal
from turnwise.vocab import (
    Finished,
    FinishReason,
    Frame,
    Message,
    NamedTool,
    PartDone,
    Request,
    Response,
    Started,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    ToolSpec,
    calls_of,
)
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.tool_names import own_names

KNOWN = builtin_profiles()
ROWS = ["openai", "openai-chat", "anthropic", "google", "vllm", "moonshot", "mistral", "gemini-openai"]
NAMES = st.text(st.sampled_from("aZ9_-.:/ é\ud800"), min_size=1, max_size=140)
HELLO = Message("user", (Text("hi"),))


def said(names: list[str]) -> tuple[Message, ...]:
    calls = tuple([ToolCall(id=f"call{n:05}", name=name) for n, name in enumerate(names)])
    results = tuple([ToolResult(call_id=call.id, name=call.name, content=(Text("ok"),)) for call in calls])
    return (HELLO, Message("assistant", calls), Message("tool", results))


def names_in(value: Any) -> list[str]:
    """The names of functions in a body, where any family has them: in history, in order."""
    found: list[str] = []
    if isinstance(value, list):
        return [name for one in value for name in names_in(one)]
    if isinstance(value, dict):
        kinds = ("function_call", "tool_use")
        if value.get("type") in kinds or (
            "name" in value and ("arguments" in value or "args" in value or "response" in value)
        ):
            found.append(value["name"])
        found += [name for one in value.values() for name in names_in(one)]
    return found


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("row", ROWS)
@settings(max_examples=examples(60), deadline=None, database=None, derandomize=True)
@given(names=st.lists(NAMES, min_size=1, max_size=4, unique=True))
def test_a_name_of_another_familys_history_goes_up_fitted_and_stays_as_it_was(row: str, names: list[str]) -> None:
    """Proves: the history that is kept has the names that were said; every body has names that the API and the server take, one
    for each, the same in call and result, and a longer history begins with the same bytes."""
    profile = KNOWN[row]
    healed = heal(said(names), family=profile.family, traits=traits_of(profile.family))
    assert [call.name for call in calls_of(healed.messages[1])] == names
    history, bodies = EncodedHistory(), []
    for messages in (healed.messages, (*healed.messages, HELLO)):
        request = Request(model="m", messages=messages)
        body = family(profile.family).encode_request(request, profile, history=history).body
        assert body == family(profile.family).encode_request(request, profile).body
        bodies.append(json.loads(body))
    for body in bodies:
        found = names_in([body[key] for key in ("messages", "input", "contents") if key in body])
        assert all(family(profile.family).tool_names.fullmatch(name) for name in found)
        assert not profile.tool_names or all(re.fullmatch(profile.tool_names, name) for name in found)
        assert len(set(found)) == len(names)
        changed = [own for up, own in zip(found, names, strict=False) if up != own]
        assert profile.tool_names or not any(family(profile.family).tool_names.fullmatch(own) for own in changed)
    for key in ("messages", "input", "contents"):
        for shorter, longer in pairwise([body.get(key, []) for body in bodies]):
            assert longer[: len(shorter) - 1] == shorter[:-1]


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("row_and_name", ["moonshot _find", "moonshot 1st", "mistral a.b", "gemini-openai 2fa"])
def test_a_tool_that_the_row_refuses_has_its_own_name_again_in_the_answer(row_and_name: str) -> None:
    """Proves: tools, choice and history have one name that the server takes; frames and responses, streamed and whole, have the
    tool's own, also where its name comes in pieces. A server without such a rule gets the name as it is."""
    row, own = row_and_name.split()
    profile, chat = KNOWN[row], family("openai_chat")
    tools = (ToolSpec(name=own), ToolSpec(name="plain"))
    request = Request(model="kimi-k2", messages=said([own]), tools=tools, tool_choice=NamedTool(own))
    body = json.loads(chat.encode_request(request, profile).body)
    up = body["tools"][0]["function"]["name"]
    assert re.fullmatch(profile.tool_names, up) and body["tools"][1]["function"]["name"] == "plain"
    assert names_in(body["messages"]) == [up]
    asked = body["messages"][-1]["content"] if row == "moonshot" else body["tool_choice"]["function"]["name"]
    assert asked == (f"Call the tool `{up}` now." if row == "moonshot" else up)
    back = own_names(request, profile)
    assert back == {up: own}

    def call(name: str) -> tuple[Frame, ...]:
        return (ToolCallDelta(block="a", index=0, id="call00001", name=name, arguments="{}"),)

    encoder = chat.stream_encoder(request)
    frames = [Started(id="r", model="m"), *call(up), Finished(FinishReason.TOOL_CALLS, None)]
    stream = b"".join([*map(encoder.encode, frames), encoder.finish()])
    for size in (1, 50, len(stream)):
        reader = ResponseReader(chat, profile=profile, own_names=back)
        shown = [frame for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]
        shown += reader.flush()
        assert {frame.name for frame in shown if isinstance(frame, ToolCallDelta) and frame.name} == {own}
        assert {
            frame.part.name for frame in shown if isinstance(frame, PartDone) and isinstance(frame.part, ToolCall)
        } <= {own}
        assert [one.name for one in calls_of(reader.finish().message)] == [own]
    whole = Response(message=Message("assistant", (ToolCall(id="call00001", name=up),)), finish=FinishReason.TOOL_CALLS)
    response, _ = read_body(chat.encode_body(whole, request), family=chat, profile=profile, own_names=back)
    assert [one.name for one in calls_of(response.message)] == [own]
    assert own_names(request, KNOWN["vllm"]) == {}
    assert json.loads(chat.encode_request(request, KNOWN["vllm"]).body)["tools"][0]["function"]["name"] == own


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_name_in_pieces_is_read_beside_a_tool_that_is_named_like_its_beginning(cut: int) -> None:
    """Proves: the reader knows the names that went up, so the first piece is taken for no other tool, wherever it is cut."""
    profile, chat = KNOWN["mistral"], family("openai_chat")
    tools = (ToolSpec(name="get.weather"), ToolSpec(name="get"))
    back = own_names(Request(model="m", messages=(HELLO,), tools=tools), profile)
    (name,) = back
    reader = ResponseReader(chat, profile=profile, own_names=back, tool_names=frozenset(tool.name for tool in tools))
    deltas: list[dict[str, Any]] = [
        {"index": 0, "id": "call00001", "type": "function", "function": {"name": name[:cut]}},
        {"index": 0, "function": {"name": name[cut:]}},
        {"index": 0, "function": {"arguments": "{}"}},
    ]
    for delta in deltas:
        choice = {"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": None}
        reader.feed(b"data: " + json.dumps({"id": "r", "choices": [choice]}).encode() + b"\n\n")
    reader.feed(b'data: {"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n')
    assert [(call.name, call.arguments) for call in calls_of(reader.finish().message)] == [("get.weather", "{}")]
