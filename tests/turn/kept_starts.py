"""What a kept session begins with beside what the property tests draw: every field of a turn's configuration, programs, prices,
limits of cost, settings, and imported histories that a real session could have."""

from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st

from turn.drawn import OFFERS, SCHEMA, configs, limits, policies, starts
from turn.playing import SCRIPT
from turnwise.rules.limits import (
    AllOf,
    AnyOf,
    Limit,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
)
from turnwise.rules.pricing import OwnCost, PriceRow, TokenPrices
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import Deadlines, ScriptLimits, ToolOffer, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, NamedTool, Opaque, OutputSchema, Settings, Text, ToolCall, ToolResult, ToolSpec

MODELS = ("m", "m2", "m3", "m4")
WRITING = '{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"]}'
# Beside the tools of the property tests: those of other kinds, and others to write long texts with.
MORE_OFFERS = (
    ToolOffer(spec=ToolSpec(name="status", parameters=SCHEMA), effect="read", repeatable=True, idempotent=True),
    ToolOffer(spec=ToolSpec(name="look up", parameters=SCHEMA), effect="read"),
    ToolOffer(spec=ToolSpec(name="2nd-look", parameters=SCHEMA), effect="read"),
    ToolOffer(spec=ToolSpec(name="save", parameters=WRITING), effect="write", inspected=True),
    ToolOffer(spec=ToolSpec(name="note", parameters=WRITING), effect="write"),
    ToolOffer(
        spec=ToolSpec(name="delegate", parameters='{"type":"object"}', description="Ask another agent.", strict=True),
        child=True,
        child_usd={"reader": Decimal("0.01"), "writer": Decimal("0.2")},
    ),
)
WIDE_OFFERS = (*OFFERS, *MORE_OFFERS, SCRIPT)
ROWS = (
    PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(3), output=Decimal(15)),)),
    PriceRow(plan="request", source="test", request_usd=Decimal("0.01"), bills_refused=True),
    PriceRow(plan="step", source="test", step_usd=Decimal("0.02")),
    PriceRow(
        plan="tokens",
        source="test",
        tokens=(TokenPrices(input=Decimal(1), output=Decimal(2), cache_read=Decimal("0.1")),),
        own_cost=OwnCost(path=("cost",)),
    ),
)
money = st.sampled_from(["0.02", "0.05", "0.1", "0.5"]).map(lambda usd: MaxCost(Decimal(usd)))
wide_leaves: st.SearchStrategy[Limit] = st.one_of(
    st.builds(MaxRequests, st.integers(2, 12)),
    st.builds(MaxToolCalls, st.integers(1, 12)),
    st.builds(MaxSteps, st.integers(2, 8)),
    st.builds(MaxTokens, st.sampled_from([3_000, 9_000, 50_000]), st.sampled_from(["all", "input", "output"])),
    st.builds(MaxWallTime, st.sampled_from([30.0, 120.0, 600.0])),
    money,
    money,
)
wide_limits = st.one_of(
    st.none(),
    st.none(),
    limits,
    wide_leaves,
    st.tuples(wide_leaves, wide_leaves).map(lambda pair: pair[0] | pair[1]),
    st.tuples(wide_leaves, wide_leaves).map(lambda pair: pair[0] & pair[1]),
)
wide_settings = st.builds(
    Settings,
    max_output_tokens=st.sampled_from([None, None, 60, 300, 2_000]),
    temperature=st.sampled_from([None, 0.5]),
    stop=st.sampled_from([(), ("END",)]),
    reasoning_effort=st.sampled_from([None, None, "none", "low", "high"]),
    reasoning_tokens=st.sampled_from([None, None, 1_024, 3_000]),
)
wide_model_limits = st.sampled_from(
    [
        UNKNOWN_LIMITS,
        UNKNOWN_LIMITS,
        ModelLimits(context_window_tokens=200_000, max_output_tokens=8_000),
        ModelLimits(context_window_tokens=9_000, max_output_tokens=2_000),
        ModelLimits(context_window_tokens=4_000),
        ModelLimits(max_input_tokens=3_000, max_output_tokens=1_000, max_reasoning_tokens=3_000),
    ]
)
EXTRAS = ("", "", "", '{"web_search_options":{}}', '{"service_tier":"flex"}')


def counts_cost(limit: Limit | None) -> bool:
    if isinstance(limit, AnyOf | AllOf):
        return any(counts_cost(one) for one in limit.limits)
    return isinstance(limit, MaxCost)


