"""How a command gets on is shown while it runs: its last line, bounded and not too often (issue 15, 7)."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from thoroughness import examples
from turnwise import ToolCall, ToolFinished, ToolStarted, tool
from turnwise.agent.run_setup import RunOptions
from turnwise.running.runner import Runner
from turnwise.running.runner_config import Observation, RunnerMeans
from turnwise.running.watcher_events import RequestFinished, ToolProgress, WatcherEvent
from turnwise.running.working_call import (
    EVERY_S,
    LINE,
    MOST_LINES,
    CallTelling,
    LastLines,
    last_lines,
    telling,
    tells_of,
)
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text
from waits import HANG_S


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\ntwo\n \n\n", "two"),
        (b" 10%\r 45%\r", "45%"),
        (b"\x1b[32m  ok \x1b[0m\x1b[K test_a\n", "ok test_a"),
        (b"\x1b]0;title\x07building", "building"),
        (b"\xa9 cut character", "cut character"),
        (b"x" * 1000, "x" * LINE),
    ],
)
def test_the_last_line_that_says_something_is_told(output: bytes, line: str) -> None:
    """Proves: without colours, blanks and empty lines; a bar of progress is its last state."""
    assert (last_lines(output, most=1) or ("",)) == (line,)


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(chunks=st.lists(st.binary(max_size=40), max_size=20))
def test_any_output_has_one_short_line(chunks: list[bytes]) -> None:
    """Proves: whatever bytes a command says, in whatever pieces, what is told is one line of a bounded length."""
    lines = last_lines(b"".join(chunks))
    assert len(lines) <= MOST_LINES and all(len(line) <= LINE and len(line.splitlines()) == 1 for line in lines)


async def test_it_is_told_now_and_then_and_not_after_the_end() -> None:
    """Proves: nothing before a quarter of a second, one line for what came meanwhile, nothing twice, nothing afterwards."""
    clock, told = FakeClock(), list[tuple[str, ...]]()
    progress = LastLines(told.append, clock=clock, most=2)
    for number in range(100):
        progress.take(f"line {number}\n".encode())
    assert told == [] and clock.delays == [EVERY_S]
    await clock.advance(EVERY_S)
    assert told == [("line 98", "line 99")]
    progress.take(b"")
    await clock.advance(EVERY_S)
    assert told == [("line 98", "line 99")] and clock.delays == []
    progress.take(b"more\n")
    progress.leave()
    await clock.advance(EVERY_S)
    progress.take(b"late\n")
    assert told == [("line 98", "line 99")] and clock.delays == []


async def test_a_command_at_work_is_seen(tmp_path: Path) -> None:
    """Proves: the watcher sees the last line while the command waits for the watcher's answer; the result has all of it."""
    seen: list[WatcherEvent] = []

    def watch(one: WatcherEvent) -> None:
        seen.append(one)
        if isinstance(one, ToolProgress):
            (tmp_path / "go").touch()

    tools = workspace_tools(tmp_path)
    model = ScriptedModel([call("bash", command="printf 'one\\ntwo\\n'; until [ -e go ]; do sleep 0.05; done"), "bye"])
    config = TurnConfig(
        session_id="session-1", turn_id="turn-1", model="m", tools=tuple([tool.offer for tool in tools])
    )
    started = TurnStarted(config=config, input=(Message(role="user", parts=(Text("go"),)),))
    runner = Runner(
        RunnerMeans(endpoint=model.endpoint, transport=model, tools=tools, observation=Observation(watch=watch))
    )
    result = await asyncio.wait_for(runner.run(started), HANG_S)
    (told,) = [one for one in seen if isinstance(one, ToolProgress)]
    assert (told.call.name, told.line) == ("bash", "two")
    assert result.messages[2].parts[0].content == (Text("one\ntwo\n"),)  # pyright: ignore[reportAttributeAccessIssue]
    assert [one.usd for one in seen if isinstance(one, RequestFinished)] == [None, None]


class Noted(msgspec.Struct, frozen=True, tag="tool_noted"):
    """As a tool's author would write one down."""

    call: ToolCall
    text: str


def note(text: str) -> None:
    at_hand = telling()
    assert at_hand is not None
    at_hand.tell(cast("WatcherEvent", Noted(at_hand.call, text)))


@pytest.mark.parametrize("is_async", [True, False])
async def test_any_tool_can_tell_an_event_of_its_call(is_async: bool) -> None:
    """Proves: from the event loop or a thread of its own, in order, between the call's start and its result."""

    def plain() -> str:
        for number in range(50):
            note(str(number))
        return "done"

    async def waits() -> str:
        return plain()

    seen = await _seen_of(waits if is_async else plain)
    told = [one for one in seen if isinstance(one, Noted | ToolStarted | ToolFinished)]
    assert [one.text for one in told[1:-1] if isinstance(one, Noted)] == [str(number) for number in range(50)]
    assert isinstance(told[0], ToolStarted) and isinstance(told[-1], ToolFinished)
    assert {one.call.id for one in told if isinstance(one, Noted)} == {told[0].call.id}


async def test_a_tool_that_was_given_up_is_not_heard_any_more() -> None:
    """Proves: what a thread tells after its call has its result reaches nobody, even when the event loop is gone."""
    kept: list[CallTelling | None] = []

    def keep() -> str:
        kept.append(telling())
        return "done"

    seen = await _seen_of(keep)
    (late,) = kept
    assert late is not None
    before = len(seen)
    late.tell(cast("WatcherEvent", Noted(late.call, "late")))
    late.take_output(b"late\n")
    assert len(seen) == before

    def after(loop: asyncio.AbstractEventLoop) -> CallTelling:
        async def begin() -> CallTelling:
            with tells_of(late.call, seen.append, clock=FakeClock()):
                found = telling()
            assert found is not None
            return found

        return loop.run_until_complete(begin())

    def elsewhere() -> None:
        loop = asyncio.new_event_loop()
        orphan = after(loop)
        loop.close()
        thread = threading.Thread(target=orphan.tell, args=(cast("WatcherEvent", Noted(late.call, "orphan")),))
        thread.start()
        thread.join(HANG_S)
        assert not thread.is_alive()

    await asyncio.to_thread(elsewhere)
    assert len(seen) == before


async def test_where_nobody_watches_there_is_nothing_to_tell() -> None:
    """Proves: a tool finds no one, and need not build an event."""
    found: list[CallTelling | None] = []

    def look() -> str:
        found.append(telling())
        return "done"

    await _seen_of(look, watched=False)
    assert found == [None]


async def _seen_of(function: Callable[..., object], *, watched: bool = True) -> list[object]:
    seen: list[object] = []
    made = tool(name="it")(function)
    model = ScriptedModel([call("it"), "bye"])
    agent = flat_agent("openai_chat:m", base_url="http://x", tools=[made], transport=model)
    watching: RunOptions = {"watch": seen.append} if watched else {}
    await asyncio.wait_for(agent.run("go", **watching), HANG_S)
    return seen
