"""What the model reads of a call that did not run, to the letter. A change of these words changes what
models do, so it is made here, too (issue 18: mutants that no test noticed)."""

from typing import Literal

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, call, cut, play, results_in, says, session_messages
from turn.test_loop_guard import BEGUN, ON
from turn.test_retrying import BUSY
from turnwise.rules.continuation import hold_back
from turnwise.turn.events import Interrupted, ResponseReceived, TurnStarted
from turnwise.turn.outcomes import LOST, NOT_STARTED, REFUSED, UNFINISHED, WHY_INCOMPLETE, why_incomplete
from turnwise.turn.settled_response import too_many
from turnwise.vocab import FinishReason, Settings, StopReason, ToolResult, Usage

Kind = Literal["cancel", "deadline", "journal"]
IN_PART = {
    "cancel": "Cancelled by the user before a result was there. The tool may have run in part.",
    "deadline": "The turn's time was up before a result was there. The tool may have run in part.",
    "journal": "The run's journal failed before a result was there. The tool may have run in part.",
}
NOT_BEGUN = {
    "cancel": "Not run: cancelled by the user before this call had started.",
    "deadline": "Not run: the turn's time was up before this call had started.",
    "journal": "Not run: the run's journal failed, and turnwise runs no call that it cannot record.",
}
ENDS = {
    "cancel": (StopReason.CANCELLED, "The turn was cancelled before there was an answer."),
    "deadline": (StopReason.TIME_LIMIT, "The turn's time was up before there was an answer."),
    "journal": (
        StopReason.JOURNAL_FAILED,
        "The turn ended before there was an answer, because it could not be recorded",
    ),
}


@pytest.mark.promise("step:every-call-answered", "wait:cancel")
@pytest.mark.parametrize("kind", IN_PART)
@pytest.mark.parametrize("why", ["", "disk full"])
def test_a_turn_that_is_stopped_says_of_each_call_how_far_it_came(kind: Kind, why: str) -> None:
    """Proves: what had ended keeps its result, what had begun may have run in part, the rest did not run."""
    had = ToolResult(call_id="a", name="read", content=())
    stop = Interrupted(kind=kind, started=("a", "b"), results=(had,), why=why)
    result = play([says(call("a"), call("b"), call("c")), stop]).result
    begun, not_begun = IN_PART[kind], NOT_BEGUN[kind]
    if kind == "cancel" and why:  # no person has cancelled it
        begun, not_begun = LOST, NOT_STARTED["lost"]
    assert results_in(result.messages) == {"a": "(no output)", "b": begun, "c": not_begun}
    reason, words = ENDS[kind]
    if kind == "cancel" and why:
        reason, words = StopReason.GIVEN_UP, "The turn was given up before there was an answer"
    told = f"{words}: {why}." if why else words
    assert (result.stop_reason, result.text.split("\n")[0], result.origin) == (reason, told, "local")


@pytest.mark.promise("step:every-call-answered")
def test_a_journal_that_ends_while_calls_run_says_that_they_may_have_run() -> None:
    """Proves: a session that was killed there is read with these words."""
    started = TurnStarted(config=CONFIG, input=(ASK,))
    read = session_messages([[started, ResponseReceived(number=1, response=says(call("a")))]])
    assert results_in(read) == {
        "a": "The run was interrupted before a result was recorded. The tool may or may not have run: look before you repeat it."
    }


@pytest.mark.promise("step:every-call-answered")
@pytest.mark.parametrize(
    ("finish", "broken", "text"),
    [
        (FinishReason.REFUSAL, False, "Not run: the response that asked for it was refused or filtered."),
        (FinishReason.CONTENT_FILTER, False, "Not run: the response that asked for it was refused or filtered."),
        (FinishReason.ERROR, True, "Not run: the provider failed before its response was whole."),
    ],
)
def test_calls_of_a_response_that_counts_for_nothing_do_not_run(finish: FinishReason, broken: bool, text: str) -> None:
    """Proves: and each has the reason as its result."""
    response = replace(says(call("a"), call("b"), finish=finish), fault=BUSY if broken else None)
    played = play([response])
    assert played.ran == []
    assert results_in(played.result.messages) == {"a": text, "b": text}


@pytest.mark.promise("loop:cut-variants")
def test_a_call_like_one_that_did_not_fit_is_told_where_to_look() -> None:
    """Proves: it stands behind what the result of any cut call says."""
    config = replace(ON, settings=Settings(max_output_tokens=100))
    attempt = replace(says(cut("c", BEGUN), finish=FinishReason.LENGTH), usage=Usage(output_tokens=100))
    asked = hold_back(BEGUN, kind="json")
    assert asked is not None
    played = play([attempt, says(f'{asked.held} the end"}}]}}'), attempt, says("No.")], config=config)
    assert list(results_in(played.result.messages).values())[1].endswith(
        " It was not continued: the model had continued a call that began like this one, and the whole call did not fit "
        "the parameters of `read`. "
        "The result of that call says what to correct."
    )


def test_calls_behind_the_most_that_a_response_may_hold_are_told_how_many_there_were() -> None:
    """Proves: the bound, the number, and what to do."""
    assert too_many(1_290, most=128) == (
        "Not run: a response may hold 128 calls, and this one holds 1,290. The first 128 were looked at. "
        "Ask for what is still needed in the next response, or in larger pieces."
    )


def test_every_reason_has_its_words() -> None:
    """Proves: what a result says of its missing answer, for people and programs that read it."""
    assert {str(reason): why_incomplete(reason, lacks="", fault=None) for reason in WHY_INCOMPLETE} == {
        "answered": "the model gave no answer of its own",
        "step_limit": "the step limit was reached",
        "budget": "a limit of the run was reached",
        "time_limit": "the time was up",
        "loop": "the model repeated itself",
        "waiting": "calls wait for an answer",
        "refused": "the model or its provider refused",
        "provider_failed": "the provider failed",
        "journal_failed": "the turn could not be recorded",
        "given_up": "the turn was given up, because its process died again and again",
        "cancelled": "the turn was cancelled",
        "tool_failed": "a tool failed",
    }
    assert {str(finish): words for finish, words in UNFINISHED.items()} == {
        "length": "the output limit cut the answer",
        "cut": "the answer stopped in the middle, and the provider gave no reason",
        "error": "the provider broke the answer off",
        "pause": "the provider paused in the middle of the answer",
    }
    assert {FinishReason.REFUSAL, FinishReason.CONTENT_FILTER} == REFUSED
