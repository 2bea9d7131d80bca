"""What the runner reports of a turn that is broken off, and of its time."""

import asyncio
from collections.abc import Callable

import msgspec

from turnwise.drivers.journal import Journal
from turnwise.drivers.runner import Runner
from turnwise.drivers.tools import Arguments, Tool
from turnwise.drivers.watching import ToolStarted
from turnwise.rules.limits import MaxWallTime
from turnwise.testing import FakeClock, Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.vocab import Message, StopReason, Text, ToolResult, ToolSpec, text_of

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
    with Journal.open(None, clock=FakeClock()) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(
            model.endpoint,
            transport=model,
            tools=tools,
            watch=lambda seen: at_work.set() if isinstance(seen, ToolStarted) else None,
        )
        running = asyncio.create_task(runner.run(started(*tools), journal=pen))
        await at_work.wait()
        runner.interrupt()
        result = await asyncio.wait_for(running, 5)
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
    with Journal.open(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        transport = ScriptedTransport([Reply(pieces=(BEGIN, Stall()))])
        runner = Runner(ScriptedModel([]).endpoint, transport=transport, clock=clock)
        running = asyncio.create_task(runner.run(started(), journal=pen))
        await clock.until_waiting(90)
        await clock.advance(1)
        runner.interrupt()
        result = await asyncio.wait_for(running, 5)
        last = journal.events("t")[-1]
    assert transport.open == 0
    assert isinstance(last, Interrupted) and last.partial is not None and text_of(last.partial.message) == "The answer"
    assert result.stop_reason is StopReason.CANCELLED
    assert result.text == "The turn was cancelled before there was an answer.\n\nThe model had said:\nThe answer"


async def test_the_limit_of_wall_time_ends_a_turn_in_the_middle_of_a_response() -> None:
    """Nothing but the limit would end it so soon."""
    clock = FakeClock()
    transport = ScriptedTransport([Reply(pieces=(BEGIN, Stall()))])
    runner = Runner(ScriptedModel([]).endpoint, transport=transport, clock=clock)
    running = asyncio.create_task(runner.run(started(limits=MaxWallTime(7))))
    await clock.until_waiting(90)
    await clock.advance(7)
    result = await asyncio.wait_for(running, 5)
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
    with Journal.open(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        runner = Runner(model.endpoint, transport=model, tools=tools, clock=clock)
        running = asyncio.create_task(runner.run(started(*tools, limits=MaxWallTime(600)), journal=pen))
        await clock.until_waiting(3)
        await clock.advance(3)
        result = await asyncio.wait_for(running, 5)
        events = journal.events("t")
    assert result.complete
    assert times(events) == [("ResponseReceived", 0.0), ("ToolsFinished", 3.0), ("ResponseReceived", 3.0)]
    assert clock.delays == []
