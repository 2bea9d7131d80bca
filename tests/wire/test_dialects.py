"""Servers by their own rules: what each row of `profiles.toml` makes of one history, and what never changes."""

import hashlib
import json
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tables import each
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Reasoning,
    Request,
    ServerLesson,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

KNOWN = builtin_profiles()
CALLS = (ToolCall(id="call_1", name="read", arguments='{"path":"a"}'), ToolCall(id="call_2", name="look"))
RESULTS = (
    ToolResult(call_id="call_1", name="read", content=(Text("one"), Text("two"))),
    ToolResult(call_id="call_2", name="look", content=(Text("a picture"), File(media_type="image/png", data=b"png"))),
)
HISTORY = (
    Message("user", (Text("Read it."), Text("Be quick."))),
    Message("assistant", CALLS),
    Message("tool", RESULTS),
    Message("system", (Text("The user has changed the mode."),)),
    Message("assistant", (Reasoning("hm"),)),
    Message("user", (Text("Go on."),)),
)
TOOLS = (ToolSpec(name="read", description="Reads.", strict=True), ToolSpec(name="look"))
ASKED = Request(model="m", system=(Text("Be kind."),), messages=HISTORY, tools=TOOLS, tool_choice=NamedTool("read"))


def sent(row: str, request: Request = ASKED, *, history: EncodedHistory | None = None) -> dict[str, Any]:
    return json.loads(family(KNOWN[row].family).encode_request(request, KNOWN[row], history=history).body)


# Made before servers other than these were given bodies by their own rules.
KEPT: dict[str, str] = {
    "openai": "0b5c728365fbddb5868a0e727ca68f18",
    "openai-chat": "4accd7952c5199d3e34724b4a6fb12dc",
    "anthropic": "ec3ed6c664eb32eb2072b4b5f3d4935e",
    "google": "09bf2e80964d5b4dbc30fd0483b576f4",
}


@pytest.mark.parametrize("row", KEPT)
def test_bodies_of_the_three_vendors_are_what_they_were(row: str) -> None:
    """Proves: what OpenAI, Anthropic and Google get is byte for byte what they got before other servers' rules were known."""
    cut = ToolCall(id="call_3", name="read", arguments='{"pa', state=ArgumentsState.TRUNCATED, reason="cut")
    empty = (Message("assistant", (cut,)), Message("tool", (ToolResult(call_id="call_3", name="read"),)))
    others = Request(
        model="gpt-5",
        system=(Text("Be kind."),),
        messages=(*HISTORY, *empty, Message("assistant", (Text("Done."),)), Message("user", (Text("More."),))),
        tools=TOOLS,
        tool_choice="none",
        output=OutputSchema(schema='{"type":"object"}'),
        settings=Settings(max_output_tokens=2000, reasoning_effort="high"),
    )
    encode = family(KNOWN[row].family).encode_request
    bodies = b"".join([encode(one, KNOWN[row]).body for one in (ASKED, others)])
    assert hashlib.sha256(bodies).hexdigest()[:32] == KEPT[row]


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def test_an_unknown_server_gets_what_costs_nothing_anywhere() -> None:
    """Proves: leading system texts are one message of role `system`, texts are one string, no content is empty or null where a
    text can stand, and the limit is `max_tokens`; the history keeps what was said."""
    leading = (Message("system", (Text("This folder's rules."),)), *HISTORY)
    body = sent(
        "openai_chat",
        Request(model="m", system=(Text("Be kind."),), messages=leading, settings=Settings(max_output_tokens=9)),
    )
    messages = body["messages"]
    assert messages[0] == {"role": "system", "content": "Be kind.\n\nThis folder's rules."}
    assert messages[1] == {"role": "user", "content": "Read it.\n\nBe quick."}
    assert messages[3] == {"role": "tool", "tool_call_id": "call_1", "content": "one\n\ntwo"}
    assert messages[-2] == {"role": "assistant", "content": "(no text)"}
    assert body["max_tokens"] == 9 and "max_completion_tokens" not in body
    assert roles(sent("openai_chat")) == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "system",
        "assistant",
        "user",
    ]


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("order", ["between", "alternate"])
@pytest.mark.parametrize("choice", ["choice_auto", "choice_unforced"])
def test_two_lessons_hold_in_one_request(order: ServerLesson, choice: ServerLesson) -> None:
    """Proves: a forced choice that goes in words keeps the order that the same server has taught: an assistant's word between it
    and a result, no message of its own behind the user's. The next request, without the choice, has the same messages."""
    calls, results = HISTORY[1], Message("tool", RESULTS[:1])
    behind_results = (HISTORY[0], Message(calls.role, calls.parts[:1]), results)
    asked = Request(
        model="m", tools=TOOLS, messages=behind_results, lessons=(order, choice), tool_choice=NamedTool("read")
    )
    for messages in (behind_results, (*behind_results, Message("assistant", (Text("Done."),)), HISTORY[-1])):
        history = EncodedHistory()
        forced = sent("openai_chat", replace(asked, messages=messages), history=history)["messages"]
        said = [message["role"] for message in forced]
        refused = ("tool", "user") if order == "between" else ("user", "user")
        assert refused not in [*pairwise(said)] and "Call the tool `read` now." in forced[-1]["content"]
        free = replace(asked, messages=messages, tool_choice="auto")
        assert sent("openai_chat", free, history=history) == sent("openai_chat", free)
        assert sent("openai_chat", free)["messages"][:-1] == forced[: len(messages) - 1]


