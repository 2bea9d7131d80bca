"""What a prompt weighs and costs after refusals, with summaries in parts, at another model's price and in the next turn.

Mutants that no test noticed. Events in, commands out.
"""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, call, play, says
from turn.test_after_a_summary import TALK
from turn.test_learned_room import ODD, OVERFLOW, UNKNOWN, messages_of
from turn.test_pending_calls import WORD, handed_in
from turn.test_room import ROOMY, failed
from turnwise.errors import TurnwiseBug
from turnwise.rules.limits import MaxCost, MaxRequests
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import ModelLimits, message_bytes, prompt_capacity
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import Fallback
from turnwise.turn.events import (
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn, fold_session
from turnwise.vocab import Fault, FaultKind, Message, Settings, StopReason, Text, ToolResult, Usage

GONE = Fault(kind=FaultKind.NOT_FOUND, message="no such model", status=404)
GIVEN_WAY = Carried(
    messages=(ASK, Message("assistant", (Text("It is done."),))), call_ids=frozenset({"a"}), gave_way=True
)


def by_token(usd: int) -> PriceRow:
    return PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(usd), output=Decimal(usd)),))


@pytest.mark.promise("cut:budget")
def test_an_overflow_whose_figures_the_prompt_fits_exactly_makes_it_smaller() -> None:
    """Proves: a prompt that fits to the token by our guess was refused all the same, so the guess is wrong. The same prompt
    would be refused again."""
    turn, _ = Turn.start(TurnStarted(config=UNKNOWN, input=(ASK,)), earlier=messages_of(20_000, 4_000))
    before = turn.known.history.prompt.tokens
    windows = [ModelLimits(context_window_tokens=tokens) for tokens in range(before, 2 * before)]
    exact = next(limits for limits in windows if prompt_capacity(limits, settings=Settings()) == before)
    told = f"This model's maximum context length is {exact.context_window_tokens} tokens."
    command = turn.receive(failed(1, told))
    assert isinstance(command, SendRequest) and command.purpose == "retry"
    assert turn.known.config.model_limits == exact
    assert turn.known.history.prompt.tokens < before * 9 // 10


@pytest.mark.promise("cut:budget")
def test_words_that_nobody_knows_are_no_overflow_of_a_prompt_that_went_through() -> None:
    """Proves: a prompt that is no larger than one that was answered was not refused for its size."""
    answered = replace(says(""), usage=Usage(input_tokens=8_000, output_tokens=1))
    odd = failed(2, ODD, FaultKind.BAD_REQUEST)
    result = play([answered, odd], config=UNKNOWN, earlier=messages_of(20_000, 4_000)).result
    assert (result.stop_reason, result.fault) == (StopReason.PROVIDER_FAILED, odd.fault)


@pytest.mark.promise("cut:budget", "step:prefix-stable")
def test_a_summary_of_a_part_of_the_history_is_named_as_what_changed_the_prefix() -> None:
    """Proves: its request leaves out what it does not sum up, and the request behind it holds the summary instead."""
    played = play([failed(1, OVERFLOW), says("SUMMARY"), says("Done.")], config=UNKNOWN, earlier=TALK)
    assert [sent.purpose for sent in played.requests] == ["step", "compact", "retry"]
    assert played.result.prefix_changes == ("request 2: compaction", "request 3: compaction")


@pytest.mark.promise("wait:retry")
def test_a_summary_that_was_tried_in_vain_says_how_often() -> None:
    """Proves: the words stand behind the provider's, as for any request that was tried again."""
    spent = Fault(kind=FaultKind.QUOTA, message="spent", status=429, should_retry=True)
    script = [RequestFailed(number=number, fault=spent) for number in (1, 2)]
    config = replace(ROOMY, retry=RetryPolicy(attempts=2))
    played = play(script, config=config, earlier=TALK, answer=lambda _: WaitOver())
    assert [sent.purpose for sent in played.requests] == ["compact", "retry"]
    assert played.result.fault == replace(spent, message="spent. Tried 2 times over 0.0 s.")


@pytest.mark.promise("end:budget", "bill:plans")
@pytest.mark.parametrize(("usd", "models"), [("0.1", ["m"]), ("1", ["m", "dear"])])
def test_another_model_is_asked_where_the_limit_has_room_for_its_own_price(usd: str, models: list[str]) -> None:
    """Proves: a request to the fallback costs a thousand times as much as one to the model that failed."""
    limits = MaxCost(Decimal(usd))
    prices = {"m": by_token(1), "dear": by_token(1_000)}
    config = replace(CONFIG, limits=limits, prices=prices, fallbacks=(Fallback(model="dear"),))
    script = [RequestFailed(number=1, fault=GONE), says("So.")][: len(models)]
    played = play(script, config=config)
    assert [sent.request.model for sent in played.requests] == models
    assert played.result.text == "So." or played.result.stop_reason is StopReason.PROVIDER_FAILED


@pytest.mark.promise("wait:ask", "cut:budget")
def test_results_that_join_those_of_the_turn_before_weigh_with_them() -> None:
    """Proves: the message of all of them is another one than the turn before had weighed, and its weight is not taken for
    granted."""
    config = replace(ROOMY, limits=MaxRequests(9))
    calls = says(call("a"), call("c", "client", "{}"), call("d", "client", "{}"))
    first = play([calls], config=config, keeps_waiting=True)
    so_far = fold_session([first.events])
    second = TurnStarted(config=config, input=(handed_in("c"),), keeps_waiting=True)
    turn, ended = Turn.start(second, earlier=so_far.carried)
    assert isinstance(ended, FinishTurn) and ended.result.stop_reason is StopReason.WAITING
    carried = fold_session([first.events, [second]]).carried
    assert carried.left is not None and len(carried.left.sizes) == 3  # the results are weighed
    long = ToolResult(call_id="d", name="client", content=(Text("word " * 2_000),))
    third = TurnStarted(config=config, input=(Message("tool", (long,)), WORD), keeps_waiting=True)
    turn, command = Turn.start(third, earlier=carried)
    assert isinstance(command, SendRequest)
    history = turn.known.history
    assert [message.role for message in history.messages] == ["user", "assistant", "tool", "user"]
    assert history.sizes == [message_bytes(message) for message in history.messages]


@pytest.mark.promise("step:history-healed")
def test_an_id_of_a_call_that_gave_way_is_not_used_again_by_another_model() -> None:
    """Proves: the session has used it, though no message holds it any more and all messages are healed anew."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)), earlier=GIVEN_WAY)
    command = turn.receive(ResponseReceived(number=1, response=says(call("a"), call("b"))))
    assert isinstance(command, RunTools)
    first, second = [plan.call.id for plan in command.calls]
    assert first != "a" and second == "b"


@pytest.mark.promise("wait:retry")
def test_a_failure_of_another_request_than_the_one_at_hand_is_a_bug_and_changes_nothing() -> None:
    """Proves: as for a response. The failure of the request at hand is taken afterwards."""
    turn, command = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    with pytest.raises(TurnwiseBug, match="request 2"):
        turn.receive(RequestFailed(number=2, fault=GONE, at_s=5.0))
    assert (turn.at_hand, turn.known.spending.pacing.at_s) == (command, 0.0)
    ended = turn.receive(RequestFailed(number=1, fault=GONE))
    assert isinstance(ended, FinishTurn) and ended.result.fault == GONE
