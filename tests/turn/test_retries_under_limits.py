"""What a failed request leaves of a limit decides how it is sent again: as it was, as the answer, to a smaller prompt, or not at
all (issue 18: lines that no test ran, mutants that none noticed). A provider bills what it breaks off, and timers are late."""

from itertools import pairwise
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tables import each
from turn.limited_world import READ_BEGUN, READ_REST
from turn.playing import ASK, CONFIG, call, cut, done, play, says
from turn.test_retrying import BUSY, waited
from turn.test_retrying import play as play_timed
from turn.test_room import ROOMY
from turnwise.rules.limits import Limit, MaxRequests, MaxTokens, MaxToolCalls, MaxWallTime
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import TurnResult
from turnwise.turn.events import (
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import why_failed
from turnwise.vocab import FinishReason, StopReason, Text, Usage

WIDE = replace(
    ROOMY,
    model_limits=ModelLimits(context_window_tokens=200_000, max_output_tokens=4_000),
    retry=RetryPolicy(attempts=5),
)
CALLS_STEPS = 4


class Sent(NamedTuple):
    """A request as it went out: `tokens` are those of its prompt."""

    purpose: str
    choice: object
    tokens: int

    @property
    def short(self) -> str:
        return f"{self.purpose} {self.choice}"


def against_failures(limit: Limit, *, fails: int, late_s: float = 0.0) -> tuple[list[Sent], list[float], TurnResult]:
    """Steps with a result of 20,000 bytes each. From the second request on so many fail and are billed; a request takes a second,
    and timers are late."""
    turn, command = Turn.start(TurnStarted(config=replace(WIDE, limits=limit), input=(ASK,)))
    at_s, left = 0.0, fails
    sent: list[Sent] = []
    waits: list[float] = []
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number, request=request, purpose=purpose):
                tokens = sum([message_bytes(one) for one in request.messages]) // 4
                sent.append(Sent(purpose, request.tool_choice, tokens))
                usage = Usage(input_tokens=tokens, output_tokens=20)
                at_s += 1.0
                if number > 1 and left:
                    left -= 1
                    partial = replace(says("x"), usage=usage)
                    command = turn.receive(
                        RequestFailed(number=number, fault=BUSY, partial=partial, at_s=at_s, jitter=0.5)
                    )
                    continue
                answers = request.tool_choice == "none" or number > CALLS_STEPS
                response = replace(says("Done.") if answers else says(call(f"c{number}")), usage=usage)
                command = turn.receive(ResponseReceived(number=number, response=response, at_s=at_s))
            case RunTools(calls=planned):
                results = [replace(done(plan), content=(Text("word " * 4_000),)) for plan in planned]
                command = turn.receive(ToolsFinished(results=tuple(results), at_s=at_s))
            case Wait(seconds=seconds):
                waits.append(seconds)
                at_s += seconds + late_s
                command = turn.receive(WaitOver(at_s=at_s))
            case _:
                raise AssertionError(command)
    return sent, waits, command.result


@pytest.mark.promise("end:budget", "wait:retry")
@each(
    ("tokens", "fails", "requests", "waits"),
    [
        (4_000, 1, ["step none", "retry none"], [0.375]),
        (8_500, 1, ["step none", "retry none <"], [0.375]),
        (11_500, 1, ["step none", "retry none"], [0.375]),
        (16_000, 1, ["step auto", "retry none"], [0.375]),
        (17_500, 1, ["step auto", "retry auto", "step none"], [0.375]),
        (4_000, 2, ["step none", "retry none", "retry none <"], [0.375, 0.75]),
        (8_500, 2, ["step none", "retry none <", "retry none <"], [0.375, 0.75]),
        (11_500, 2, ["step none", "retry none", "retry none <"], [0.375, 0.75]),
        (16_000, 2, ["step auto", "retry none", "retry none"], [0.375, 0.375]),
        (17_500, 2, ["step auto", "retry auto", "retry none"], [0.375, 0.75]),
        (22_000, 2, ["step auto", "retry auto", "retry auto", "step none <"], [0.375, 0.75]),
        (23_500, 2, ["step auto", "retry auto", "retry auto", "step none"], [0.375, 0.75]),
    ],
)
def test_attempts_that_are_billed_leave_the_answer_what_it_needs(
    tokens: int, fails: int, requests: list[str], waits: list[float]
) -> None:
    """Proves: the limit holds, the last request is the model's answer, and its prompt is made
    smaller (`<`) where a failure has taken the room for it."""
    sent, waits_seen, result = against_failures(MaxTokens(tokens), fails=fails)
    shown = [f"{one.short} <" if one.tokens < before.tokens - 100 else one.short for before, one in pairwise(sent)]
    assert (shown, waits_seen) == (requests, waits)
    assert (result.text, result.origin, result.stop_reason) == ("Done.", "model", StopReason.BUDGET)
    assert result.usage.input_tokens + result.usage.output_tokens <= tokens


