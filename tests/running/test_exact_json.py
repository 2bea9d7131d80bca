"""What a caller hands in goes out as it is, or is refused by name: JSON has no word for `nan` (issue 14, line 8)."""

import enum
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flat_agents import flat_agent
from turnwise import Agent, tool
from turnwise.agent.schemas import problems_of, read_output_type
from turnwise.agent.tools import read_tools
from turnwise.base.clock import SystemClock
from turnwise.base.exact_json import NotExact, exact_json
from turnwise.errors import BadTool, CallerError
from turnwise.lab import Lab
from turnwise.running.hooks import ChangeArguments, Hook, Hooks, Looks, Says
from turnwise.turn.config import Deadlines
from turnwise.turn.events import PlannedCall, RunHooks
from turnwise.vocab import ToolCall

ODD = (math.nan, math.inf, -math.inf)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def is_sound(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case list():
            return all(map(is_sound, value))
        case dict():
            return all(map(is_sound, value.values()))
        case _:
            return True


@given(value=plain)
def test_json_says_what_the_value_says_or_there_is_none(value: object) -> None:
    """Property: what is written reads back as the same value; what JSON has no word for is refused."""
    if is_sound(value):
        assert msgspec.json.decode(exact_json(value)) == value
    else:
        with pytest.raises(NotExact, match="JSON has no word"):
            exact_json(value)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_extra_that_json_cannot_carry_is_refused_with_its_place(odd: float) -> None:
    """It went out as `null` in silence, nested too; text and `None` go out as they are."""
    for extra, place in (
        ({"x": odd}, "x"),
        ({"a": 1, "b": {"c": [0.5, {"d": odd}]}}, "b.c[1].d"),
        ({"t": (odd,)}, "t[0]"),
    ):
        with pytest.raises(CallerError) as raised:
            flat_agent("openai_chat:m", base_url="http://lab.invalid", extra=extra)
        assert f"`{place}` is {odd}" in str(raised.value) and "`extra`" in str(raised.value)
    flat_agent("openai_chat:m", base_url="http://lab.invalid", extra={"x": None, "y": "nan"})
    with pytest.raises(CallerError, match="extra"):
        flat_agent("openai_chat:m", base_url="http://lab.invalid", extra={"x": "\ud800"})


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_schema_that_json_cannot_carry_is_refused_and_a_default_left_out(odd: float) -> None:
    """`{"enum": [1, nan]}` went out with `null`, which is another schema. The default of a Python function holds without it."""
    with pytest.raises(CallerError, match=r"properties\.a\.enum\[1\]"):
        read_output_type({"type": "object", "properties": {"a": {"enum": [1, odd]}}})

    class Kind(enum.Enum):
        ODD = odd
        EVEN = 2.0

    with pytest.raises(CallerError, match="JSON has no word"):
        read_output_type(Kind)
    with pytest.raises(BadTool, match="JSON has no word"):

        @tool(effect="read")
        def chooses(kind: Kind) -> str:
            """Choose."""
            return str(kind)

    @tool(effect="read")
    def scales(factor: float = odd, weights: list[float] = [1.0, odd]) -> str:  # noqa: B006
        """Scale."""
        return str(factor)

    schema = msgspec.json.decode(read_tools([scales])[0].offer.spec.parameters)
    assert [one.keys() for one in schema["properties"].values()] == [{"type"}, {"type", "items"}]


async def test_arguments_that_a_hook_changes_to_no_json_deny_the_call() -> None:
    """The tool would have got `null` for `nan`; a hook that fails denies."""

    def changes(looks: Looks) -> Says:
        return ChangeArguments({"x": [math.nan]})

    call = ToolCall(id="a", name="scale", arguments="{}")
    order = RunHooks(
        step=1,
        point="before_tool",
        deadlines=Deadlines(),
        calls=(PlannedCall(call=call, arguments="{}", timeout_s=1.0),),
    )
    hooks = Hooks([Hook(point="before_tool", function=changes, name="changes")], clock=SystemClock())
    (outcome,) = await hooks.run(order)
    assert outcome.arguments is None and "`x[0]` is nan" in str(outcome.denied)


def test_what_a_validator_says_keeps_its_characters() -> None:
    """Half of a character is written out, as in a tool's result: a `?` in its place would be another text."""
    assert problems_of(ValueError("no \ud800 here")) == ("no \\ud800 here",)


async def test_a_choice_that_forces_a_call_without_tools_is_refused_before_anything_is_sent() -> None:
    """`required` became `auto` in silence. With tools of the agent's or of the run, or a sub-agent, it goes out."""
    lab = Lab()

    @tool(effect="read")
    def read(path: str) -> str:
        """Read."""
        return path

    def agent_of(**more: Any) -> Agent:
        return flat_agent(
            "openai_chat:plain-answer",
            base_url="http://lab.invalid",
            transport=lab.transport(),
            **{"tool_choice": "required", **more},
        )

    for agent, options in (
        (agent_of(), {}),
        (agent_of(tool_choice="auto"), {"steps": {"tool_choice": "required"}}),
        (agent_of(tools=[read]), {"tools": []}),
    ):
        with pytest.raises(CallerError, match=r"tool_choice=.required."):
            await agent.run("Go.", **options)
    assert lab.count() == 0
    await agent_of().run("Go.", steps={"tool_choice": "auto"})
    await agent_of().run("Go.", tools=[read])
    await agent_of(agents={"one": agent_of(tool_choice="auto")}).run("Go.")
    sent = [one.request.tool_choice for one in lab.requests if one.request is not None]
    assert sent == ["auto", "required", "required"]
