"""What the terminal and `--json` show of an attempt that was given up."""

import io
import json

import pytest

from terminal.running import Cli, at, running_lab
from turnwise.running.watcher_events import AttemptDiscarded, FrameSeen, RequestStarted, TurnFinished, WatcherEvent
from turnwise.terminal.events import JsonLines
from turnwise.terminal.screen import Screen
from turnwise.turn.config import TurnResult
from turnwise.vocab import Fault, FaultKind, StopReason, TextDelta, Usage

BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


def seen(*, text: str) -> list[WatcherEvent]:
    result = TurnResult(
        text=text, stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=2, usage=Usage(), messages=()
    )
    return [
        RequestStarted(1, 1, "step", "m"),
        FrameSeen(1, TextDelta("Lost wor")),
        AttemptDiscarded(1, BUSY, 0.5),
        RequestStarted(2, 1, "retry", "m", "step"),
        FrameSeen(2, TextDelta("Kept.")),
        TurnFinished(result),
    ]


@pytest.mark.promise("wait:retry")
def test_the_screen_marks_what_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Between the words that were discarded and those that hold stands a line that says so."""
    notes = io.StringIO()
    screen = Screen(notes=notes, follows=True)
    for one in seen(text="Kept."):
        screen(one)
    assert capsys.readouterr().out == "Lost wor\nKept.\n"
    assert notes.getvalue() == "✗ overloaded (503), busy: discarded what had come, trying again in 0.5 s\n"


def test_an_attempt_at_going_on_does_not_break_the_answer_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    """The rest of a cut text is not shown while it comes, nor that an attempt at it failed."""
    notes = io.StringIO()
    screen = Screen(notes=notes, follows=True)
    result = TurnResult(
        text="Whole answer.",
        stop_reason=StopReason.ANSWERED,
        complete=True,
        steps=1,
        requests=3,
        usage=Usage(),
        messages=(),
    )
    events: list[WatcherEvent] = [
        RequestStarted(1, 1, "step", "m"),
        FrameSeen(1, TextDelta("Whole ans")),
        RequestStarted(2, 1, "continue", "m"),
        FrameSeen(2, TextDelta("LOST")),
        AttemptDiscarded(2, BUSY, 0.5),
        RequestStarted(3, 1, "retry", "m", "continue"),
        FrameSeen(3, TextDelta("answer.")),
        TurnFinished(result),
    ]
    for one in events:
        screen(one)
    assert (capsys.readouterr().out, notes.getvalue()) == ("Whole answer.\n", "")


@pytest.mark.promise("wait:retry")
def test_json_lines_tell_of_it(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Which request, why, and when the next one goes out; that one says what it repeats."""
    lines = JsonLines()
    for one in seen(text="Kept."):
        lines(one)
    written = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert written[2:4] == [
        {
            "event": "discarded",
            "number": 1,
            "fault": {"kind": "overloaded", "message": "busy", "status": 503},
            "retry_in_s": 0.5,
        },
        {"event": "request", "number": 2, "step": 1, "purpose": "retry", "model": "m", "retry_of": "step"},
    ]


@pytest.mark.promise("wait:retry", "bill:wire")
def test_a_run_survives_a_broken_connection(cli: Cli) -> None:
    """And without retries it does not; by the lab's own count."""
    with running_lab() as lab:
        ran = cli("run", "hi", *at(lab, "fault-once-reset"))
        assert (ran.code, ran.out, lab.count()) == (0, "This is the answer that came through.\n", 2)
        lab.reset()
        ran = cli("run", "hi", *at(lab, "fault-once-reset"), "--retries", "0")
        assert (ran.code, lab.count()) == (6, 1)
        lab.reset()
        ran = cli("run", "hi", *at(lab, "fault-401"), "--fallback", "plain-answer")
        assert (ran.code, lab.count()) == (6, 1)
        ran = cli("run", "hi", *at(lab, "no-such-script"), "--fallback", "plain-answer")
        assert ran.code == 0


@pytest.mark.promise("wait:retry", "bill:wire")
def test_a_session_keeps_its_retries_and_fallbacks(cli: Cli) -> None:
    """Proves: what the first run was told holds for the next ones, until they are told otherwise; fallbacks go with the
    model."""
    with running_lab() as lab:
        told = ["--retries", "0", "--fallback", "plain-answer"]
        assert cli("run", "hi", *at(lab, "no-such-script"), *told).code == 0
        assert cli("run", "--continue").code == 0
        lab.reset()
        ran = cli("run", "--continue", *at(lab, "fault-once-reset"))
        assert (ran.code, lab.count()) == (6, 1)
        lab.reset()
        ran = cli("run", "--continue", *at(lab, "fault-once-reset"), "--retries", "1")
        assert (ran.code, lab.count()) == (0, 2)
