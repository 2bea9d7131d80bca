"""The lab refuses a tool choice that no response could obey, in every family and in the family's own shape."""

from typing import Any

import pytest

from lab.asking import ask, body_of, path_of

Choice = Any
NO_TOOL = object()  # in the place of tools: none is on offer

CHAT_TOOLS = [
    {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}},
    {"type": "custom", "custom": {"name": "patch"}},
]
RESPONSES_TOOLS = [
    {"type": "function", "name": "read", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
    {"type": "web_search"},
]
CLAUDE_TOOLS = [{"name": "read", "input_schema": {"type": "object"}}]
GEMINI_TOOLS = [{"functionDeclarations": [{"name": "read"}]}]
TOOLS = {
    "openai_chat": CHAT_TOOLS,
    "openai_responses": RESPONSES_TOOLS,
    "anthropic_messages": CLAUDE_TOOLS,
    "gemini": GEMINI_TOOLS,
}


def function(name: str, *, kind: str = "function") -> dict[str, Any]:
    return {"type": kind, kind: {"name": name}}


def chat_allowed(*tools: Any, mode: Any = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


def allowed(*tools: Any, mode: Any = "auto") -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": list(tools)}


def calling(**config: Any) -> dict[str, Any]:
    return {"functionCallingConfig": config}


POSSIBLE: dict[str, list[Choice]] = {
    "openai_chat": [
        "none",
        "auto",
        "required",
        function("read"),
        function("patch", kind="custom"),
        chat_allowed(function("read"), function("patch", kind="custom")),
    ],
    "openai_responses": [
        "none",
        "auto",
        "required",
        {"type": "function", "name": "read"},
        {"type": "custom", "name": "patch"},
        {"type": "web_search"},
        allowed({"type": "function", "name": "read"}, {"type": "web_search"}, mode="required"),
    ],
    "anthropic_messages": [
        {"type": "none"},
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "any"},
        {"type": "tool", "name": "read", "disable_parallel_tool_use": True},
    ],
    "gemini": [
        calling(mode="NONE"),
        calling(mode="AUTO"),
        calling(mode="ANY", allowedFunctionNames=["read"]),
        {"function_calling_config": {"mode": "any", "allowed_function_names": ["read"]}},
    ],
}
IMPOSSIBLE: dict[str, list[Choice]] = {
    "openai_chat": [
        "never",
        5,
        True,
        ["auto"],
        {},
        {"name": "read"},
        {"type": "none"},
        {"type": "auto"},
        {"type": "any"},
        {"type": "required"},
        {"type": "tool", "name": "read"},
        {"type": "web_search"},
        {"type": "function"},
        {"type": "function", "name": "read"},
        {"type": "function", "function": "read"},
        function("write"),
        function(""),
        function("patch"),
        function("read", kind="custom"),
        chat_allowed(),
        chat_allowed(function("write")),
        chat_allowed(function("read"), mode="none"),
        allowed(function("read")),
    ],
    "openai_responses": [
        "never",
        "any",
        5,
        True,
        ["auto"],
        {},
        {"name": "read"},
        {"type": "none"},
        {"type": "tool", "name": "read"},
        {"type": "file_search"},
        {"type": "function"},
        function("read"),
        {"type": "function", "name": "write"},
        {"type": "function", "name": "patch"},
        {"type": "custom", "name": "read"},
        allowed(),
        allowed({"type": "function", "name": "write"}),
        allowed({"type": "function", "name": "read"}, mode="none"),
        chat_allowed({"type": "function", "name": "read"}),
    ],
    "anthropic_messages": [
        "auto",
        5,
        ["auto"],
        {},
        {"name": "read"},
        {"type": "required"},
        {"type": "function", "name": "read"},
        {"type": "tool"},
        {"type": "tool", "name": "write"},
        {"type": "auto", "name": "read"},
        {"type": "none", "disable_parallel_tool_use": True},
    ],
    "gemini": [
        "ANY",
        [],
        calling(mode="REQUIRED"),
        calling(mode=5),
        {"functionCallingConfig": "ANY"},
        calling(mode="ANY", allowedFunctionNames=["write"]),
        calling(mode="ANY", allowedFunctionNames="write"),
        calling(mode="ANY", allowedFunctionNames=[5]),
        calling(mode="AUTO", allowedFunctionNames=["read"]),
    ],
}
WITHOUT_TOOLS: dict[str, list[Choice]] = {
    "openai_chat": ["none", "auto", "required", function("read"), chat_allowed(function("read")), {"type": "any"}],
    "openai_responses": ["required", {"type": "function", "name": "read"}, {"type": "web_search"}],
    "anthropic_messages": [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "read"}],
    "gemini": [calling(mode="ANY"), calling(mode="ANY", allowedFunctionNames=["read"])],
}


def status(family: str, *, choice: Choice, tools: Any) -> int:
    body = body_of(family, model="plain-answer", stream=False)
    body.pop("tools", None)
    if tools is not NO_TOOL:
        body["tools"] = tools
    body["toolConfig" if family == "gemini" else "tool_choice"] = choice
    outgoing, _ = ask(path_of(family, model="plain-answer", stream=False), body)
    return outgoing.status


@pytest.mark.parametrize(("family", "choice"), [(family, one) for family, all in POSSIBLE.items() for one in all])
def test_a_choice_that_can_be_obeyed_is_taken(family: str, choice: Choice) -> None:
    """Proves: every shape of a choice that the family's SDK can spell, for a tool that is on offer."""
    assert status(family, choice=choice, tools=TOOLS[family]) == 200


@pytest.mark.parametrize(("family", "choice"), [(family, one) for family, all in IMPOSSIBLE.items() for one in all])
def test_a_choice_that_no_response_could_obey_is_refused(family: str, choice: Choice) -> None:
    """Proves: another family's shape, a tool that is not on offer, a tool of another type, no object at all. Chat Completions
    took whatever it did not know: a client that spelled its choice as Anthropic does never heard of it."""
    assert status(family, choice=choice, tools=TOOLS[family]) == 400


@pytest.mark.parametrize(("family", "choice"), [(family, one) for family, all in WITHOUT_TOOLS.items() for one in all])
def test_a_choice_among_no_tools_is_refused(family: str, choice: Choice) -> None:
    """Proves: where nothing is on offer, nothing can be chosen; Chat Completions refuses the bare words too."""
    assert status(family, choice=choice, tools=NO_TOOL) == 400
