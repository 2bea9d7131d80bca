"""The lab refuses what a new model refuses, in its words."""

from typing import Any, get_args

import pytest

from lab.judging import refusal_of
from tables import each
from turnwise.lab.script import GenerationName
from turnwise.lab.strict import GENERATIONS, ModelRules

TOOL = {"name": "t", "input_schema": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "Hi."}
OFF, ALWAYS_ON = {"thinking": {"type": "disabled"}}, ("claude-opus-5-5", "claude-fable-5", "claude-fable-5-1")
MAX: dict[str, Any] = {"output_config": {"effort": "max"}}
FORCED = {"tools": [TOOL], "tool_choice": {"type": "any"}}
PREFILL = {"messages": [USER, {"role": "assistant", "content": "{"}]}
COMPUTER = {"tools": [{"type": "computer_20251124", "name": "computer"}]}
CLAUDE = [name for name in GENERATIONS if name.startswith("claude-")]
NO_FORCE = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-fable-5-2")


def asked(model: str, **fields: Any) -> str:
    """What the judge says of a body; empty where it takes it."""
    family = "anthropic_messages" if model.startswith("claude-") else "openai_responses"
    body: dict[str, Any] = {"model": model, "max_tokens": 4096, "messages": [USER]}
    if family == "openai_responses":
        body = {"model": model, "input": "Hi."}
    found = refusal_of(family, {**body, **fields}, ModelRules(generation=model))
    return found[0] if found else ""


@pytest.mark.promise("heal:generation")
@each("model", CLAUDE)
def test_each_claude_model_refuses_what_it_refuses(model: str) -> None:
    """The pages that the judge names; a plain request, and one with effort `max`, are taken by all."""
    assert not asked(model) and not asked(model, **MAX) and not asked(model, temperature=1)
    assert asked(model, thinking={"type": "enabled", "budget_tokens": 1024}).startswith(
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"'
    )
    for field in ("temperature", "top_p", "top_k"):
        assert asked(model, **{field: 0.5}) == f"`{field}` is deprecated for this model."
    assert "does not support assistant message prefill" in asked(model, **PREFILL)
    takes_off = model not in (*ALWAYS_ON, "claude-fable-5-2", "claude-sonnet-5-5")
    assert bool(asked(model, **OFF)) is not takes_off
    assert bool(asked(model, **OFF, **MAX)) is (not takes_off or model == "claude-opus-5")
    assert ("between_tools" in asked(model, **OFF)) is (model == "claude-sonnet-5-5")
    assert bool(asked(model, **FORCED)) is (model in NO_FORCE)
    assert bool(asked(model, **COMPUTER)) is (model in NO_FORCE and model != "claude-fable-5-1")


def test_sonnet_5_5_thinks_between_tools_up_to_high() -> None:
    between = {"thinking": {"type": "between_tools"}}
    refused = [
        effort
        for effort in ("low", "medium", "high", "xhigh", "max")
        if asked("claude-sonnet-5-5", **between, output_config={"effort": effort})
    ]
    assert refused == ["xhigh", "max"]
    assert asked("claude-opus-5-5", **between)


@pytest.mark.parametrize("model", [name for name in GENERATIONS if name.startswith("gpt-")])
def test_each_gpt_model_refuses_what_it_refuses(model: str) -> None:
    """Sampling only beside effort `none`, which Astra and Sol do not have; `minimal` is gone, `max` is there."""
    takes_none = model in ("gpt-5.6", "gpt-6-luna")
    assert not asked(model) and not asked(model, reasoning={"effort": "max"}) and not asked(model, temperature=1)
    assert "Supported values are" in asked(model, reasoning={"effort": "minimal"})
    assert bool(asked(model, reasoning={"effort": "none"}, temperature=0)) is not takes_none
    assert "'temperature' is not supported" in asked(model, temperature=0)
    assert "'top_p' is not supported" in asked(model, top_p=0.5, reasoning={"effort": "low"})
    chat = {"model": model, "messages": [USER], "reasoning_effort": "max"}
    assert bool(refusal_of("openai_chat", chat, ModelRules(generation=model))) is not takes_none


def test_a_script_can_name_each_generation() -> None:
    assert set(get_args(GenerationName)) == {"", *GENERATIONS}
