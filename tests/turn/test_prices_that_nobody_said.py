"""What counts towards a limit of cost where nobody said the price, and where nothing left (issue 18: mutants that no test
noticed). Events in, results out."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import call, play, says
from turn.test_purse import CENT, RESET, ROW, counted, limited
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
