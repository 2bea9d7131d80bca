"""What stays of requests that failed or never left, of sub-agents, and of counts that begin anew (issue 18: mutants that no test
noticed). Events in, results out."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, READ, call, play, says
from turn.test_after_a_summary import REVOKED, TALK
from turn.test_edges_of_limits import TASK, ended, reported
from turn.test_learned_room import ODD, UNKNOWN
from turn.test_room import ROOMY, failed
from turn.test_script_phase import SCRIPTED, program, script
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.limits import MaxRequests, MaxSteps
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.events import Command, Event, Interrupted, RequestFailed, RunScript, StepPrepared
from turnwise.turn.outcomes import WHY_INCOMPLETE, why_failed
from turnwise.turn.recovery_phase import under_cap
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.room import Room
from turnwise.turn.step_request import own_texts
from turnwise.vocab import Fault, FaultKind, Opaque, StopReason, Usage


@pytest.mark.promise("wait:cancel", "safe:bounded")
def test_sub_agents_that_were_at_work_stand_beside_those_that_had_ended() -> None:
    """Proves: an interruption adds its reports to those of the steps before."""
    config = replace(CONFIG, tools=(TASK, READ))
    at_work = replace(reported("b", requests=2), stop_reason=None)
    stop = Interrupted(kind="cancel", started=("b",), children=(at_work,))
    first = reported("a", requests=4)
    played = play([says(call("a", "task")), ended(first), says(call("b", "task")), stop], config=config)
    assert played.result.children == (first, at_work)


@pytest.mark.promise("wait:cancel")
def test_a_turn_that_was_cancelled_lacks_nothing_else() -> None:
    """Proves: the reason stands alone."""
    result = play([Interrupted(kind="cancel")]).result
    assert (result.stop_reason, result.why_incomplete) == (StopReason.CANCELLED, WHY_INCOMPLETE[StopReason.CANCELLED])


@pytest.mark.promise("cut:budget", "end:never-empty")
@pytest.mark.parametrize("half", ["half a summary", "", None])
def test_what_had_arrived_of_a_summary_stands_behind_why_the_turn_failed(half: str | None) -> None:
    """Proves: where the connection broke off with a failure that no request survives, and only if it says something."""
    partial = None if half is None else says(half)
    played = play([RequestFailed(number=1, fault=REVOKED, partial=partial)], config=ROOMY, earlier=TALK)
    text = played.result.text
    assert text.startswith(why_failed(REVOKED))
    assert ("half a summary" in text) is bool(half)


@pytest.mark.promise("cut:budget", "end:budget")
@pytest.mark.parametrize("steps", [1, 2])
def test_the_last_step_of_a_limit_may_ask_for_a_summary_first(steps: int) -> None:
    """Proves: a summary is no step of its own, so the limit of steps leaves room for it."""
    config = replace(ROOMY, limits=MaxSteps(steps))
    played = play([says("SUMMARY"), says("So.")], config=config, earlier=TALK)
    found = [(sent.purpose, sent.request.tool_choice) for sent in played.requests]
    assert found == [("compact", "none"), ("step", "none" if steps == 1 else "auto")]
    assert played.result.text == "So."


def test_an_answered_step_begins_all_counts_of_refusals_anew() -> None:
    """Proves: each of them by itself."""
    limits = ModelLimits(context_window_tokens=1_000)
    for room in (Room(corrections=2), Room(refusals=1), Room(unsaid=REVOKED), Room(unproven=limits)):
        assert room.begin_step() == Room()
    untouched = Room(largest_bytes=5, cap_tokens=7)
    assert untouched.begin_step() is untouched


def terms(limit_tokens: int | None) -> RequestTerms:
    return RequestTerms(purpose="step", forced=False, partial=False, tools=(), output=None, limit_tokens=limit_tokens)


@pytest.mark.parametrize(
    ("limit", "used", "judged", "cap"),
    [
        (None, 100, 100, 100),
        (500, 100, 100, 100),
        (100, 100, 100, 100),
        (50, 50, 50, 100),
        (None, 101, None, None),
        (500, 101, 500, None),
    ],
)
def test_a_response_is_judged_by_the_servers_own_cap_where_that_is_lower(
    limit: int | None, used: int, judged: int | None, cap: int | None
) -> None:
    """Proves: the lower of both counts, and more tokens show that the cap is none."""
    response = replace(says("So."), usage=Usage(input_tokens=10, output_tokens=used))
    asking, room = under_cap(Room(cap_tokens=100), response, asking=terms(limit), window=None)
    assert (asking, room) == (terms(judged), Room(cap_tokens=cap))


def test_a_program_calls_the_tools_of_its_step_alone() -> None:
    """Proves: what `prepare_step` left out is no function."""
    played_by: list[RunScript] = []
    drive = program()

    def answer(command: Command) -> Event:
        if isinstance(command, RunScript):
            played_by.append(command)
        return drive(command)

    config = replace(SCRIPTED, prepares_steps=True)
    prepared = StepPrepared(tools=("read", "script"))
    play([says(script("s")), says("So.")], config=config, prepare=[prepared], answer=answer)
    assert [[one.tool for one in command.functions] for command in played_by] == [["read"]]


def test_every_request_of_a_step_carries_what_the_user_adds_for_the_provider() -> None:
    """Proves: under the family that it is for; nothing where there is none."""
    for extra, carried in (('{"seed":1}', Opaque(CONFIG.family, '{"seed":1}')), ("", None)):
        played = play([says(call("a")), says("So.")], config=replace(CONFIG, extra=extra))
        assert [sent.request.extra for sent in played.requests] == [carried, carried]


def test_the_answer_has_our_own_words_beside_it_and_what_prepare_step_said() -> None:
    """Proves: nothing else is weighed."""
    assert own_texts(StepPrepared()) == ("", "", SYNTHESIS)
    assert own_texts(StepPrepared(instruction="In French."), note="Go on.") == ("Go on.", "In French.", SYNTHESIS)


@pytest.mark.promise("cut:budget", "end:budget")
def test_a_summary_that_is_refused_with_one_request_left_tells_of_the_room_for_the_answer() -> None:
    """Proves: the answer's request is one of the room that the refusal told of."""
    told = "prompt is too long: 12000 tokens > 9000 maximum"
    config = replace(ROOMY, limits=MaxRequests(2))
    played = play([failed(1, told), says("So.")], config=config, earlier=TALK)
    assert [sent.purpose for sent in played.requests] == ["compact", "step"]
    assert played.turn.known.config.model_limits.context_window_tokens == 9_000
    assert played.result.text == "So."


@pytest.mark.promise("cut:budget", "wait:retry")
def test_after_unknown_words_a_summary_that_fails_ends_the_turn_in_them_and_says_why_it_was_not_tried_again() -> None:
    """Proves: the words are those of the first refusal, and what was given up stands behind them."""
    busy = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503, retry_after_s=9_999.0)
    config = replace(UNKNOWN, retry=RetryPolicy())
    refused = failed(1, ODD, FaultKind.BAD_REQUEST)
    played = play([refused, RequestFailed(number=2, fault=busy)], config=config, earlier=TALK)
    assert [sent.purpose for sent in played.requests] == ["step", "compact"]
    said = played.result.fault
    assert said is not None and said.kind is FaultKind.BAD_REQUEST
    assert said.message == f"{ODD} It asks to wait 2.8 hours, and the bound for retries is 180 s."
