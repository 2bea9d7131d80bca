"""What a new model refuses is not sent to it: each generation and each setting is judged by the lab (promise heal:generation)."""

import json
from typing import Any

import pytest

from lab.judging import refusal_of
from tables import each
from turnwise.lab.strict import GENERATIONS, ModelRules
from turnwise.vocab import (
    Caching,
    Message,
    NamedTool,
    OutputSchema,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import HttpCall, family
from turnwise.wire.generations import generation_of
from turnwise.wire.profiles import builtin_profiles

USER = Message("user", (Text("Hi."),))
TOOL = ToolSpec(name="t")
SCHEMA = '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
CELLS: dict[str, dict[str, Any]] = {
    "temperature": {"settings": Settings(temperature=0.2, top_p=0.9)},
    "forced tool": {"tools": (TOOL,), "tool_choice": NamedTool("t")},
    "forced and thinking": {
        "tools": (TOOL,),
        "tool_choice": "required",
        "settings": Settings(reasoning_effort="high"),
    },
    "thinking off": {"settings": Settings(reasoning_effort="none", temperature=0.0)},
    "budget": {"settings": Settings(reasoning_tokens=5000)},
    "prefill": {"messages": (USER, Message("assistant", (Text("{"),)))},
    "effort max": {"settings": Settings(reasoning_effort="max")},
    "effort minimal": {"settings": Settings(reasoning_effort="minimal")},
    "format": {"output": OutputSchema(schema=SCHEMA), "tools": (TOOL,)},
}


def encoded(model: str, row: str, **asked: Any) -> HttpCall:
    profile = builtin_profiles()[row]
    request = Request(**{"model": model, "messages": (USER,), **asked})
    return family(profile.family).encode_request(request, profile)


def body_of(model: str, row: str = "anthropic", **asked: Any) -> dict[str, Any]:
    return json.loads(encoded(model, row, **asked).body)


@pytest.mark.promise("heal:generation")
@each("cell", CELLS)
@each("model", GENERATIONS)
def test_no_generation_refuses_what_is_sent(model: str, cell: str) -> None:
    """The lab's judges know these models by a table of their own."""
    for row in ("anthropic",) if model.startswith("claude-") else ("openai", "openai-chat"):
        profile = builtin_profiles()[row]
        body = body_of(model, row, **CELLS[cell])
        assert refusal_of(profile.family, body, ModelRules(generation=model, adaptive=True)) is None, row


@pytest.mark.promise("heal:generation")
@pytest.mark.parametrize(
    ("model", "off"),
    [
        ("claude-opus-4-7", ({"type": "disabled"}, None)),
        ("claude-opus-5", ({"type": "disabled"}, None)),
        ("claude-haiku-5-5", ({"type": "disabled"}, None)),
        ("claude-sonnet-5-5", ({"type": "between_tools"}, None)),
        ("anthropic/claude-opus-5.5", (None, {"effort": "low"})),
        ("us.anthropic.claude-fable-5-v1:0", (None, {"effort": "low"})),
    ],
)
def test_thinking_is_off_as_far_as_the_model_lets_it(model: str, off: tuple[Any, Any]) -> None:
    """`between_tools` at Sonnet 5.5 alone; where thinking cannot be turned off, the effort is low."""
    body = body_of(model, settings=Settings(reasoning_effort="none"))
    assert (body.get("thinking"), body.get("output_config")) == off


@pytest.mark.promise("heal:generation")
def test_what_is_asked_in_words_is_told_and_is_no_part_of_the_kept_prompt() -> None:
    """A forced call becomes a sentence behind the last message; what went up otherwise is told by our word for it. A budget
    becomes the effort that stands for it, and the schema goes in the family's own field."""
    results = (
        USER,
        Message("assistant", (ToolCall(id="a", name="t"),)),
        Message("tool", (ToolResult(call_id="a", name="t", content=(Text("1"),)),)),
    )
    asked = {"tools": (TOOL,), "tool_choice": NamedTool("t"), "cache": Caching()}
    call = encoded("claude-opus-5-5", "bedrock-anthropic", messages=results, **asked)
    body = json.loads(call.body)
    assert "tool_choice" not in body
    assert [block["type"] for block in body["messages"][-1]["content"]] == ["tool_result", "text"]
    assert body["messages"][-1]["content"][1] == {"type": "text", "text": "Call the tool `t` now."}
    assert ["cache_control" in block for block in body["messages"][-1]["content"]] == [True, False]
    call = encoded("claude-sonnet-5", "anthropic", settings=Settings(reasoning_tokens=5000, top_p=0.5))
    assert [one.setting for one in call.adapted] == ["reasoning", "top_p"]
    assert json.loads(call.body)["output_config"] == {"effort": "medium"}
    both = body_of("claude-opus-5-5", **CELLS["format"])
    assert both["output_config"]["format"]["type"] == "json_schema" and "tool_choice" not in both


@pytest.mark.promise("heal:generation")
@each("cell", CELLS)
@each(
    ("model", "row"),
    [
        ("claude-opus-5-6", "anthropic"),
        ("claude-opus-6", "anthropic"),
        ("claude-opus-4-6", "anthropic"),
        ("gpt-6.3-sol", "openai"),
        ("gpt-5.5", "openai-chat"),
        ("a-model", "openai-chat"),
    ],
)
def test_a_model_that_is_not_in_the_table_loses_nothing(model: str, row: str, cell: str) -> None:
    """The bytes of an older or unknown model are those of any name of its length that no row could know."""
    assert generation_of(model, "claude") is None and generation_of(model, "gpt") is None
    call, other = encoded(model, row, **CELLS[cell]), encoded(model.replace("-", "_"), row, **CELLS[cell])
    assert call.adapted == other.adapted == ()
    assert call.body.replace(model.encode(), b"") == other.body.replace(model.replace("-", "_").encode(), b"")
