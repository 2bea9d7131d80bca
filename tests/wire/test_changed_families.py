"""A session that goes on with another family's model, and older models: what their APIs would refuse is not asked for."""

import json
from typing import Any

import pytest

from tables import each
from turnwise.vocab import Message, Opaque, Part, Reasoning, Request, Settings, Text, ToolCall, ToolResult
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

CALL = ToolCall(id="a", name="t")
RESULT = Message("tool", (ToolResult(call_id="a", name="t", content=(Text("1"),)),))
SIGNED = Reasoning("hm", Opaque("anthropic_messages", '{"signature":"s"}'))
FOREIGN = Reasoning("hm", Opaque("openai_responses", '{"id":"rs"}'))
USER = Message("user", (Text("hi"),))


def anthropic(*messages: Message, model: str = "claude-sonnet-4-5", **settings: Any) -> dict[str, Any]:
    request = Request(model=model, messages=messages, settings=Settings(**settings))
    body = json.loads(family("anthropic_messages").encode_request(request, builtin_profiles()["anthropic"]).body)
    return {key: body[key] for key in ("thinking", "output_config") if key in body}


@each(
    ("model", "way"),
    [
        ("claude-3-haiku-20240307", "none"),
        ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "none"),
        ("claude-2.1", "none"),
        ("anthropic/claude-3.7-sonnet", "budget"),
        ("claude-sonnet-4-20250514", "budget"),
        ("claude-opus-4@20250514", "budget"),
        ("claude-sonnet-4", "budget"),
        ("claude-haiku-4-5", "budget"),
        ("claude-opus-4-5-20251101", "budget"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-sonnet-5", "adaptive"),
    ],
)
def test_effort_is_asked_for_as_the_model_knows_it(model: str, way: str) -> None:
    """AWS docs, "Adaptive thinking": Claude 4.6 and later; before them a budget, and none before Claude 3.7."""
    expected: dict[str, Any] = {
        "none": {},
        "budget": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        "adaptive": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
    }
    assert anthropic(USER, model=model, reasoning_effort="low") == expected[way]


@pytest.mark.parametrize(
    ("first", "thinks"), [((SIGNED, CALL), True), ((FOREIGN, CALL), False), ((CALL,), False), ((Text("a"),), True)]
)
def test_a_turn_that_began_without_thinking_goes_on_without(first: tuple[Part, ...], thinks: bool) -> None:
    """The API: "Expected `thinking` or `redacted_thinking`, but found `tool_use`"."""
    messages = [USER, Message("assistant", first), RESULT, Message("assistant", (Text("b"),))]
    assert ("thinking" in anthropic(*messages, reasoning_tokens=2000)) is thinks


@pytest.mark.parametrize(("first", "thinks"), [((SIGNED, CALL), True), ((CALL,), False)])
def test_a_word_behind_results_begins_no_turn(first: tuple[Part, ...], thinks: bool) -> None:
    """It goes in one message with them: "final assistant message must start with a thinking block"."""
    messages = [USER, Message("assistant", first), RESULT, USER]
    assert ("thinking" in anthropic(*messages, reasoning_tokens=2000)) is thinks


def test_calls_of_past_turns_do_not_keep_a_turn_from_thinking() -> None:
    past = (USER, Message("assistant", (CALL,)), RESULT, Message("assistant", (Text("1"),)))
    assert "thinking" in anthropic(*past, USER, reasoning_tokens=2000)


def signatures(model: str, *calls: ToolCall) -> list[str | None]:
    request = Request(model=model, messages=(USER, Message("assistant", (Text("a"), *calls)), RESULT))
    body = json.loads(family("gemini").encode_request(request, builtin_profiles()["gemini"]).body)
    parts = [part for content in body["contents"] for part in content["parts"] if "functionCall" in part]
    return [part.get("thoughtSignature") for part in parts]


def test_unsigned_calls_get_the_documented_stand_in_at_gemini_3() -> None:
    """The first call of a step stands for it; a signature that is there stays; older models need none."""
    own = ToolCall(id="b", name="t", opaque=Opaque("gemini", '{"thoughtSignature":"s"}'))
    other = ToolCall(id="b", name="t")
    assert signatures("gemini-3-pro-preview", CALL, other) == ["skip_thought_signature_validator", None]
    assert signatures("models/gemini-3.1-flash", own, CALL) == ["s", None]
    assert signatures("gemini-2.5-pro", CALL) == [None]


@pytest.mark.parametrize(
    "model", ["gemini-flash-latest", "gemini-pro-latest", "tunedModels/mine", "fast", "gemini-10-pro"]
)
def test_a_name_that_may_stand_for_a_newer_gemini_gets_the_stand_in(model: str) -> None:
    """Without it a model that checks signatures refuses the request."""
    assert signatures(model, CALL) == ["skip_thought_signature_validator"]


@pytest.mark.parametrize(
    "model",
    [
        "gemini-2.0-flash",
        "gemini-1.5-pro",
        "gemini-pro",
        "gemini-live-2.5-flash",
        "gemini-robotics-er-1.5",
        "gemma-3-27b-it",
    ],
)
def test_a_name_of_an_older_model_gets_none(model: str) -> None:
    """It asks for no signature, so its requests stay as they are."""
    assert signatures(model, CALL) == [None]


def test_bedrock_is_told_by_the_path_alone_to_stream() -> None:
    request = Request(model="anthropic.claude-opus-4-6-v1", messages=(USER,), stream=True)
    call = family("anthropic_messages").encode_request(request, builtin_profiles()["bedrock-anthropic"])
    assert "stream" not in json.loads(call.body) and call.path.endswith("/invoke-with-response-stream")
    assert family("anthropic_messages").decode_request(call.body, call.path).stream
