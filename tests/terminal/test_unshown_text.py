"""What was streamed to a terminal is not shown again at the end of the turn; what was not seen is (issue 15)."""

import io
from contextlib import redirect_stdout

import pytest

from emulator import Tty
from turnwise.rules.answer_room import LocalAnswer, local_answer, read_local_answer
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.terminal.screen import Screen
from turnwise.testing import FakeClock
from turnwise.turn.config import TurnResult
from turnwise.turn.outcomes import ENDED, SAY_NOTHING
from turnwise.vocab import (
    FinishReason,
    Message,
    RefusalDelta,
    Response,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
)

CANCELLED = ENDED["cancel"][1]
TIME_IS_UP = f"{ENDED['deadline'][1]}: 5 seconds are over."
SAID = 'Set `C:\\\\temp\\\\new` in **it**:\n\n```json\n{"path": "C:\\\\temp\\\\new"}\n```\n\nThen go on, and'
RESULT = ToolResult(call_id="c1", name="read", content=(Text("1\tone\n2\ta\\\\b *two*\n"),))
SHORT = ToolResult(call_id="c2", name="bash", content=(Text("ok\n"),))
RESULTS = (Message("user", (RESULT, SHORT)),)


def ended(why: str, *, said: str = "", messages: tuple[Message, ...] = (), reason: StopReason) -> TurnResult:
    return TurnResult(
        text=local_answer(why, said=said, messages=messages, left_out=SAY_NOTHING),
        stop_reason=reason,
        complete=False,
        steps=1,
        requests=1,
        usage=Usage(),
        messages=messages,
        origin="local",
    )


def started(number: int = 1, *, purpose: str = "step") -> WatcherEvent:
    return RequestStarted(number=number, step=1, purpose=purpose, model="m")  # pyright: ignore[reportArgumentType]


def pieces(text: str) -> list[WatcherEvent]:
    return [FrameSeen(number=1, frame=TextDelta(text=text[at : at + 7])) for at in range(0, len(text), 7)]


def shown(*seen: WatcherEvent, plain: bool = True, notes: io.StringIO | None = None, tty: Tty | None = None) -> str:
    """What stands at the terminal; `notes`: standard error leads elsewhere."""
    tty = Tty(lines=200) if tty is None else tty
    with redirect_stdout(tty):
        screen = Screen(notes=tty if notes is None else notes, size=tty.size, clock=FakeClock(), plain=plain)
        for one in seen:
            screen(one)
        screen.close()
    return tty.text


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize("plain", [True, False])
def test_ctrl_c_in_an_answer_does_not_show_it_again(plain: bool) -> None:
    """Proves: it ends where it was; `cancelled (...)` below it says the rest."""
    result = ended(CANCELLED, said=SAID, reason=StopReason.CANCELLED)
    seen = shown(started(), *pieces(SAID), TurnFinished(result), plain=plain)
    assert seen.count("Then go on, and") == 1 and seen.endswith("Then go on, and\n")
    assert "had said" not in seen and "cancelled" not in seen and seen.count("C:\\\\temp\\\\new") == 2


@pytest.mark.parametrize("plain", [True, False])
def test_time_that_is_up_shows_why_and_nothing_twice(plain: bool) -> None:
    """Proves: the sentence is new to the person, the text is not; so it is where the provider fails in mid-answer."""
    for reason in (StopReason.TIME_LIMIT, StopReason.PROVIDER_FAILED, StopReason.BUDGET, StopReason.LOOP):
        seen = shown(started(), *pieces(SAID), TurnFinished(ended(TIME_IS_UP, said=SAID, reason=reason)), plain=plain)
        assert seen.endswith(f"Then go on, and\n{TIME_IS_UP}\n") and seen.count("Then go on") == 1


