"""What the terminal and `--json` show of a response that was cut and gone on with."""

import json

import pytest

from turnwise.running.watcher_events import FrameSeen, RequestStarted, TurnFinished, WatcherEvent
from turnwise.terminal.events import JsonLines
from turnwise.terminal.screen import Screen
from turnwise.turn.config import TurnResult
from turnwise.vocab import StopReason, TextDelta, Usage


def seen(*, text: str) -> list[WatcherEvent]:
    """A text that was cut after "The quick bro", and the reply to the word to go on."""
    result = TurnResult(
        text=text, stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=2, usage=Usage(), messages=()
    )
    return [
        RequestStarted(number=1, step=1, purpose="step", model="m"),
        FrameSeen(1, TextDelta("The quick bro")),
        RequestStarted(number=2, step=1, purpose="continue", model="m"),
        FrameSeen(2, TextDelta("uick brown fox.")),
        TurnFinished(result),
    ]


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize("text", ["The quick brown fox.", "The quiet fox."])
def test_a_continued_text_shows_once(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Proves: what was shown is gone on with; only where it turned out otherwise the whole text follows."""
    screen = Screen(follows=True)
    for one in seen(text=text):
        screen(one)
    before = "" if text.startswith("The quick bro") else "The quick bro\n"
    assert capsys.readouterr().out == f"{before}{text}\n"


def test_json_lines_leave_the_overlap_out(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Proves: no delta of a `continue` request is written; the result has the text."""
    lines = JsonLines()
    for one in seen(text="The quick brown fox."):
        lines(one)
    written = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [(line["event"], line.get("delta"), line.get("purpose")) for line in written] == [
        ("request", None, "step"),
        ("text", "The quick bro", None),
        ("request", None, "continue"),
    ]
