"""What the runner reports of a turn that is broken off, and of its time."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from turnwise.journal.journal import Journal
from turnwise.rules.limits import MaxWallTime
from turnwise.running.runner import Runner
from turnwise.running.runner_config import Observation, RunnerMeans
from turnwise.running.tools import Arguments, Tool
from turnwise.running.watcher_events import StepStarted, ToolStarted, TurnFinished, WatcherEvent
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import (
    Event,
    Interrupted,
    PrepareStep,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.vocab import Message, StopReason, Text, ToolResult, ToolSpec, text_of
from waits import HANG_S

BEGIN = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"The answer"}}]}\n\n'


def tool_of(name: str, function: Callable[[Arguments], object], *, exclusive: bool = False) -> Tool:
    spec = ToolSpec(name=name, parameters='{"type":"object"}')
    return Tool(offer=ToolOffer(spec=spec, exclusive=exclusive), function=function)


def started(*tools: Tool, **more: object) -> TurnStarted:
    config = TurnConfig(session_id="s", turn_id="t", model="m", tools=tuple([tool.offer for tool in tools]))
    config = msgspec.structs.replace(config, profile="openai_chat", **more)
    return TurnStarted(config=config, input=(Message("user", (Text("go"),)),))


def times(events: list[Event]) -> list[tuple[str, float]]:
    timed = [one for one in events if isinstance(one, StepPrepared | ResponseReceived | RequestFailed | ToolsFinished)]
    return [(type(one).__name__, one.at_s) for one in timed]


async def test_an_exclusive_call_behind_others_is_told_that_it_never_began() -> None:
    """The journal says which calls had started; only those may have run in part."""
    at_work = asyncio.Event()

    async def forever(_: Arguments) -> str:
        await asyncio.Event().wait()
        return "never"

    tools = [tool_of("forever", forever), tool_of("alone", lambda _: "ran", exclusive=True)]
    model = ScriptedModel([[call("forever"), call("alone")]])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(
            RunnerMeans(
                endpoint=model.endpoint,
                transport=model,
                tools=tools,
                observation=Observation(watch=lambda seen: at_work.set() if isinstance(seen, ToolStarted) else None),
            )
        )
        running = asyncio.create_task(runner.run(started(*tools), journal=pen))
        await at_work.wait()
        runner.interrupt()
        result = await asyncio.wait_for(running, HANG_S)
        last = journal.events("t")[-1]
    ids = [part.call_id for part in result.messages[-1].parts if isinstance(part, ToolResult)]
    assert last == Interrupted(kind="cancel", started=(ids[0],))
    said = [
        text_of(Message("user", part.content)) for part in result.messages[-1].parts if isinstance(part, ToolResult)
    ]
    assert "may have run in part" in said[0]
    assert said[1] == "Not run: cancelled by the user before this call had started."


async def test_text_that_had_arrived_is_in_the_cancelled_answer_and_in_the_journal() -> None:
    """The stream stands still after two words; the user gives up."""
    clock = FakeClock()
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        transport = ScriptedTransport([Reply(pieces=(BEGIN, Stall()))])
        runner = Runner(RunnerMeans(endpoint=ScriptedModel([]).endpoint, transport=transport, clock=clock))
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await clock.until_waiting(90)
        await clock.advance(1)
        runner.interrupt()
        result = await asyncio.wait_for(running, HANG_S)
        last = journal.events("t")[-1]
    assert transport.open == 0
    assert isinstance(last, Interrupted) and last.partial is not None and text_of(last.partial.message) == "The answer"
    assert result.stop_reason is StopReason.CANCELLED
    assert result.text == "The turn was cancelled before there was an answer.\n\nThe model had said:\nThe answer"


async def test_the_limit_of_wall_time_ends_a_turn_in_the_middle_of_a_response() -> None:
    """Nothing but the limit would end it so soon."""
    clock = FakeClock()
    transport = ScriptedTransport([Reply(pieces=(BEGIN, Stall()))])
    runner = Runner(RunnerMeans(endpoint=ScriptedModel([]).endpoint, transport=transport, clock=clock))
    running = asyncio.create_task(runner.run(started(limits=MaxWallTime(7))))
    await clock.until_waiting(90)
    await clock.advance(7)
    result = await asyncio.wait_for(running, HANG_S)
    assert (result.stop_reason, result.complete, result.origin) == (StopReason.TIME_LIMIT, False, "local")
    assert "The answer" in result.text
    assert clock.delays == []


async def test_events_say_when_they_came_and_a_turn_in_time_leaves_no_timer() -> None:
    """Seconds since the turn began, by the clock that was handed in."""
    clock = FakeClock(now=1_000_000.0)
    await clock.advance(500)

    async def wait(_: Arguments) -> str:
        await clock.sleep(3)
        return "waited"

    tools = [tool_of("wait", wait)]
    model = ScriptedModel([[call("wait")], "Done."])
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=tools, clock=clock))
        running = asyncio.create_task(runner.run(started(*tools, limits=MaxWallTime(600)), journal=pen))
        await clock.until_waiting(3)
        await clock.advance(3)
        result = await asyncio.wait_for(running, HANG_S)
        events = journal.events("t")
    assert result.complete
    assert times(events) == [("ResponseReceived", 0.0), ("ToolsFinished", 3.0), ("ResponseReceived", 3.0)]
    assert clock.delays == []


async def until(over: asyncio.Event) -> None:
    """Wait, whatever cancels us."""
    while not over.is_set():
        try:
            await over.wait()
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("ended_by", ["interrupt", "cancelled task"])
@pytest.mark.promise("wait:cancel")
async def test_what_is_left_behind_changes_nothing_when_it_ends_at_last(ended_by: str) -> None:
    """A `prepare_step` that does not let itself be cancelled comes back after the turn's end: no event, no request, no word
    to a watcher comes of it."""
    at_work, over, back = asyncio.Event(), asyncio.Event(), asyncio.Event()
    seen: list[WatcherEvent] = []

    async def prepare(_: PrepareStep) -> StepPrepared:
        at_work.set()
        await until(over)
        asyncio.get_running_loop().call_soon(back.set)
        return StepPrepared(instruction="too late")

    model = ScriptedModel([])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(
            RunnerMeans(
                endpoint=model.endpoint,
                transport=model,
                prepare_step=prepare,
                settle_s=0,
                observation=Observation(watch=seen.append),
            )
        )
        running = asyncio.create_task(runner.run(started(prepares_steps=True), journal=pen))
        await asyncio.wait_for(at_work.wait(), HANG_S)
        if ended_by == "interrupt":
            runner.interrupt()
        else:
            running.cancel()
        await asyncio.wait([running], timeout=HANG_S)
        assert running.cancelled() == (ended_by == "cancelled task")
        result, before = runner.result, (journal.entries("t"), list(seen))
        over.set()
        await asyncio.wait_for(back.wait(), HANG_S)
        assert (journal.entries("t"), seen) == before
    assert runner.result is result and result is not None and result.stop_reason is StopReason.CANCELLED
    assert [type(one) for one in seen] == [StepStarted, TurnFinished]
    assert model.requests == []


@pytest.mark.parametrize("ended_by", ["interrupt", "cancelled task"])
async def test_a_command_that_ends_in_spite_of_its_cancellation_counts(ended_by: str) -> None:
    """Its event is in the journal before the interrupt; what it leads to is not begun."""
    at_work = asyncio.Event()

    async def prepare(_: PrepareStep) -> StepPrepared:
        at_work.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return StepPrepared(instruction="be brief")
        raise AssertionError("nobody wakes it")

    model = ScriptedModel([])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, prepare_step=prepare, clock=FakeClock()))
        running = asyncio.create_task(runner.run(started(prepares_steps=True), journal=pen))
        await asyncio.wait_for(at_work.wait(), HANG_S)
        if ended_by == "interrupt":
            runner.interrupt()
        else:
            running.cancel()
        await asyncio.wait([running], timeout=HANG_S)
        events = journal.events("t")
    assert events[1:] == [StepPrepared(instruction="be brief"), Interrupted(kind="cancel", sent=False)]
    assert runner.result is not None and runner.result.stop_reason is StopReason.CANCELLED
    assert model.requests == []


async def test_a_prepare_step_that_cancels_itself_ends_the_turn_as_cancelled() -> None:
    """Nobody interrupted the turn: the journal has its end all the same, and the cancellation goes on."""

    async def prepare(_: PrepareStep) -> StepPrepared:
        raise asyncio.CancelledError

    model = ScriptedModel([])
    with Journal(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, prepare_step=prepare))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(runner.run(started(prepares_steps=True), journal=pen), HANG_S)
        assert journal.events("t")[1:] == [Interrupted(kind="cancel")]
    assert runner.result is not None and runner.result.stop_reason is StopReason.CANCELLED
