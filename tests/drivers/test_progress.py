"""How a command gets on is shown while it runs: its last line, bounded and not too often (issue 15, 7)."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.drivers.running.means import Observation, RunnerMeans
from turnwise.drivers.running.runner import Runner
from turnwise.drivers.running.watching import RequestFinished, ToolProgress, WatcherEvent
from turnwise.drivers.tools.progress import EVERY_S, LINE, Progress, last_line
from turnwise.drivers.tools.workspace import workspace_tools
from turnwise.testing import FakeClock, ScriptedModel, call
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
    assert last_line(output) == line


@settings(max_examples=200, deadline=None, derandomize=True)
@given(chunks=st.lists(st.binary(max_size=40), max_size=20))
def test_any_output_has_one_short_line(chunks: list[bytes]) -> None:
    """Proves: whatever bytes a command says, in whatever pieces, what is told is one line of a bounded length."""
    line = last_line(b"".join(chunks))
    assert len(line) <= LINE and len(line.splitlines()) <= 1


async def test_it_is_told_now_and_then_and_not_after_the_end() -> None:
    """Proves: nothing before a quarter of a second, one line for what came meanwhile, nothing twice, nothing afterwards."""
    clock, told = FakeClock(), list[str]()
    progress = Progress(told.append, clock=clock)
    for number in range(100):
        progress.take(f"line {number}\n".encode())
    assert told == [] and clock.delays == [EVERY_S]
    await clock.advance(EVERY_S)
    assert told == ["line 99"]
    progress.take(b"line 99\n")
    await clock.advance(EVERY_S)
    assert told == ["line 99"] and clock.delays == []
    progress.take(b"more\n")
    progress.leave()
    await clock.advance(EVERY_S)
    progress.take(b"late\n")
    assert told == ["line 99"] and clock.delays == []


async def test_a_command_at_work_is_seen(tmp_path: Path) -> None:
    """Proves: the watcher sees the last line while the command waits for the watcher's answer; the result has all of it."""
    seen: list[WatcherEvent] = []

    def watch(one: WatcherEvent) -> None:
        seen.append(one)
        if isinstance(one, ToolProgress):
            (tmp_path / "go").touch()

    tools = workspace_tools(tmp_path)
    model = ScriptedModel([call("bash", command="echo one; echo two; until [ -e go ]; do sleep 0.05; done"), "bye"])
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