@st.composite
def wide_configs(draw: Any) -> TurnConfig:
    base: TurnConfig = draw(configs)
    limit: Limit | None = draw(wide_limits)
    output: OutputSchema | None = draw(st.sampled_from([None, None, OutputSchema(schema=SCHEMA)]))
    rows = {model: draw(st.sampled_from(ROWS)) for model in MODELS}
    return msgspec.structs.replace(
        base,
        system=draw(st.sampled_from([(), (Text("Be kind."),), (Text("Be kind."), Text("Be brief."))])),
        tools=draw(st.sampled_from([WIDE_OFFERS, WIDE_OFFERS, OFFERS, ()])),
        tool_choice=draw(st.sampled_from(["auto", "auto", "auto", "required", NamedTool("read"), "none"])),
        cache=draw(st.sampled_from(["off", "auto", "1h"])),
        cache_key=draw(st.sampled_from(["", "k"])),
        marks_cache=base.family == "anthropic_messages" and draw(st.booleans()),
        output=output,
        checks_output=output is not None and draw(st.booleans()),
        settings=draw(wide_settings),
        extra=draw(st.sampled_from(EXTRAS)),
        max_steps=draw(st.sampled_from([1, 3, 6, 12, 20])),
        limits=limit,
        max_subagents=draw(st.sampled_from([None, None, 1, 4])),
        max_subagent_requests=draw(st.sampled_from([None, None, 3, 20])),
        prices=rows if counts_cost(limit) else {},
        allowed=("none", "read", "write", "execute"),
        allow_hint=draw(st.sampled_from(["add `{effect}`", "run with `{options}`[ or {options}] for {tool}"])),
        recover=draw(st.sampled_from(["continue", "continue", "split", "off"])),
        calls_in_text=draw(st.sampled_from(["auto", "on", "off"])),
        leaves_calls_in_text=draw(st.booleans()),
        model_limits=draw(wide_model_limits),
        room=draw(st.sampled_from(["compact", "compact", "budget", "off"])),
        retry=draw(st.sampled_from([base.retry, RetryPolicy(attempts=4, total_s=60.0)])),
        policy=None if base.policy is None else draw(policies),
        deadlines=draw(st.sampled_from([Deadlines(), Deadlines(tool_s=5.0, ask_s=20.0, child_s=60.0)])),
        script_limits=draw(st.sampled_from([ScriptLimits(), ScriptLimits(calls=5, wall_s=30.0, call_bytes=2_000)])),
        profile=base.family,
    )


def _sound_history(steps: int) -> tuple[Message, ...]:
    """Of a session elsewhere: questions, calls with results, answers; of `steps` steps the last is still open."""
    found: list[Message] = [Message("user", (Text("What is in it?"),))]
    for number in range(steps):
        call = ToolCall(id=f"old{number}", name="read", arguments=f'{{"a":{number}}}')
        said = Text(f"Reading part {number}. " + "It goes on and on. " * (40 * (number % 3)))
        found.append(Message("assistant", (said, call)))
        result = ToolResult(call_id=call.id, name="read", content=(Text("A line of it.\n" * (60 * (number % 4) + 1)),))
        found.append(Message("tool", (result,)))
        if number % 3 == 2:
            found.append(Message("assistant", (Text("So far so good."),)))
            found.append(Message("user", (Text("Go on."),)))
    return tuple(found)


OPAQUE = Opaque("anthropic_messages", '{"cache_control":{"type":"ephemeral"}}')
ASKS = (
    (Message("user", (Text("Look into it."),)),),
    (Message("user", (Text("Look into it.", opaque=OPAQUE),)),),
    (Message("user", (Text("Look into it, in all its parts. " * 60),)),),
)


@st.composite
def _wide_starts(draw: Any) -> TurnStarted:
    started: TurnStarted = draw(starts)
    is_sound = draw(st.integers(0, 4)) > 0
    return msgspec.structs.replace(
        started,
        config=draw(wide_configs()),
        input=draw(st.sampled_from(ASKS)) if is_sound else started.input,
        history=draw(st.sampled_from([(), (), _sound_history(2), _sound_history(9)])) if is_sound else started.history,
        keeps_waiting=draw(st.booleans()),
    )


wide_starts = _wide_starts()


def spoilt(started: TurnStarted) -> dict[str, TurnStarted]:
    """The same turn with a configuration that cannot work, in every way."""
    config = started.config
    unusable = OutputSchema(schema='{"type":"nonsense"}')
    changes: dict[str, dict[str, Any]] = {
        "no steps": {"max_steps": 0},
        "no attempts": {"retry": RetryPolicy(attempts=0)},
        "a limit of nothing": {"limits": MaxRequests(0)},
        "no price": {"limits": MaxCost(Decimal(1)), "prices": {}},
        "no such tool": {"tool_choice": NamedTool("no such tool")},
        "two tools of a name": {"tools": (MORE_OFFERS[0], MORE_OFFERS[0]), "tool_choice": "auto"},
        "no schema of a tool": {
            "tools": (ToolOffer(spec=ToolSpec(name="t", parameters=unusable.schema)),),
            "tool_choice": "auto",
        },
        "no schema of the output": {"output": unusable},
    }
    return {
        what: msgspec.structs.replace(started, config=msgspec.structs.replace(config, **change))
        for what, change in changes.items()
    }
