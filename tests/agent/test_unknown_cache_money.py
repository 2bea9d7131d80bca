"""What caches saved and lost where nobody knows the price (promise bill:cached): unknown is never 0."""

from decimal import Decimal

import pytest

from agent.test_cached_runs import PRICES, agent_at, reading
from turnwise import Journal, Prices, read_prices
from turnwise.journal.ledger_queries import LedgerSpan, Total, sum_of_totals
from turnwise.lab import Lab
from turnwise.terminal.usage import json_of, lines_of
from turnwise.testing import FakeClock

NOBODY = Prices()
BY_REQUEST = Prices(user=read_prices({"*": {"request": "0.01"}}, named="the table", source="this test"))


async def total_of(*plans: Prices) -> Total:
    """Of one turn with each of these prices."""
    with Journal(None, clock=FakeClock()) as journal:
        for prices in plans:
            model = "anthropic:reads" if prices is PRICES else "anthropic_messages:reads"
            await agent_at(Lab([reading(2)]), journal=journal, prices=prices, model=model).run("Read.")
        total = sum_of_totals(journal.ledger.totals(LedgerSpan(), by="session"))
        assert total is not None
        (day,) = journal.ledger.totals(LedgerSpan(), by="day")
        assert (day.cache_saved_usd, day.cache_unread_usd) == (total.cache_saved_usd, total.cache_unread_usd)
        return total


@pytest.mark.promise("bill:cached")
async def test_money_of_caches_that_nobody_knows_is_null_and_never_0() -> None:
    total = await total_of(NOBODY)
    assert total.cache_unread_tokens > 100
    assert (total.cache_saved_usd, total.cache_unread_usd) == (None, None)
    shown = json_of(total)
    assert isinstance(shown, dict)
    assert (shown["cache_saved_usd"], shown["cache_unread_usd"]) == (None, None)
    assert not [line for line in lines_of(total) if "$0" in line]


async def test_what_is_known_of_it_is_summed() -> None:
    known, both = await total_of(PRICES), await total_of(PRICES, NOBODY)
    assert known.cache_unread_usd is not None and known.cache_unread_usd > 0
    assert (both.cache_saved_usd, both.cache_unread_usd) == (known.cache_saved_usd, known.cache_unread_usd)


async def test_a_plan_by_request_saves_and_loses_nothing_by_caches() -> None:
    total = await total_of(BY_REQUEST)
    assert (total.cache_saved_usd, total.cache_unread_usd) == (Decimal(0), Decimal(0))
