"""Where spans stand: each ends, and in the right parent, also in programs, behind a crash, and where the caller has spans."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.test_resumed_runs import Crash
from telemetry.otlp_receiver import Receiver, receiving
from telemetry.test_spans import agent_of, look
from turnwise import Journal, PermissionRule, Policy, RunContext, StopReason, Telemetry, tool
from turnwise.testing import FakeClock, ScriptedModel, call
from waits import HANG_S

RUN, CHAT, LOOK = "invoke_agent tester", "chat m", "execute_tool look"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


def tree_of(receiver: Receiver) -> dict[str, set[str]]:
    """The names of the spans, and of the parents that they have."""
    names = {one.id: one.name for one in receiver.spans} | {b"": ""}
    tree: dict[str, set[str]] = {}
    for one in receiver.spans:
        tree.setdefault(one.name, set()).add(names[one.parent])
    return tree


async def test_a_programs_calls_are_inside_of_it_and_what_follows_is_not(receiver: Receiver) -> None:
    """Issue 22, programs: also where the program fails behind its calls, and where a call comes behind it."""
    fails = 'look(place="a")\nraise ValueError("no")'
    programs = [call("script", program=fails), call("script", program='look(place="b")')]
    model = ScriptedModel([programs[0], programs[1], call("look", place="c"), "Done."])
    result = await agent_of(model, receiver, tools=[look], safety={"script": True}).run("Go.")
    assert result.complete
    assert tree_of(receiver) == {
        RUN: {""},
        CHAT: {RUN},
        "execute_tool script": {RUN},
        LOOK: {"execute_tool script", RUN},
    }
    assert [one.failed for one in receiver.named("execute_tool script")] == [True, False]
    scripts = {one.id for one in receiver.named("execute_tool script")}
    assert [one.parent in scripts for one in receiver.named(LOOK)] == [True, True, False]


async def test_a_run_that_goes_on_behind_a_crash_has_spans_of_its_own(receiver: Receiver, tmp_path: Path) -> None:
    """Issue 22, resumed: a whole tree, which says that another process began it; what that one did has no span here."""
    crash, clock = Crash(tmp_path), FakeClock()

    @tool(idempotent=True)
    async def dies(at: str) -> str:
        """Work."""
        if crash.left is None:
            crash.now()
        return at

    def agent(journal: Journal, *replies: Any) -> Any:
        return agent_of(ScriptedModel([*replies]), receiver, tools=[dies], clock=clock, journal=journal)

    with Journal(crash.path, clock=clock) as journal:
        await agent(journal, call("dies", at="x"), "Done.").run("Go.")
    before = len(receiver.spans)
    with crash.journal(clock) as left:
        result = await agent(left, "Done.").resume(left.sessions()[0].id)
    receiver.spans = receiver.spans[before:]
    assert result.complete and tree_of(receiver) == {RUN: {""}, CHAT: {RUN}, "execute_tool dies": {RUN}}
    assert receiver.one(RUN)["turnwise.run.resumed"] is True and not receiver.one("execute_tool dies").links


async def test_a_denied_call_and_one_that_fails_are_told_apart(receiver: Receiver) -> None:
    """Issue 22, denied: it never ran, so it has no span; one that raises has one with an error, and no word of what it raised."""

    @tool(effect="write")
    def never() -> str:
        """Never."""
        raise AssertionError

    @tool
    def raises() -> str:
        """Raise."""
        raise ValueError("the password is hunter2")

    rules = Policy(rules=(PermissionRule(verdict="deny", tool="never"),))
    model = ScriptedModel([[call("never"), call("raises")], "Done."])
    agent = agent_of(model, receiver, tools=[never, raises], policy=rules)
    await agent.run("Go.")
    run, failed = receiver.one(RUN), receiver.one("execute_tool")
    assert failed.name == "execute_tool raises" and failed.failed and failed["error.type"] == "tool_error"
    assert [one.name for one in run.span.events] == ["turnwise.call_not_run"]
    assert b"hunter2" not in b"".join(receiver.bodies)


async def test_whole_responses_have_the_same_spans_without_a_first_chunk(receiver: Receiver) -> None:
    """Issue 22, streaming off: nothing is said of a first chunk, in spans or in metrics."""
    model = ScriptedModel([[call("look", place="a"), call("look", place="b")], "Done."])
    await agent_of(model, receiver, tools=[look], asked={"stream": False}).run("Go.")
    receiver.flush()
    assert tree_of(receiver) == {RUN: {""}, CHAT: {RUN}, LOOK: {RUN}}
    chats = [one.attributes for one in receiver.named(CHAT)]
    assert [one["gen_ai.request.stream"] for one in chats] == [False, False]
    assert not [1 for one in chats if "gen_ai.response.time_to_first_chunk" in one]
    assert not [1 for name, _, _ in receiver.points if name.endswith("time_to_first_chunk")]


def test_a_run_without_a_loop_is_a_child_of_the_callers_span(receiver: Receiver) -> None:
    """Issue 22: `run_sync` runs in a loop of its own, in the same trace."""
    model = ScriptedModel([call("look", place="a"), "Done."])
    with receiver.tracers.get_tracer("test").start_as_current_span("mine"):
        agent_of(model, receiver, tools=[look]).run_sync("Go.")
    assert tree_of(receiver) == {"mine": {""}, RUN: {"mine"}, CHAT: {RUN}, LOOK: {RUN}}


async def test_runs_in_tasks_and_streams_that_are_left_keep_to_their_callers(receiver: Receiver) -> None:
    """Issue 22: two runs at once in spans of their own, and a stream whose reader goes away: no span in another's, none open."""
    tracer = receiver.tracers.get_tracer("test")

    async def run(name: str) -> None:
        with tracer.start_as_current_span(name):
            agent = agent_of(ScriptedModel([call("look", place="a"), "Done."]), receiver, tools=[look])
            await agent.run("Go.", observation={"telemetry": named(receiver, name)})

    await asyncio.wait_for(asyncio.gather(run("one"), run("two")), HANG_S)
    for name in ("one", "two"):
        (mine,) = [span for span in receiver.spans if span.name == name]
        inside = receiver.one(f"invoke_agent {name}")
        assert inside.parent == mine.id
        assert len([1 for span in receiver.spans if span.parent == inside.id]) == 3
    receiver.spans.clear()
    agent = agent_of(ScriptedModel([call("look", place="a"), "Done."]), receiver, tools=[look])
    with tracer.start_as_current_span("mine"):
        async with agent.stream("Go.") as stream:
            async for _ in stream:
                break
    assert tree_of(receiver) == {"mine": {""}, RUN: {"mine"}, CHAT: {RUN}}
    assert receiver.one(RUN)["error.type"] == "cancelled"


def named(receiver: Receiver, name: str) -> Telemetry:
    return Telemetry(agent_name=name, tracer_provider=receiver.tracers, meter_provider=receiver.meters)


async def test_an_agent_that_a_tool_runs_is_inside_of_its_call(receiver: Receiver) -> None:
    """A tool may run an agent by itself: that run is inside of the call and linked to the run above, its tools inside of it."""
    inner = agent_of(ScriptedModel([call("look", place="b"), "Found."]), receiver, tools=[look])

    @tool
    async def asks(_: RunContext[Any]) -> str:
        """Ask another agent."""
        return (await inner.run("Go.", observation={"telemetry": named(receiver, "inner")})).text

    model = ScriptedModel([[call("asks"), call("look", place="a")], "Done."])
    result = await agent_of(model, receiver, tools=[asks, look]).run("Go.")
    below, run = receiver.one("invoke_agent inner"), receiver.one(RUN)
    assert result.stop_reason is StopReason.ANSWERED
    assert below.parent == receiver.one("execute_tool asks").id and below.links == [("subagent_of", run.id)]
    assert {one.parent for one in receiver.named(LOOK)} == {run.id, below.id}
