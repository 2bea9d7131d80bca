"""A watcher's event that no face knows is shown, with its kind and what it holds: no branch hides one (issue 18, 5)."""

import io
import json
from typing import Any, cast

import msgspec
import pytest

from turnwise.coding_agent.progress_line import WaitBounds, Waiting
from turnwise.running.watcher_events import ChildSeen, ToolsetNoted, WatcherEvent
from turnwise.terminal.events import JsonLines
from turnwise.terminal.screen import Screen
from turnwise.vocab import ToolCall

CALL = ToolCall(id="c1", name="read", arguments="{}")


class Noted(msgspec.Struct, frozen=True, tag="tool_noted"):
    """As somebody would write one down tomorrow."""

    call: ToolCall
    text: str
    count: int


class Bare(msgspec.Struct, frozen=True, tag="bare"):
    """Without a call, and without anything."""


NOTED = cast("WatcherEvent", Noted(CALL, "found \x1b[2J files", 3))
BARE = cast("WatcherEvent", Bare())


def test_the_screen_shows_an_event_that_it_does_not_know() -> None:
    """Proves: a line each, with kind, tool and plain values, clean; one of a sub-agent stands under its path."""
    notes = io.StringIO()
    screen = Screen(notes=notes, follows=True)
    for seen in (NOTED, BARE, ChildSeen("c0", ("helper",), NOTED)):
        screen(seen)
    first, second, within = notes.getvalue().splitlines()
    assert first.startswith("· tool_noted read: found ") and first.endswith(" files 3") and "\x1b" not in first
    assert second == "· bare"
    assert within == f"  helper: {first}"


def test_the_screen_shows_the_whole_note_of_a_toolset() -> None:
    """Proves: what a server says of itself is a line for people, without the event's own name, and its end is not cut."""
    notes = io.StringIO()
    text = f"the MCP server `s`: its tools are missing: {'a long reason, ' * 20}and what to do"
    Screen(notes=notes, follows=True)(ToolsetNoted(text))
    assert notes.getvalue() == f"· {text}\n"


def test_json_lines_carry_an_event_that_they_do_not_know(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Proves: all that it holds, under the names that it has in the library; one of a sub-agent says of which."""
    lines = JsonLines()
    for seen in (NOTED, BARE, ChildSeen("c0", ("helper",), NOTED)):
        lines(seen)
    found: list[dict[str, Any]] = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    noted = {"event": "tool_noted", "call": found[0]["call"], "text": "found \x1b[2J files", "count": 3}
    assert found == [noted, {"event": "bare"}, {**noted, "path": ["helper"], "parent": "c0"}]
    assert (found[0]["call"]["id"], found[0]["call"]["name"]) == ("c1", "read")


def test_the_waiting_line_is_not_disturbed() -> None:
    """Proves: what it does not know is nothing to wait for."""
    waiting = Waiting(WaitBounds())
    for seen in (NOTED, BARE, ChildSeen("c0", ("helper",), NOTED)):
        waiting.saw(seen, now_s=0.0)
    assert waiting.show(now_s=1.0, columns=80) == ""