@pytest.mark.promise("end:budget", "wait:retry")
@each(
    ("seconds", "late_s", "requests", "waits", "reason"),
    [
        (3.0, 0.0, ["step auto", "retry none"], [0.0], StopReason.TIME_LIMIT),
        (3.0, 2.0, ["step auto"], [0.0], StopReason.PROVIDER_FAILED),
        (4.0, 0.0, ["step auto", "retry none"], [0.375], StopReason.TIME_LIMIT),
        (4.0, 2.0, ["step auto"], [0.375], StopReason.PROVIDER_FAILED),
        (5.0, 0.0, ["step auto", "retry auto", "step none"], [0.375], StopReason.TIME_LIMIT),
        (5.0, 1.0, ["step auto", "retry none"], [0.375], StopReason.TIME_LIMIT),
        (8.0, 2.0, ["step auto", "retry none"], [0.375], StopReason.TIME_LIMIT),
        (20.0, 30.0, ["step auto"], [0.375], StopReason.PROVIDER_FAILED),
        (40.0, 30.0, ["step auto", "retry none"], [0.375], StopReason.TIME_LIMIT),
    ],
)
def test_a_late_timer_leaves_the_answer_or_the_failure(
    seconds: float, late_s: float, requests: list[str], waits: list[float], reason: StopReason
) -> None:
    """Proves: after the wait the step is judged anew: as it was, the answer alone, or the failure stands where time is up."""
    sent, seen, result = against_failures(MaxWallTime(seconds), fails=1, late_s=late_s)
    assert ([one.short for one in sent[1:]], seen) == (requests, waits)
    assert result.stop_reason is reason
    if reason is StopReason.PROVIDER_FAILED:
        assert result.text.startswith(why_failed(BUSY))
    else:
        assert (result.text, result.origin) == ("Done.", "model")


@pytest.mark.promise("wait:retry", "end:budget")
@pytest.mark.parametrize(("seconds", "wait_s"), [(9.5, 7.5), (10.0, 7.5), (30.0, 7.5)])
def test_a_wait_before_a_continuation_keeps_nothing_back_for_it(seconds: float, wait_s: float) -> None:
    """Proves: of a cut call. The time of the answer is kept by what the continuation may take, not a second time by its wait."""
    script = [says(cut("a", READ_BEGUN), finish=FinishReason.LENGTH), BUSY, says(READ_REST % "x"), says("Done.")]
    commands, _, _ = play_timed(script, limits=MaxWallTime(seconds), retry=RetryPolicy(base_s=10.0, cap_s=10.0))
    assert waited(commands) == [wait_s]


@pytest.mark.parametrize(
    ("limit", "ran"),
    [
        (MaxToolCalls(3) & MaxRequests(1), 3),
        (MaxToolCalls(5) & MaxRequests(1), 5),
        (MaxToolCalls(3) & MaxRequests(3), 6),
        (MaxToolCalls(3) | MaxRequests(9), 3),
        (MaxRequests(9), 6),
        (MaxToolCalls(9), 6),
    ],
)
def test_of_two_limits_that_stop_together_calls_count_once_the_other_is_over(limit: Limit, ran: int) -> None:
    """Proves: calls have places from the moment that they alone hold the turn back, and what ran before counts."""
    script = [says(call("a")), says(*[call(f"c{n}") for n in range(5)]), says("So.")]
    played = play(script, config=replace(CONFIG, limits=limit))
    assert sum([len(planned) for planned in played.ran]) == ran
    assert played.result.text == "So."
