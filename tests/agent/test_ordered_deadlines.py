"""Deadlines that belong together are one deadline with an order, however late a busy machine's event loop looks at them."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from tables import each
from thoroughness import examples
from turnwise import Agent, MaxWallTime, RetryPolicy, RunResult, StopReason, tool
from turnwise.lab import Lab
from turnwise.lab.script import Script, parse_script
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.running.children import IDLE_S, idle_s_of
from turnwise.testing import FakeClock
from turnwise.turn.config import Approval, Deadlines
from turnwise.vocab import Message, ToolResult, text_of
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

ATTENDED = Policy(attended=True)
DENIED = "Denied: `put` was not run, because nobody answered"
WRITES = parse_script(
    """
title = "writes once, then says what came of it"
[[steps]]
calls = [{ name = "put", arguments = { text = "x" } }]
[[steps]]
text = "It said: {result}"
""",
    name="writes",
)
both_orders = pytest.mark.parametrize("last_first", [False, True], ids=["in order", "last first"])


def hands_out(name: str) -> Script:
    return parse_script(
        """
title = "hands out one task, then says what came back"
[[steps]]
calls = [{ name = "task", arguments = { prompt = "do it" } }]
[[steps]]
text = "They said: {results}"
""",
        name=name,
    )


@tool(effect="write")
def put(text: str) -> str:
    """Write it."""
    return f"wrote {text}"


class Absent:
    """An approver that never answers; it knows how long it was given, and by whom."""

    def __init__(self) -> None:
        self.given_s: list[tuple[tuple[str, ...], float]] = []

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        self.given_s.append((asking.path, asking.deadline_s))
        await asyncio.Event().wait()
        return ()


def agent_of(lab: Lab, script: str, clock: FakeClock, /, **options: object) -> Agent:
    return flat_agent(  # pyright: ignore[reportArgumentType]
        f"openai_chat:{script}",
        base_url="http://127.0.0.1:9/v1",
        transport=lab.transport(),
        clock=clock,
        policy=ATTENDED,
        **options,  # pyright: ignore[reportArgumentType]
    )


def tree(clock: FakeClock, *deadlines: Deadlines, **options: object) -> Agent:
    """Agents, each below the one before, with these deadlines; the last one asks. `options` are the root's."""
    names = [f"hands-out-{number}" for number in range(len(deadlines) - 1)]
    lab = Lab([WRITES, *map(hands_out, names)])
    agent = agent_of(lab, "writes", clock, tools=[put], deadlines=deadlines[-1], **({} if names else options))
    for number in reversed(range(len(names))):
        own = options if number == 0 else {}
        agent = agent_of(lab, names[number], clock, agents={"sub": agent}, deadlines=deadlines[number], **own)
    return agent


async def ended(clock: FakeClock, agent: Agent, *leaps: float, last_first: bool = False) -> RunResult:
    """The run's result, while time leaps on; the last leap is repeated."""
    run = asyncio.create_task(agent.run("Go."))
    for seconds in (*leaps, *[leaps[-1]] * 200):
        if run.done():
            break
        await clock.leap(seconds, last_first=last_first)
    return await asyncio.wait_for(run, HANG_S)


