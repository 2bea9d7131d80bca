"""What was written to a provider's cache and never read, by counts alone (promise bill:cached, issue 17)."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.rules.pricing import CacheCounts, unread_tokens, unread_usd


def counts(*requests: tuple[str, int, int]) -> list[CacheCounts]:
    return [CacheCounts(session, "p:m", read, written) for session, read, written in requests]


@pytest.mark.promise("bill:cached")
@each(
    ("requests", "unread"),
    [
        ([("a", 0, 900)], [900]),
        ([("a", 0, 900), ("a", 900, 100), ("a", 1_000, 50)], [0, 0, 50]),
        # other tools for one step: what it wrote is lost, what stood before is read again
        ([("a", 0, 900), ("a", 0, 700), ("a", 900, 100)], [0, 700, 100]),
        # the time was over: the last write was never read, and all is written anew
        ([("a", 0, 900), ("a", 900, 100), ("a", 0, 1_100), ("a", 1_100, 9)], [0, 100, 0, 9]),
        # a summary: tools and system text (of the first write) are read, the messages behind them are not
        ([("a", 0, 900), ("a", 900, 600), ("a", 500, 90), ("a", 590, 10)], [0, 600, 0, 10]),
        # a sub-agent of the same kind reads the beginning that the first one wrote
        ([("a", 0, 900), ("b", 500, 400)], [400, 400]),
        # what is read was written before these requests
        ([("a", 5_000, 10)], [10]),
        # a provider that tells no writes loses none
        ([("a", 0, 0), ("a", 900, 0)], [0, 0]),
    ],
)
def test_a_write_counts_as_read_as_far_as_a_later_request_read_it(
    requests: list[tuple[str, int, int]], unread: list[int]
) -> None:
    assert unread_tokens(counts(*requests)) == unread


def test_another_model_reads_nothing_of_it() -> None:
    assert unread_tokens([CacheCounts("a", "p:m", 0, 900), CacheCounts("a", "p:n", 900, 0)]) == [900, 0]


def test_the_loss_is_the_share_of_what_writing_cost_more() -> None:
    assert unread_usd(Decimal("0.75"), unread=900, written=900) == Decimal("0.75")
    assert unread_usd(Decimal("0.75"), unread=300, written=900) == Decimal("0.25")
    assert unread_usd(Decimal(1), unread=1, written=3) == Decimal("0.333333333333")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50), st.integers(0, 50)), max_size=20))
def test_no_more_is_unread_than_was_written(requests: list[tuple[str, int, int]]) -> None:
    """Whatever a provider counts; and the last write of all is unread."""
    found = unread_tokens(counts(*requests))
    assert all(0 <= unread <= written for unread, (_, _, written) in zip(found, requests, strict=True))
    assert found[-1:] == [written for _, _, written in requests][-1:]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_a_history_that_only_grows_loses_its_last_write_alone(written: list[int]) -> None:
    requests = [("a", sum(written[:place]), size) for place, size in enumerate(written)]
    assert unread_tokens(counts(*requests)) == [0] * (len(written) - 1) + written[-1:]