def test_results_that_stand_there_whole_are_not_shown_again() -> None:
    """Proves: of several lines only their number stood there: they are shown, as they are and not as Markdown."""
    calls = [ToolCall(id=id, name="x", arguments="{}") for id in ("c1", "c2")]
    whole = Response(message=Message("assistant", (Text("Looking."),)), finish=FinishReason.TOOL_CALLS)
    told = [RequestFinished(1, whole, None, 1.0), *[ToolStarted(call) for call in calls]]
    finished = [ToolFinished(RESULT, 0.1), ToolFinished(SHORT, 0.1)]
    result = ended(CANCELLED, said="Looking.", messages=RESULTS, reason=StopReason.CANCELLED)
    seen = shown(started(), *pieces("Looking."), *told, *finished, started(2), TurnFinished(result), plain=False)
    assert seen.endswith("✓ bash: ok\nWhat the tools had returned:\n- read: 1       one\n2       a\\\\b *two*\n")
    assert seen.count("Looking.") == 1


def test_where_standard_error_leads_elsewhere_the_reason_is_shown() -> None:
    """Proves: nothing else at this terminal says that the turn was cancelled, and what the tools returned."""
    result = ended(CANCELLED, said=SAID, messages=RESULTS, reason=StopReason.CANCELLED)
    seen = shown(started(), *pieces(SAID), TurnFinished(result), notes=io.StringIO())
    assert seen.startswith(f"{SAID}\n{CANCELLED}\n\nWhat the tools had returned:\n- read: 1") and "- bash: ok" in seen


def test_no_terminal_gets_the_whole_answer() -> None:
    """Proves: a pipe has seen nothing of it."""
    out = io.StringIO()
    result = ended(CANCELLED, said=SAID, messages=RESULTS, reason=StopReason.CANCELLED)
    with redirect_stdout(out):
        screen = Screen(notes=io.StringIO())
        for one in (started(), *pieces(SAID), TurnFinished(result)):
            screen(one)
    assert out.getvalue() == f"{result.text}\n"


def test_text_that_was_not_shown_is() -> None:
    """Proves: what was discarded counts for nothing; of a text that was continued unseen, the rest comes."""
    discarded = [started(), *pieces(SAID), AttemptDiscarded(1, None, 0.5), started(2, purpose="retry")]
    seen = shown(*discarded, TurnFinished(ended(TIME_IS_UP, said=SAID, reason=StopReason.TIME_LIMIT)))
    assert seen.count("Then go on, and") == 2
    whole = ended(CANCELLED, said=f"{SAID} on.", reason=StopReason.CANCELLED)
    assert shown(started(), *pieces(SAID), started(2, purpose="continue"), TurnFinished(whole)) == f"{SAID} on.\n"


def test_text_of_an_earlier_step_is_not_shown_again() -> None:
    """Proves: a turn that ends without an answer quotes the last words of the model, which stand above."""
    result = ended(CANCELLED, said="Looking.", reason=StopReason.CANCELLED)
    assert shown(started(), *pieces("Looking."), started(2), TurnFinished(result)) == "Looking.\n"


def test_a_filtered_answer_says_that_it_was_and_not_what_had_arrived() -> None:
    """Proves: the same of a refusal, whose words come as the answer."""
    filtered = "The provider's content filter stopped the answer.\n\nWhat had arrived: No.\nOnce there was"
    seen = [started(), FrameSeen(1, TextDelta("Once there was ")), FrameSeen(1, RefusalDelta("No."))]
    for text, origin, last in (
        (filtered, "local", "\nThe provider's content filter stopped the answer."),
        ("No.\nOnce there was", "model", ""),
    ):
        end = TurnResult(
            text=text,
            stop_reason=StopReason.REFUSED,
            complete=False,
            steps=1,
            requests=1,
            usage=Usage(),
            messages=(),
            origin=origin,  # pyright: ignore[reportArgumentType]
        )
        assert shown(*seen, TurnFinished(end)) == f"Once there was No.{last}\n"


@pytest.mark.parametrize("said", ["", "One.\n\nTwo."])
@pytest.mark.parametrize("messages", [(), RESULTS])
def test_an_answer_of_ours_is_read_as_it_was_made(said: str, messages: tuple[Message, ...]) -> None:
    """Proves: the parts of it make the same text again."""
    text = local_answer("Why.", said=said, messages=messages)
    parts = read_local_answer(text, messages=messages)
    assert parts == LocalAnswer("Why.", said, (RESULT, SHORT) if messages else ()) and parts.text == text