def results_of(result: RunResult) -> list[str]:
    return [
        text_of(Message("user", part.content))
        for message in result.new_messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def assert_denied_and_answered(result: RunResult, *, levels: int) -> None:
    """The ask took its default, and every agent above it gave an answer of its own, if only the one that its time left."""
    assert DENIED in result.text and result.written_locally is False
    assert "was stopped" not in result.text and "time was up" not in result.text
    assert result.stop_reason in (StopReason.ANSWERED, StopReason.TIME_LIMIT)
    assert (result.text.count("They said: "), result.text.count("It said: ")) == (levels - 1, 1)


@both_orders
@pytest.mark.promise("wait:ask", "wait:child")
@each("leap_s", [299.0, 300.0, 301.5, 400.0])
async def test_an_ask_of_a_busy_child_is_denied_and_the_child_goes_on(leap_s: float, last_first: bool) -> None:
    """Proves: however late the loop is, the child is not taken for silent while its ask is at hand. A second of slack between
    two clocks had killed it (issue 12, line 11)."""
    clock = FakeClock()
    result = await ended(
        clock, tree(clock, Deadlines(), Deadlines(), approver=Absent()), leap_s, 5.0, last_first=last_first
    )
    assert_denied_and_answered(result, levels=2)
    assert result.complete and "did not finish" not in result.text


@both_orders
@pytest.mark.promise("wait:ask", "wait:child")
@each("leap_s", [7.0, 300.0, 350.0, 5_000.0])
@each("ask_s", [299.0, 300.0, 301.0, 9_000.0])
async def test_an_ask_ends_before_the_childs_time_does(ask_s: float, leap_s: float, last_first: bool) -> None:
    """Proves: where an ask's deadline and the child's fall together, or the ask's is later, the ask is decided first and the
    child ends with its answer."""
    clock, approver = FakeClock(), Absent()
    deadlines = Deadlines(child_s=300.0, ask_s=ask_s)
    result = await ended(clock, tree(clock, deadlines, deadlines, approver=approver), leap_s, last_first=last_first)
    assert_denied_and_answered(result, levels=2)
    ((path, given_s),) = approver.given_s
    assert path == ("sub",) and given_s < 300.0


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(
    ("root_s", "middle_s", "leaf_s"), [(20.0, 300.0, 300.0), (300.0, 20.0, 60.0), (90.0, 60.0, 20.0)]
)
async def test_the_smallest_ask_time_above_a_child_holds(root_s: float, middle_s: float, leaf_s: float) -> None:
    """Proves: a parent's `ask_s` caps its children's asks, and theirs; a child's own smaller one stands."""
    clock, approver = FakeClock(), Absent()
    levels = [Deadlines(ask_s=seconds) for seconds in (root_s, middle_s, leaf_s)]
    result = await ended(clock, tree(clock, *levels, approver=approver), 1.0)
    assert approver.given_s == [(("sub", "sub"), 20.0)]
    assert_denied_and_answered(result, levels=3)
    assert clock.monotonic() == pytest.approx(20.0, abs=2.0)  # pyright: ignore[reportUnknownMemberType]


@both_orders
@pytest.mark.promise("wait:ask", "end:budget")
@each("leap_s", [1.0, 59.0, 60.0, 90.0])
@each("levels", [1, 2, 3])
async def test_an_ask_leaves_time_for_every_answer_above_it(levels: int, leap_s: float, last_first: bool) -> None:
    """Proves: under a limit of time on the root, an ask anywhere in the tree ends so early that each turn above it can still
    answer, and in that order."""
    clock, approver = FakeClock(), Absent()
    agent = tree(clock, *[Deadlines()] * levels, approver=approver, limits=MaxWallTime(60.0))
    result = await ended(clock, agent, leap_s, last_first=last_first)
    assert_denied_and_answered(result, levels=levels)
    assert approver.given_s[0][1] < 60.0


@both_orders
@pytest.mark.promise("wait:child", "end:budget")
@pytest.mark.parametrize("leap_s", [1.0, 100.0, 130.0])
async def test_a_child_ends_before_its_parents_time_does(leap_s: float, last_first: bool) -> None:
    """Proves: a child at work is ended in time for its parent's own answer, which tells what the child had."""
    clock = FakeClock()

    @tool
    async def search(pattern: str) -> str:
        """Search."""
        await clock.sleep(70.0)
        return f"found {pattern}"

    lab = Lab([hands_out("hands-out")])
    child = agent_of(lab, "never-stops-at-all", clock, tools=[search], max_steps=200)
    root = agent_of(lab, "hands-out", clock, agents={"sub": child}, limits=MaxWallTime(100.0))
    result = await ended(clock, root, leap_s, last_first=last_first)
    assert "The sub-agent `sub` did not finish (stop reason: time_limit)" in results_of(result)[0]
    assert result.text.startswith("They said: ") and result.written_locally is False


@settings(max_examples=examples(40), deadline=None)
@given(
    child_s=st.floats(5, 2_000),
    ask_s=st.lists(st.floats(0.5, 2_000), min_size=2, max_size=3),
    leaps=st.lists(st.floats(20, 3_000), min_size=1, max_size=8),
    last_first=st.booleans(),
)
def test_no_machine_is_so_slow_that_a_child_dies_of_its_ask(
    child_s: float, ask_s: list[float], leaps: list[float], last_first: bool
) -> None:
    """Proves: whatever the deadlines are and however the loop is held up, an unanswered ask is denied and all agents answer."""

    async def run() -> RunResult:
        clock = FakeClock()
        deadlines = [Deadlines(child_s=child_s, ask_s=seconds) for seconds in ask_s]
        return await ended(clock, tree(clock, *deadlines, approver=Absent()), *leaps, last_first=last_first)

    result = asyncio.run(run())
    assert_denied_and_answered(result, levels=len(ask_s))


@pytest.mark.promise("wait:child")
async def test_a_child_that_runs_a_tool_is_not_silent() -> None:
    """Proves: a tool has its own deadline, which may be longer than a child may show nothing."""
    clock = FakeClock()

    @tool(timeout_s=700.0)
    async def search(pattern: str) -> str:
        """Search."""
        await clock.sleep(600.0)
        return f"found {pattern}"

    lab = Lab([parse_script('title = "t"\n[[steps]]\ncalls = [{ name = "search", arguments = { pattern = "a" } }]\n'
                            '[[steps]]\ntext = "It said: {result}"\n', name="searches"), hands_out("hands-out")])  # fmt: skip
    child = agent_of(lab, "searches", clock, tools=[search], deadlines=Deadlines(child_idle_s=60.0))
    root = agent_of(lab, "hands-out", clock, agents={"sub": child}, deadlines=Deadlines(child_s=2_000.0))
    result = await ended(clock, root, 10.0)
    assert result.text == "They said: It said: found a"


@pytest.mark.promise("wait:child", "wait:retry")
async def test_a_child_that_waits_before_a_retry_is_not_silent() -> None:
    """Proves: the wait that a provider asks for has its own bound, which may be longer than a child may show nothing."""
    clock = FakeClock()
    retry = RetryPolicy(base_s=400.0, cap_s=400.0, total_s=800.0)
    lab = Lab([hands_out("hands-out")])
    child = agent_of(lab, "fault-once-503", clock, retry=retry, deadlines=Deadlines(child_idle_s=60.0))
    result = await ended(clock, agent_of(lab, "hands-out", clock, agents={"sub": child}), 10.0)
    assert "did not finish" not in result.text and result.children[0].requests == 2
    assert clock.monotonic() > 190.0


@pytest.mark.promise("wait:child")
def test_a_child_may_be_silent_as_long_as_its_endpoint_may_take() -> None:
    """Proves: the usual time is never shorter than a request's own deadline, which ends a silent request first; what is set
    stands."""
    usual, slow = builtin_profiles()["openai"], builtin_profiles()["llamacpp"]
    assert idle_s_of(Deadlines(), profile=usual, stream=True) == IDLE_S
    assert idle_s_of(Deadlines(), profile=slow, stream=True) == 900.0
    assert idle_s_of(Deadlines(first_event_s=500.0), profile=usual, stream=True) == 500.0
    assert idle_s_of(Deadlines(idle_s=400.0), profile=usual, stream=True) == 400.0
    assert idle_s_of(Deadlines(), profile=usual, stream=False) == Deadlines().total_s
    assert idle_s_of(Deadlines(child_idle_s=60.0), profile=slow, stream=True) == 60.0


@both_orders
@pytest.mark.promise("wait:child", "wait:stream")
async def test_a_request_that_falls_silent_ends_before_its_child_does(last_first: bool) -> None:
    """Proves: in a late loop too the request's deadline counts first; a further attempt is a sign of life."""
    clock = FakeClock()
    lab = Lab([hands_out("hands-out")])
    child = agent_of(lab, "fault-silence", clock, retry=RetryPolicy(attempts=2, base_s=0.01), deadlines=Deadlines())
    root = agent_of(lab, "hands-out", clock, agents={"sub": child}, deadlines=Deadlines(child_s=5_000.0))
    result = await ended(clock, root, 310.0, last_first=last_first)
    assert "stop reason: provider_failed" in results_of(result)[0]
    assert result.children[0].requests == 2
