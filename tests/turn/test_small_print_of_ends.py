"""What a turn says where it ends early, and what it counts towards that (issue 18: mutants that no test noticed).

Events in, commands out.
"""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, call, play, says
from turn.test_continuing import ON, STORY, cut_by_limit
from turn.test_cost_so_far import BUSY, RESET, STAKE, TASK, counted, ends, limited
from turn.test_counts_begin_anew import BOUNDED, EATEN, TYPED
from turn.test_learned_room import SEARCH
from turnwise.rules.limits import Limit, MaxRequests, MaxSteps, MaxTokens, MaxWallTime
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.attempt import NO_ROOM_LEFT
from turnwise.turn.events import (
    FinishTurn,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.fault_counts import Words
from turnwise.turn.machine import Turn
from turnwise.turn.step import ATE_TWICE
from turnwise.turn.turn_spending import Purse
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, StopReason, Text, Usage

DENIED = Fault(kind=FaultKind.AUTH, message="no such key", status=401)
WORD = Message("user", (Text("Never mind, what is left?"),))


@pytest.mark.promise("end:never-empty")
def test_a_failure_keeps_its_last_letter_where_it_says_why_nothing_more_was_tried() -> None:
    """Proves: of the provider's words the full stop alone gives way to the sentence behind them."""
    busy = replace(BUSY, message="no machine for model X. ")
    config = replace(CONFIG, limits=MaxRequests(1), retry=RetryPolicy(attempts=2))
    result = play([RequestFailed(number=1, fault=busy)], config=config).result
    assert result.fault == replace(busy, message=f"no machine for model X. {NO_ROOM_LEFT}")
    assert result.stop_reason is StopReason.PROVIDER_FAILED


@pytest.mark.promise("end:budget", "wait:retry")
def test_a_retry_that_cannot_be_paid_for_is_not_waited_for() -> None:
    """Proves: another request of the model at hand has its price."""
    config = limited("0.015", retry=RetryPolicy(attempts=2))
    played = play([RequestFailed(number=1, fault=RESET)], config=config)
    assert ends(played) == (1, StopReason.PROVIDER_FAILED, Decimal("0.01"))
    assert played.result.fault == replace(RESET, message=f"reset. {NO_ROOM_LEFT}")


@pytest.mark.promise("bill:plans")
def test_an_error_with_a_count_of_tokens_is_not_free() -> None:
    """Proves: an error status alone says that nothing was generated; with usage beside it the request counts as projected."""
    partial = counted(says(), 1_000, 500)
    failed = RequestFailed(number=1, fault=BUSY, partial=partial, is_answer=True)
    paid = Purse().stakes(STAKE).saw(failed, searches=False)
    assert (paid.usd, paid.projected) == (Decimal("0.5"), 1)
    refused = Purse().stakes(STAKE).saw(replace(failed, partial=None), searches=False)
    assert (refused.usd, refused.projected) == (Decimal(0), 0)


@pytest.mark.promise("end:budget", "end:never-empty")
def test_reasoning_that_eats_the_limits_behind_a_pause_leaves_our_own_answer() -> None:
    """Proves: nothing is left for a request, so what the model had said before it paused is told."""
    paused = says("First,", SEARCH, finish=FinishReason.PAUSE)
    eaten = replace(EATEN, usage=Usage(input_tokens=9_000, output_tokens=1_000, reasoning_tokens=1_000))
    config = replace(BOUNDED, **of_family("anthropic_messages"), limits=MaxTokens(9_000))
    result = play([replace(paused, usage=Usage(input_tokens=10, output_tokens=10)), eaten], config=config).result
    assert (result.requests, result.complete) == (2, False)
    assert result.text.startswith(ATE_TWICE) and "First," in result.text


@pytest.mark.promise("end:never-empty")
def test_an_answer_that_did_not_fit_is_not_told_once_the_user_asked_something_else() -> None:
    """Proves: it was an answer to what was asked before, so a failure behind the new words is told as one."""
    turn, command = Turn.start(TurnStarted(config=TYPED, input=(ASK,)))
    assert isinstance(command, SendRequest)
    command = turn.receive(ResponseReceived(number=1, response=says("no JSON")))
    assert turn.receive(MessageArrived(message=WORD)) is command
    command = turn.receive(ResponseReceived(number=2, response=says(call("a"))))
    assert isinstance(command, RunTools)
    command = turn.receive(ToolsFinished(results=()))
    assert isinstance(command, SendRequest) and command.request.messages[-1] == WORD
    end = turn.receive(RequestFailed(number=3, fault=DENIED))
    assert isinstance(end, FinishTurn)
    assert (end.result.stop_reason, end.result.origin) == (StopReason.PROVIDER_FAILED, "local")
    assert end.result.text.startswith("The provider failed (401), auth: no such key")


def test_a_model_that_said_nothing_has_said_an_empty_text() -> None:
    """Proves: white space alone is nothing, and of several texts the newest counts."""
    assert [Words().first(" \n"), Words(said="One.", unfit="Two.").first(""), Words().first("Three.")] == [
        "",
        "One.",
        "Three.",
    ]


@pytest.mark.promise("end:budget")
def test_a_sub_agent_is_held_by_the_limit_that_is_left_when_the_other_is_used_up() -> None:
    """Proves: with `&` the steps are used up by the step that comes after the call, so the requests decide for the child."""
    config = replace(CONFIG, tools=(TASK,), limits=MaxSteps(1) & MaxRequests(10))
    played = play([says(call("a", "task")), says("So.")], config=config)
    assert [plan.grant for (plan,) in played.ran] == [MaxRequests(8)]


@pytest.mark.promise("end:budget")
def test_a_sub_agent_of_the_last_step_but_one_has_its_share() -> None:
    """Proves: the step behind it is the answer's, which the limit of steps still allows."""
    config = replace(CONFIG, tools=(TASK,), limits=MaxSteps(2) | MaxRequests(10))
    played = play([says(call("a", "task")), says("So.")], config=config)
    assert [plan.grant for (plan,) in played.ran] == [MaxRequests(8)]


@pytest.mark.promise("end:budget")
def test_the_first_step_is_no_longer_than_a_step_has_ever_been() -> None:
    """Proves: no step was seen, so no time of one is kept, and a short limit of time leaves the first one free."""
    config = replace(CONFIG, limits=MaxWallTime(0.5))
    played = play([says("Done.")], config=config)
    assert (played.requests[0].request.tool_choice, played.result.complete) == ("auto", True)


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize(("own", "asked"), [(2_000, None), (3_500, 3_000)])
def test_a_limit_above_what_the_endpoint_asks_for_by_itself_stays_unsaid(own: int, asked: int | None) -> None:
    """Proves: the profile's own limit of output goes out where nobody set one, so 3,000 tokens forbid nothing above it."""
    limits: Limit = MaxTokens(4_000, "output")
    config = replace(CONFIG, room="off", default_max_tokens=own, limits=limits)
    assert play([says("Done.")], config=config).requests[0].request.settings.max_output_tokens == asked


@pytest.mark.promise("cut:budget")
def test_a_continuation_that_fails_for_good_says_why_nothing_more_was_tried() -> None:
    """Proves: the wait that the provider asks for is longer than the bound for retries, and the result's fault says so."""
    quota = Fault(kind=FaultKind.QUOTA, message="used up", status=429, retry_after_s=100_000.0, should_retry=True)
    config = replace(ON, retry=RetryPolicy(attempts=3))
    result = play([cut_by_limit(STORY), RequestFailed(number=2, fault=quota)], config=config).result
    assert result.fault is not None
    assert result.fault.message.startswith("used up. It asks to wait")
