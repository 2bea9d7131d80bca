"""What is left of a cut, paused or waiting response when the turn cannot go on with it (issue 18: mutants that no test noticed).

Events in, commands out.
"""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import ASK, CONFIG, call, cut, play, results_in, says
from turn.test_cost_so_far import ROW
from turn.test_pending_calls import PENDING, handed_in, play_started
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.limits import MaxCost, MaxWallTime, Spent
from turnwise.turn.events import HookOutcome, HooksRan, RequestFailed, ResponseReceived, SendRequest, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Message,
    ProviderItem,
    Settings,
    StopReason,
    Text,
    Usage,
)

LONG = '{"path":"' + "".join([f"{number:04} " for number in range(60)])
CUT_CALL = "Not run: the output limit cut this response, and the turn ended while the model continued it."


@pytest.mark.promise("step:every-call-answered", "cut:continued")
@pytest.mark.parametrize("kind", [FaultKind.AUTH, FaultKind.QUOTA, FaultKind.NOT_FOUND])
def test_a_failure_that_no_request_survives_leaves_the_cut_response_as_far_as_it_came(kind: FaultKind) -> None:
    """Proves: its text and its call stand in the history, the call with a result; nothing more is asked."""
    first = says("I write.", cut("a", LONG), finish=FinishReason.LENGTH)
    fault = Fault(kind=kind, message="no", status=401)
    played = play([first, RequestFailed(number=2, fault=fault)], config=replace(CONFIG, recover="continue"))
    result = played.result
    assert [sent.purpose for sent in played.requests] == ["step", "continue"]
    assert (result.stop_reason, result.complete, result.fault) == (StopReason.PROVIDER_FAILED, False, fault)
    assert result.messages[1].parts == (Text("I write."), call("a", arguments="{}"))
    assert results_in(result.messages) == {"a": CUT_CALL}
    assert result.text.endswith("The model had said:\nI write.")


@pytest.mark.promise("end:budget")
def test_a_pause_before_an_answer_that_may_come_too_late_keeps_its_text_only() -> None:
    """Proves: where only time stands against the answer it is still asked for, and nothing of the provider's is left open."""
    search = ProviderItem("anthropic_messages", "server_tool_use", '{"type":"server_tool_use"}')
    config = replace(CONFIG, **of_family("anthropic_messages"), limits=MaxWallTime(15))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    paused = says("Looking.", search, finish=FinishReason.PAUSE)
    command = turn.receive(ResponseReceived(number=1, response=paused, at_s=10.0))
    assert isinstance(command, SendRequest) and command.request.tool_choice == "none"
    assert command.request.messages == (
        ASK,
        Message("assistant", (Text("Looking."),)),
        Message("user", (Text(SYNTHESIS),)),
    )


@pytest.mark.promise("wait:ask")
def test_a_run_that_only_waits_on_says_nothing() -> None:
    """Proves: of calls that an earlier run left the model has said nothing in this one."""
    answers = TurnStarted(config=CONFIG, input=(handed_in("c"),), history=PENDING, keeps_waiting=True)
    result = play_started(answers).result
    assert (result.text, result.stop_reason, result.requests) == ("", StopReason.WAITING, 0)
    assert [one.id for one in result.pending] == ["a"]


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize("searched", [True, False])
def test_a_search_of_the_providers_own_makes_a_price_unknown(searched: bool) -> None:
    """Proves: its tokens are known, and what the search costs is not: the request counts as projected, if that is more."""
    item = ProviderItem("openai_responses", "web_search_call", '{"type":"web_search_call"}')
    config = replace(CONFIG, limits=MaxCost(Decimal(1)), prices={"m": ROW})
    parts = (item, "Found.") if searched else ("Found.",)
    answer = replace(says(*parts), usage=Usage(input_tokens=10, output_tokens=10))
    result = play([answer], config=config).result
    assert result.also_spent == Spent(projected=int(searched))
    assert result.charged_usd is not None and (result.charged_usd > Decimal("0.005")) is searched
    assert searched or result.charged_usd == Decimal("0.00011")


@pytest.mark.promise("step:every-call-answered", "cut:continued")
def test_a_hook_that_stops_a_continuation_leaves_the_cut_response_as_far_as_it_came() -> None:
    """Proves: the turn ends there, and its history holds what the model had said, the call with a result."""
    first = says("I write.", cut("a", LONG), finish=FinishReason.LENGTH)
    denied = HooksRan(outcomes=(HookOutcome(by="guard", denied="enough"),))
    coming = [HooksRan(), denied]
    config = replace(CONFIG, recover="continue", hooks=("before_request",))
    result = play([first], config=config, answer=lambda _: coming.pop(0)).result
    assert result.messages[1].parts == (Text("I write."), call("a", arguments="{}"))
    assert list(results_in(result.messages)) == ["a"]
    assert (result.stop_reason, result.requests) == (StopReason.CANCELLED, 1)


def test_what_went_into_continuations_is_counted_apart() -> None:
    """Proves: the tokens of a continuation are in the usage and in that of recovery, those of its step in the first alone."""
    first = replace(says(cut("a", LONG), finish=FinishReason.LENGTH), usage=Usage(input_tokens=7, output_tokens=5))
    more = replace(says('0059 "}'), usage=Usage(input_tokens=11, output_tokens=3))
    done = replace(says("Done."), usage=Usage(input_tokens=1, output_tokens=1))
    result = play([first, more, done], config=replace(CONFIG, recover="continue")).result
    assert result.requests_by_purpose == {"step": 2, "continue": 1}
    assert result.recovery_usage == Usage(input_tokens=11, output_tokens=3)
    assert result.usage == Usage(input_tokens=19, output_tokens=9)


def test_where_room_is_off_a_refusal_teaches_nothing() -> None:
    """Proves: the provider's words stand, and no other request is made."""
    told = "max_tokens: 4000 > 2048, which is the maximum allowed number of output tokens for m"
    refused = RequestFailed(number=1, fault=Fault(kind=FaultKind.BAD_REQUEST, message=told, status=400))
    result = play([refused], config=replace(CONFIG, settings=Settings(max_output_tokens=4_000))).result
    assert (result.requests, result.stop_reason) == (1, StopReason.PROVIDER_FAILED)
