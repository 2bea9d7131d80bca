"""A tool that asks a person while it runs, and one that tells how it gets on."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import (
    Agent,
    Approval,
    AskClosed,
    Asking,
    AskOpened,
    CallerError,
    ChildSeen,
    Journal,
    MaxWallTime,
    Policy,
    RunContext,
    ToolProgress,
    tool,
)
from turnwise.running.watcher_events import WatcherEvent
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.turn.config import Deadlines
from waits import HANG_S

ATTENDED = Policy(attended=True)


@tool(timeout_s=10)
async def paint(context: RunContext) -> str:
    """Paint the fence."""
    answer = await context.ask("Which colour?", options=["red", "blue"], why="there are two pots")
    return f"{answer.verdict} {answer.by} {answer.text}"


@tool(timeout_s=10)
def paint_in_thread(context: RunContext) -> str:
    """Paint the fence."""
    answer = context.ask_sync("Which colour?")
    return f"{answer.verdict} {answer.by} {answer.text}"


def agent_of(model: ScriptedModel, **options: Any) -> Agent:
    return flat_agent("openai_chat:scripted", base_url=model.endpoint.base_url, transport=model, **options)


def said_in(result: Any) -> str:
    return str(result.new_messages)


async def blue(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="allow", text="blue") for ask in asking.asks]


@pytest.mark.parametrize("made", [paint, paint_in_thread], ids=["async", "thread"])
@pytest.mark.parametrize("policy", [None, ATTENDED], ids=["no policy", "attended"])
def test_a_tool_has_the_answer_of_a_person(made: Any, policy: Policy | None) -> None:
    """From the event loop and from a thread; a tool with a context may ask, so its approver needs no policy."""
    model = ScriptedModel([call(made.tool.name), "Painted."])
    result = agent_of(model, tools=[made], approver=blue, policy=policy).run_sync("Paint.")
    assert "allow person blue" in said_in(result)


def test_an_approver_is_given_the_question_as_a_tools() -> None:
    """With its options, the reason, the call and the deadline; watchers see it open and close."""
    asked: list[Asking] = []
    seen: list[WatcherEvent] = []

    async def approve(asking: Asking) -> Sequence[Approval]:
        asked.append(asking)
        return await blue(asking)

    model = ScriptedModel([call("paint"), "Painted."])
    agent = agent_of(model, tools=[paint], approver=approve, deadlines=Deadlines(ask_s=30))
    agent.run_sync("Paint.", watch=seen.append)
    ((ask,), deadline_s) = asked[0].asks, asked[0].deadline_s
    assert (ask.kind, ask.by, ask.subject, ask.options) == ("question", "tool", "Which colour?", ("red", "blue"))
    assert (ask.why, ask.call.name, deadline_s, asked[0].path) == ("there are two pots", "paint", 30.0, ())
    opened, closed = [one for one in seen if isinstance(one, AskOpened | AskClosed)]
    assert opened == AskOpened(ask.call, "Which colour?", ("red", "blue"), 30.0)
    assert closed == AskClosed(ask.call, Approval(call_id=ask.call.id, verdict="allow", text="blue"))


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (None, "deny default"),
        (Policy(), "deny default"),
        (Policy(unattended="allow"), "allow default"),
    ],
)
def test_nobody_there_is_the_policys_default(policy: Policy | None, said: str) -> None:
    """At once, and without an approver."""
    model = ScriptedModel([call("paint"), "Painted."])
    assert said in said_in(agent_of(model, tools=[paint], policy=policy).run_sync("Paint."))


class Waiting:
    """An approver that answers when the test says so."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        self.asked.set()
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return await blue(asking)


