"""An old client lives on with a new model behind the gateway, and is told what went up otherwise (promise heal:generation)."""

import json
from typing import Any

import pytest

from gateway.calling import Answered, answered, call_of, upstream_at
from relay.asking_relay import FAMILIES, TOOLS
from tables import each
from turnwise.gateway.config import GatewayRoute
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.lab.strict import GENERATIONS
from turnwise.wire.profiles import FamilyName

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}


def config(**fields: Any) -> dict[str, Any]:
    return {"generationConfig": fields}


CELLS: dict[FamilyName, dict[str, dict[str, Any]]] = {
    "openai_chat": {
        "temperature": {"temperature": 0.2, "top_p": 0.9},
        "forced": {"tools": TOOLS["openai_chat"], "tool_choice": "required"},
        "off": {"reasoning_effort": "none"},
        "prefill": {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}]},
        "max": {"reasoning_effort": "max"},
        "format": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    },
    "openai_responses": {
        "temperature": {"temperature": 0.2, "top_p": 0.9},
        "forced": {"tools": TOOLS["openai_responses"], "tool_choice": {"type": "function", "name": "f"}},
        "off": {"reasoning": {"effort": "none"}},
        "prefill": {"input": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}]},
        "max": {"reasoning": {"effort": "max"}},
        "format": {"text": {"format": FORMAT}},
    },
    "anthropic_messages": {
        "temperature": {"temperature": 0.2, "top_p": 0.9, "top_k": 5},
        "forced": {"tools": TOOLS["anthropic_messages"], "tool_choice": {"type": "tool", "name": "f"}},
        "off": {"thinking": {"type": "disabled"}, "output_config": {"effort": "xhigh"}},
        "budget": {"thinking": {"type": "enabled", "budget_tokens": 2000, "display": "summarized"}},
        "prefill": {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}]},
        "max": {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
        "format": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    },
    "gemini": {
        "temperature": config(temperature=0.2, topP=0.9),
        "forced": {"tools": TOOLS["gemini"], "toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
        "off": config(thinkingConfig={"thinkingBudget": 0}),
        "prefill": {
            "contents": [
                {"role": "user", "parts": [{"text": "hi"}]},
                {"role": "model", "parts": [{"text": "{"}]},
            ]
        },
        "max": config(thinkingConfig={"thinkingLevel": "HIGH"}),
        "format": config(responseMimeType="application/json", responseJsonSchema=SCHEMA),
    },
}
WITHOUT_FORCE = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-fable-5-2")


def asked(client: FamilyName, model: str, *, upstream: FamilyName, stream: bool = False, **more: Any) -> Answered:
    step = ScriptedStep(text="Fine.")
    script = Script(name=model, title="new", steps=(step,), generation=model)  # type: ignore[arg-type]
    call = call_of(client, model, stream=stream, **more)
    return answered(call, GatewayRoute(upstream=upstream_at(upstream), retry=0), scripts=[script])


@pytest.mark.promise("heal:generation")
@each("client", FAMILIES)
@each("model", GENERATIONS, meeting="each")
def test_no_generation_refuses_what_an_old_client_asks(model: str, client: FamilyName) -> None:
    """Every cell is answered with one request; what a Claude model refuses is named in the header."""
    upstreams: tuple[FamilyName, ...] = ("anthropic_messages",)
    if model.startswith("gpt-"):
        upstreams = ("openai_responses", "openai_chat")
    for upstream in upstreams:
        for name, fields in CELLS[client].items():
            found = asked(client, model, upstream=upstream, **fields)
            statuses = [one.status for one in found.requests]
            assert (found.outlet.status, statuses) == (200, [200]), (upstream, name, found.body)
            told = found.outlet.headers.get("turnwise-not-carried", "")
            if name == "temperature":
                assert "emperature" in told and "top" in told, (upstream, told)
            if name == "forced":
                assert bool(told) is (model in WITHOUT_FORCE), (upstream, told)
                assert ("forced_call_missing" in found.outlet.headers.get("turnwise-repairs", "")) is bool(told)
            if name in ("format", "max") and upstream != "openai_chat":
                assert not told, (upstream, name, told)


@pytest.mark.promise("heal:generation")
def test_a_client_of_the_same_family_keeps_every_other_byte() -> None:
    """What the model takes goes up as the client wrote it, the rest in the model's own words: a budget as the effort that it
    stands for beside its `display`, thinking off as far as it goes, a call asked for in a sentence behind the last message."""
    cells = CELLS["anthropic_messages"]
    found = asked("anthropic_messages", "claude-sonnet-5-5", upstream="anthropic_messages", **cells["budget"])
    body = json.loads(found.requests[0].body)
    assert body["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert body["output_config"] == {"effort": "low"}
    assert found.outlet.headers["turnwise-not-carried"] == "thinking"
    found = asked("anthropic_messages", "claude-sonnet-5-5", upstream="anthropic_messages", **cells["off"])
    body = json.loads(found.requests[0].body)
    assert (body["thinking"], body["output_config"]) == ({"type": "between_tools"}, {"effort": "high"})
    found = asked("anthropic_messages", "claude-opus-5-5", upstream="anthropic_messages", **cells["off"])
    body = json.loads(found.requests[0].body)
    assert "thinking" not in body and body["output_config"] == {"effort": "low"}
    found = asked("anthropic_messages", "claude-opus-5-5", upstream="anthropic_messages", **cells["forced"])
    body = json.loads(found.requests[0].body)
    assert body["tool_choice"] == {"type": "auto"}
    assert body["messages"][1:] == [{"role": "user", "content": [{"type": "text", "text": "Call the tool `f` now."}]}]
    whole = {"metadata": {"user_id": "x"}, "temperature": 1.0, "thinking": {"type": "adaptive"}}
    found = asked("anthropic_messages", "claude-opus-5-5", upstream="anthropic_messages", **whole)
    call = call_of("anthropic_messages", "claude-opus-5-5", stream=False, **whole)
    assert found.requests[0].body == call.body and "turnwise-not-carried" not in found.outlet.headers


@pytest.mark.promise("heal:generation")
@pytest.mark.parametrize("client", FAMILIES)
def test_a_call_that_was_asked_for_in_words_and_made_is_no_news(client: FamilyName) -> None:
    """In a stream, too, the header says beforehand that the choice went up otherwise."""
    step = ScriptedStep(calls=(ScriptedCall(name="f", arguments={}),))
    script = Script(name="claude-opus-5-5", title="new", steps=(step,), generation="claude-opus-5-5")
    call = call_of(client, "claude-opus-5-5", stream=True, **CELLS[client]["forced"])
    route = GatewayRoute(upstream=upstream_at("anthropic_messages"), retry=0)
    found = answered(call, route, scripts=[script])
    assert found.outlet.headers["turnwise-not-carried"].startswith("tool")
    assert b"forced_call_missing" not in found.body and [one.status for one in found.requests] == [200]
