"""What counts towards a limit of cost where nobody said the price, and where nothing left (issue 18: mutants that no test
noticed). Events in, results out."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import call, play, says
from turn.test_cost_so_far import CENT, RESET, ROW, STEP, counted, limited
from turnwise.turn.config import Fallback
from turnwise.turn.events import Interrupted, RequestFailed
from turnwise.vocab import FinishReason, Response

SPARES_REFUSED = replace(CENT, bills_refused=False)  # a plan by request that does not bill refused ones


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(
    "came", [replace(says("Half", finish=FinishReason.ERROR), fault=RESET), Interrupted(kind="cancel")]
)
def test_a_request_that_broke_off_is_no_refused_one(came: Response | Interrupted) -> None:
    """Proves: whether it is billed is not known, so it counts as it was projected, though a refusal would cost nothing."""
    result = play([came], config=limited("0.05", SPARES_REFUSED)).result
    assert (result.charged_usd, result.also_spent.projected) == (Decimal("0.01"), 1)


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(("extra", "projected"), [('{"web_search_options":{}}', 1), ('{"seed":1}', 0), ("", 0)])
def test_a_search_that_was_asked_for_makes_the_price_unknown(extra: str, projected: int) -> None:
    """Proves: it is billed beside the tokens, and the response need not tell of it."""
    played = play([counted(says("So."), 1_000, 100)], config=limited("0.50", ROW, extra=extra))
    assert played.result.also_spent.projected == projected
    charged = played.result.charged_usd
    assert charged is not None and (charged > Decimal("0.002")) is bool(projected)


@pytest.mark.promise("bill:plans", "bill:wire")
def test_a_request_that_never_left_takes_back_its_own_price_alone() -> None:
    """Proves: what the requests before it have cost stays spent."""
    unsent = RequestFailed(number=2, fault=RESET, sent=False)
    result = play([says(call("a")), unsent], config=limited("0.05")).result
    assert (result.requests, result.charged_usd) == (1, Decimal("0.01"))


@pytest.mark.promise("bill:plans")
def test_a_step_is_billed_by_its_plan_behind_a_request_of_another_plan() -> None:
    """Proves: a model that is billed by request has billed no step, so the one that takes over bills its own."""
    config = limited("0.50", CENT, fallbacks=(Fallback(model="other"),))
    config = replace(config, prices={**config.prices, "other": STEP})
    result = play([RequestFailed(number=1, fault=RESET), says("So.")], config=config).result
    assert (result.requests, result.charged_usd) == (2, Decimal("0.11"))


@pytest.mark.promise("bill:plans", "bill:wire")
def test_a_request_that_never_left_before_the_user_stopped_the_turn_costs_nothing() -> None:
    """Proves: one that may have left counts as it was projected, this one does not."""
    result = play([Interrupted(kind="cancel", sent=False)], config=limited("0.05")).result
    assert (result.requests, result.charged_usd, result.also_spent.projected) == (0, Decimal(0), 0)


@pytest.mark.promise("bill:plans", "end:budget")
def test_a_model_that_takes_over_in_a_billed_step_may_answer_as_long_as_it_likes() -> None:
    """Proves: the plan has billed the step, so this request costs nothing and what is left pays for the answer after it."""
    config = limited("0.25", STEP, fallbacks=(Fallback(model="other"),))
    config = replace(config, prices={**config.prices, "other": STEP})
    played = play([RequestFailed(number=1, fault=RESET), says("So.")], config=config)
    assert [sent.request.settings.max_output_tokens for sent in played.requests] == [None, None]
    assert (played.result.complete, played.result.charged_usd) == (True, Decimal("0.10"))
