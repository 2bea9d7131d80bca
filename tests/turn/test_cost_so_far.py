"""What a turn's requests and sub-agents count towards its limit of cost, event by event."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, READ, Played, call, play, says
from turnwise.errors import CallerError
from turnwise.rules.limits import Limit, MaxCost, MaxRequests, Spent
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import ChildReport, Fallback, TurnConfig
from turnwise.turn.events import Interrupted, RequestFailed, ResponseReceived, StepPrepared, ToolsFinished, WaitOver
from turnwise.turn.machine import replay
from turnwise.turn.turn_spending import AtStake, Purse
from turnwise.vocab import Fault, FaultKind, FinishReason, Response, StopReason, Text, ToolResult, Usage

CENT = PriceRow(plan="request", source="test", request_usd=Decimal("0.01"))
STEP = PriceRow(plan="step", source="test", step_usd=Decimal("0.10"))
ROW = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(1), output=Decimal(10)),))
RESET = Fault(kind=FaultKind.DISCONNECTED, message="reset")
BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)
TASK = replace(READ, spec=replace(READ.spec, name="task"), child=True)


def limited(usd: str, row: PriceRow = CENT, *, beside: Limit | None = None, **more: object) -> TurnConfig:
    limit = MaxCost(Decimal(usd)) if beside is None else MaxCost(Decimal(usd)) | beside
    return replace(CONFIG, limits=limit, prices={CONFIG.model: row}, **more)


def counted(response: Response, input: int, output: int) -> Response:
    return replace(response, usage=Usage(input_tokens=input, output_tokens=output))


def ends(played: Played) -> tuple[int, StopReason, Decimal | None]:
    assert replay(played.events)[-1].result == played.result  # pyright: ignore[reportAttributeAccessIssue]
    return played.result.requests, played.result.stop_reason, played.result.charged_usd


@pytest.mark.promise("end:budget")
def test_the_last_request_that_can_be_paid_for_is_the_answer() -> None:
    """By request and by the tokens that the provider counts; the result carries the exact sum."""
    script = [says(call("a")), says(call("b")), says("So.")]
    assert ends(play(script, config=limited("0.039"))) == (3, StopReason.BUDGET, Decimal("0.03"))
    by_token = [counted(one, 1_000, 500) for one in script]
    assert ends(play(by_token, config=limited("0.028", ROW))) == (3, StopReason.BUDGET, Decimal("0.018"))


STAKE = AtStake(row=ROW, step=1, projected_usd=Decimal("0.5"))
FAILED = RequestFailed(number=1, fault=RESET)


@pytest.mark.promise("bill:plans")
def test_a_request_counts_what_is_known_of_it_or_as_it_was_projected() -> None:
    """Whole, refused, broken off with and without a count, counted by nobody, never sent, interrupted."""
    at_hand = Purse().stakes(STAKE)
    response = counted(says("x"), 100_000, 50_000)

    def after(event: ResponseReceived | RequestFailed | Interrupted) -> tuple[Decimal, int]:
        seen = at_hand.saw(event, searches=False)
        assert seen.at_stake is None and seen.saw(event, searches=False) == seen
        return seen.usd, seen.projected

    assert after(ResponseReceived(number=1, response=response)) == (Decimal("0.6"), 0)
    assert after(RequestFailed(number=1, fault=BUSY)) == (Decimal(0), 0)
    assert after(FAILED) == (Decimal("0.5"), 1)
    assert after(RequestFailed(number=1, fault=RESET, partial=response)) == (Decimal("0.6"), 1)
    assert after(ResponseReceived(number=1, response=says("x"))) == (Decimal("0.5"), 1)
    cut = replace(counted(says("x"), 10, 10), finish=FinishReason.CUT)
    assert after(ResponseReceived(number=1, response=cut)) == (Decimal("0.5"), 1)
    assert after(RequestFailed(number=1, fault=RESET, sent=False)) == (Decimal(0), 0)
    assert after(Interrupted(kind="cancel")) == (Decimal("0.5"), 1)
    assert Purse().saw(FAILED, searches=False) == Purse()


@pytest.mark.promise("bill:plans", "wait:retry")
def test_a_step_is_billed_once_however_often_its_request_is_sent() -> None:
    """Billed for what broke off; the retry is free, and a limit that has room for nothing else allows it."""
    purse = Purse().stakes(AtStake(row=STEP, step=1, projected_usd=Decimal("0.10"))).saw(FAILED, searches=False)
    assert (purse.usd, purse.is_billed(1), purse.is_billed(2)) == (Decimal("0.10"), True, False)
    assert not Purse().stakes(STAKE).saw(FAILED, searches=False).is_billed(1)  # by its tokens, not by the step
    config = limited("0.20", STEP, retry=RetryPolicy(attempts=3))
    script = [RequestFailed(number=1, fault=RESET), says(call("a")), says("So.")]
    played = play(script, config=config, answer=lambda _: WaitOver())
    assert ends(played) == (3, StopReason.BUDGET, Decimal("0.20"))


@pytest.mark.promise("end:budget", "wait:retry")
def test_a_fallback_counts_at_its_own_price() -> None:
    """It is ten times as dear, and what is left pays for its answer alone."""
    config = limited("0.12", fallbacks=(Fallback(model="dear"),), retry=RetryPolicy(attempts=1))
    config = replace(config, prices={**config.prices, "dear": replace(CENT, request_usd=Decimal("0.10"))})
    played = play([RequestFailed(number=1, fault=RESET), says("So.")], config=config)
    assert [sent.request.model for sent in played.requests] == [CONFIG.model, "dear"]
    assert played.requests[1].request.tool_choice == "none"
    assert ends(played) == (2, StopReason.BUDGET, Decimal("0.11"))


@pytest.mark.promise("end:budget")
def test_a_model_of_one_step_counts_at_the_price_that_came_with_it() -> None:
    """Too dear for a step, it is asked for the answer; too dear for that, it is not asked; without a price it is refused."""
    config = limited("0.05", prepares_steps=True)

    def prepared(usd: str | None) -> Played:
        row = None if usd is None else replace(CENT, request_usd=Decimal(usd))
        chosen = StepPrepared(model="other", price=row)
        script = [says(call("a")), *([says("So.")] if usd == "0.04" else [])]
        return play(script, config=config, prepare=[StepPrepared(), chosen])

    assert ends(prepared("0.04")) == (2, StopReason.BUDGET, Decimal("0.05"))
    assert ends(prepared("0.05")) == (1, StopReason.BUDGET, Decimal("0.01"))
    assert "The limit of $0.0500 leaves no room for another step ($0.0100 spent)." in prepared("0.05").result.text
    with pytest.raises(CallerError, match="`other`"):
        prepared(None)


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(("charged", "left"), [(Decimal("0.02"), 4), (Decimal("0.05"), 1), (None, 1)])
def test_what_a_sub_agent_spent_is_spent_and_an_unknown_sum_is_its_share(charged: Decimal | None, left: int) -> None:
    """Of $0.07 one cent has gone and one is kept: the share is 5. A child of unknown cost leaves the answer alone."""
    config = limited("0.07", tools=(TASK, READ))
    result = ToolResult(call_id="a", name="task", content=(Text("done"),))
    report = ChildReport(call_id="a", session_id="s", stop_reason=None, charged_usd=charged)
    again = [says(call(f"b{number}")) for number in range(left - 1)]
    script = [says(call("a", "task")), ToolsFinished(results=(result,), children=(report,)), *again, says("So.")]
    played = play(script, config=config)
    assert played.ran[0][0].grant == MaxCost(Decimal("0.05"))
    assert (played.result.requests, played.result.stop_reason) == (1 + left, StopReason.BUDGET)


@pytest.mark.promise("end:budget", "bill:plans")
def test_the_requests_of_sub_agents_that_count_as_projected_are_said_too() -> None:
    """What has no book of its own goes up the tree as one value: to the words of the turn, and to its own report."""
    config = limited("0.03", tools=(TASK, READ))
    result = ToolResult(call_id="a", name="task", content=(Text("done"),))
    report = ChildReport(
        call_id="a",
        session_id="s",
        stop_reason=StopReason.ANSWERED,
        charged_usd=Decimal("0.03"),
        also_spent=Spent(projected=2),
    )
    played = play([says(call("a", "task")), ToolsFinished(results=(result,), children=(report,))], config=config)
    assert "($0.0400 spent, 2 requests of unknown price as projected)" in played.result.text
    assert played.result.also_spent == Spent(projected=2)


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize("prices", [{}, {CONFIG.model: PriceRow(plan="tokens", source="the provider itself")}])
def test_a_limit_of_cost_without_a_price_is_refused(prices: dict[str, PriceRow]) -> None:
    """However deep it stands in the limits, and before anything is sent."""
    config = replace(CONFIG, limits=MaxRequests(3) & MaxCost(Decimal(1)), prices=prices)
    with pytest.raises(CallerError, match="cannot hold: nobody knows beforehand"):
        play([], config=config)