@pytest.mark.parametrize("row", ["vllm", "llamacpp", "lmstudio", "minimax", "mistral"])
def test_a_later_system_text_stays_in_its_place_as_the_users(row: str) -> None:
    """Proves: only the leading run is one system message; a later text keeps its place and says by a fixed label what it is."""
    messages = sent(row)["messages"]
    assert [message["role"] for message in messages].count("system") == 1
    later = next(message for message in messages if "changed the mode" in json.dumps(message))
    assert later == {"role": "user", "content": "[System message]\n\nThe user has changed the mode."}


def test_each_row_has_what_its_server_asks_for() -> None:
    """Proves: Mistral's assistant stands between result and user, DeepSeek and Moonshot get reasoning beside every call, xAI no
    null, and a choice of tools that a server refuses is said in words behind the messages."""
    between = roles(sent("mistral"))
    assert between == ["system", "user", "assistant", "tool", "tool", "assistant", "user", "user", "assistant", "user"]
    for row, stand_in in (("deepseek", ""), ("moonshot", " ")):
        assert sent(row)["messages"][2]["reasoning_content"] == stand_in
        assert sent(row)["messages"][-1] == {"role": "user", "content": "Call the tool `read` now."}
        assert "tool_choice" not in sent(row)
        unthinking = replace(ASKED, settings=Settings(reasoning_effort="none"))
        assert sent(row, unthinking)["tool_choice"] == {"type": "function", "function": {"name": "read"}}
    assert sent("xai")["messages"][2]["content"] == ""
    forbidden = replace(ASKED, tool_choice="none")
    assert sent("zai", forbidden)["messages"][-1]["content"] == "Answer in text now, without calling a tool."
    assert "tool_choice" not in sent("zai", forbidden) and sent("deepseek", forbidden)["tool_choice"] == "none"


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize(("row", "kept"), [("mistral", set[str]()), ("groq", {"name"}), ("vllm", {"name", "x"})])
def test_a_message_has_no_field_that_its_server_refuses(row: str, kept: set[str]) -> None:
    """Proves: a name and unknown fields on messages go up only where the row's server takes them, in every role, and to others as
    they came. Reports: nomtek/mistralai_client_dart#44, odysseus-dev/odysseus#200."""
    fields = Opaque("openai_chat", '{"message":{"name":"ann","x":1}}')
    text = Text("hi", opaque=fields)
    messages = (Message("user", (text,)), Message("assistant", (text,)), Message("user", (text,)))
    body = sent(row, Request(model="m", system=(text,), messages=messages))
    assert [message.keys() - {"role", "content"} for message in body["messages"]] == [kept] * 4


def test_models_that_want_turns_get_neighbours_as_one_message() -> None:
    """Proves: with Gemma 3 behind vLLM users and assistants alternate; results and calls are never joined."""
    said = (
        *[Message("user", (Text(word),)) for word in ("one", "two")],
        *[Message("assistant", (Text(word),)) for word in ("three", "four")],
        Message("system", (Text("five"),)),
        Message("user", (Text("six"),)),
    )
    body = sent("vllm", Request(model="google/gemma-3-27b-it", messages=said))
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("user", "one\n\ntwo"),
        ("assistant", "three\n\nfour"),
        ("user", "[System message]\n\nfive\n\nsix"),
    ]
    calling = sent("vllm", Request(model="google/gemma-3-27b-it", messages=HISTORY))
    assert roles(calling) == ["user", "assistant", "tool", "tool", "user", "user", "assistant", "user"]


@pytest.mark.promise("step:prefix-stable")
@each("row", [name for name, profile in KNOWN.items() if profile.family == "openai_chat"])
def test_the_same_history_gives_the_same_bytes_at_every_step(row: str) -> None:
    """Proves: encoded step by step and at once, with a leading system message among the messages and with neighbours."""
    for model in ("m", "gemma-3"):
        growing = EncodedHistory()
        messages = (Message("system", (Text("First."),)), *HISTORY, *HISTORY[1:], *HISTORY[-1:], *HISTORY)
        for end in range(1, len(messages) + 1):
            request = Request(model=model, messages=messages[:end], tools=TOOLS)
            assert sent(row, request, history=growing) == sent(row, request)


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic_messages"])
def test_a_tool_that_is_encoded_once_is_encoded_for_each_kind_of_endpoint(name: str) -> None:
    """Proves: tools whose bytes are kept from another endpoint still say what this one takes: `strict`, and free form or JSON."""
    tools = (*TOOLS, ToolSpec(name="patch", free_form=True))
    for strict, free_form in ((True, True), (False, True), (True, False), (False, False)) * 2:
        profile = replace(KNOWN[name], strict_tools=strict, free_form_tools=free_form)
        body = family(name).encode_request(replace(ASKED, tools=tools, tool_choice="auto"), profile).body.decode()
        assert ('"strict":true' in body, '"type":"custom"' in body) == (
            strict,
            free_form and name != "anthropic_messages",
        )