async def test_an_ask_stops_the_tools_own_clock() -> None:
    """A tool of 10 s waits 100 s for an answer, and then has what was left of its 10 s."""
    clock, person, painting = FakeClock(), Waiting(), asyncio.Event()

    @tool(timeout_s=10)
    async def slowly(context: RunContext) -> str:
        """Paint."""
        await clock.sleep(6)
        await context.ask("Which colour?")
        painting.set()
        await clock.sleep(6)
        return "painted"

    model = ScriptedModel([call("slowly"), "Done."])
    run = asyncio.create_task(agent_of(model, tools=[slowly], approver=person, clock=clock).run("Paint."))
    await clock.advance(6)
    await person.asked.wait()
    await clock.advance(100)
    person.answers.set()
    await painting.wait()
    await clock.advance(3.9)
    assert not run.done()
    await clock.advance(0.2)
    assert "timed out after 10 s" in said_in(await run)


async def test_an_ask_that_nobody_answers_is_denied_in_time() -> None:
    """After `Deadlines.ask_s`; the tool goes on."""
    clock, person = FakeClock(), Waiting()
    model = ScriptedModel([call("paint"), "Done."])
    agent = agent_of(model, tools=[paint], approver=person, clock=clock, deadlines=Deadlines(ask_s=30))
    run = asyncio.create_task(agent.run("Paint."))
    await person.asked.wait()
    await clock.advance(30)
    assert "deny default" in said_in(await run)
    assert person.was_cancelled


async def test_the_turns_time_goes_on_while_a_tool_asks() -> None:
    """`MaxWallTime` ends the call that waits, and the model answers with what is left."""
    clock, person = FakeClock(), Waiting()
    model = ScriptedModel([call("paint"), "No time."])
    agent = agent_of(model, tools=[paint], approver=person, clock=clock, limits=MaxWallTime(100))
    run = asyncio.create_task(agent.run("Paint."))
    await person.asked.wait()
    await clock.advance(100)
    result = await run
    assert person.was_cancelled and not result.complete


@pytest.mark.parametrize("made", [paint, paint_in_thread], ids=["async", "thread"])
async def test_an_interrupt_ends_an_ask_at_once(made: Any) -> None:
    """The approver is cancelled, the watchers see the end, and no thread stays behind."""
    seen: list[WatcherEvent] = []
    person = Waiting()
    agent = agent_of(ScriptedModel([call(made.tool.name)]), tools=[made], approver=person)
    run = agent.start("Paint.", watch=seen.append)
    await person.asked.wait()
    run.interrupt()
    result = await run
    assert (result.stop_reason, person.was_cancelled) == ("cancelled", True)
    for thread in threading.enumerate():
        if thread.name == "turnwise-tool":
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


async def test_an_ask_stands_in_no_journal() -> None:
    """A crash takes it along, and its call is one of unknown outcome: nothing of it may look answered."""
    model = ScriptedModel([call("paint"), "Painted."])
    with Journal(None, clock=FakeClock()) as journal:
        agent = agent_of(model, tools=[paint], approver=blue, journal=journal)
        result = await agent.run("Paint.")
        (turn,) = journal.find_session(result.session).turns
        kinds = [type(entry.record).__name__ for entry in journal.entries(turn.id)]
    assert "ToolsStarted" in kinds and not {"Asked", "AskAnswered"} & set(kinds)


async def test_what_a_sub_agents_tool_asks_is_asked_at_the_root() -> None:
    """With the path that leads to it."""
    asked: list[Asking] = []
    seen: list[WatcherEvent] = []

    async def approve(asking: Asking) -> Sequence[Approval]:
        asked.append(asking)
        return await blue(asking)

    model = ScriptedModel([call("task", prompt="Paint."), call("paint"), "Blue.", "Painted."])
    helper = agent_of(model, tools=[paint], policy=ATTENDED, description="paints")
    agent = agent_of(model, agents={"helper": helper}, approver=approve, policy=ATTENDED)
    await agent.run("Paint.", watch=seen.append)
    assert [one.path for one in asked] == [("helper",)]
    assert any(isinstance(one, ChildSeen) and isinstance(one.seen, AskOpened) for one in seen)


def test_only_a_tool_at_work_can_ask(caplog: pytest.LogCaptureFixture) -> None:
    """Not a function among the instructions; and each way of asking belongs to its kind of function."""

    async def instruct(context: RunContext) -> str:
        await context.ask("What?")
        return ""

    @tool
    async def wrongly(context: RunContext) -> str:
        """Ask."""
        return context.ask_sync("What?").text

    @tool
    def wrongly_too(context: RunContext) -> str:
        """Ask."""
        return asyncio.run(context.ask("What?")).text

    with pytest.raises(CallerError, match="only a tool at work can ask"):
        agent_of(ScriptedModel([]), instructions=instruct).run_sync("Hello")
    model = ScriptedModel([[call("wrongly"), call("wrongly_too")], "Done."])
    assert "CallerError: the tool failed" in said_in(agent_of(model, tools=[wrongly, wrongly_too]).run_sync("Hello"))
    assert "use `await context.ask(...)`" in caplog.text and "use `context.ask_sync(...)`" in caplog.text


def test_an_approver_that_fails_denies() -> None:
    """As it does for other asks; later is no answer to a tool that runs now."""

    def broken(asking: Asking) -> Sequence[Approval]:
        raise ValueError("no screen")

    def later(asking: Asking) -> Sequence[Approval]:
        return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]

    for approver, said in ((broken, "deny failed it raised ValueError"), (later, "deny person")):
        model = ScriptedModel([call("paint"), "Painted."])
        assert said in said_in(agent_of(model, tools=[paint], approver=approver).run_sync("Paint."))


async def test_a_tool_reports_how_it_gets_on() -> None:
    """From the loop and from a thread: of 1,000 reports at once the first and the last are told, in lines of 200 characters."""
    clock = FakeClock()
    seen: list[str] = []

    def watch(one: WatcherEvent) -> None:
        if isinstance(one, ToolProgress):
            seen.append(one.line)

    reported = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def copy(context: RunContext) -> str:
        """Copy."""
        for number in range(1000):
            context.report(f"{number} of 1000\n")
        await clock.sleep(1)
        context.report("x" * 10_000)
        await clock.sleep(1)
        return "copied"

    @tool
    def copy_in_thread(context: RunContext) -> str:
        """Copy."""
        for number in range(1000):
            context.report(f"{number} in a thread")
        loop.call_soon_threadsafe(reported.set)
        assert goes_on.wait(HANG_S)
        return "copied"

    goes_on = threading.Event()
    model = ScriptedModel([call("copy"), call("copy_in_thread"), "Done."])
    run = asyncio.create_task(agent_of(model, tools=[copy, copy_in_thread], clock=clock).run("Copy.", watch=watch))
    await clock.advance(2)
    await reported.wait()
    await clock.advance(0.25)
    goes_on.set()
    await run
    assert seen[:3] == ["0 of 1000", "999 of 1000", "x" * 200]
    in_thread = seen[3:]
    assert in_thread[-1] == "999 in a thread" and len(in_thread) <= 2


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
def test_the_report_of_a_call_that_ends_at_once_is_told(in_thread: bool) -> None:
    """A newcomer's line was lost: their tool ended within a quarter of a second."""
    seen: list[str] = []

    @tool
    async def close(context: RunContext, ticket: int) -> str:
        """Close."""
        context.report("looking")
        context.report(f"closing {ticket}")
        return "closed"

    @tool(name="close")
    def close_in_thread(context: RunContext, ticket: int) -> str:
        """Close."""
        context.report(f"closing {ticket}")
        return "closed"

    made = close_in_thread if in_thread else close
    model = ScriptedModel([call("close", ticket=7), "Done."])
    agent_of(model, tools=[made]).run_sync(
        "Close.", watch=lambda one: isinstance(one, ToolProgress) and seen.append(one.line)
    )
    assert seen == (["closing 7"] if in_thread else ["looking", "closing 7"])


def test_a_report_that_nobody_watches_is_nothing() -> None:
    """In a run without a watcher, and in a test of the tool alone."""

    @tool
    def copy(context: RunContext) -> str:
        """Copy."""
        context.report("half")
        return "copied"

    assert copy(RunContext(None)) == "copied"
    model = ScriptedModel([call("copy"), "Done."])
    assert "copied" in said_in(agent_of(model, tools=[copy]).run_sync("Copy."))
