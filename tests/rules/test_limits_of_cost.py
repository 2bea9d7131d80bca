"""A limit of cost: what is projected, how it composes, and that it is overshot by the last response alone."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.errors import CallerError
from turnwise.rules.limits import (
    ANSWER_TOKENS,
    Limit,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    Spent,
    binding,
    counts_cost,
    fault_of_limit,
    forecast,
    is_over,
    most_usd,
    output_tokens_left,
    pace,
    said,
    stop_reason,
)
from turnwise.rules.pricing import (
    ZERO,
    Priced,
    PriceRow,
    TokenPrices,
    add,
    can_project,
    output_tokens_for,
    price_of,
    projected_usd,
)
from turnwise.rules.reservations import NOTHING_LEFT, Share, share_of
from turnwise.vocab import StopReason, Usage

# 2 and 10 dollars a million: $0.001 is 500 tokens of prompt, or 100 of output
ROW = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(2), output=Decimal(10)),))
BY_REQUEST = PriceRow(plan="request", source="test", request_usd=Decimal("0.01"))
BY_STEP = PriceRow(plan="step", source="test", step_usd=Decimal("0.02"))
FREE = PriceRow(plan="free", source="test")


def usd(text: str) -> MaxCost:
    return MaxCost(Decimal(text))


amounts = st.decimals(0, 50, places=6)
tiers = st.builds(
    TokenPrices,
    input=amounts,
    output=amounts,
    cache_read=st.none() | amounts,
    cache_write=st.none() | amounts,
    reasoning=st.none() | amounts,
    above_tokens=st.integers(0, 5_000),
)
rows = st.one_of(
    st.builds(
        PriceRow,
        plan=st.just("tokens"),
        source=st.just("drawn"),
        tokens=st.lists(tiers, min_size=1, max_size=3).map(
            lambda found: tuple(sorted(found, key=lambda tier: tier.above_tokens))
        ),
        request_usd=st.none() | amounts,
    ),
    st.builds(PriceRow, plan=st.just("request"), source=st.just("drawn"), request_usd=amounts),
    st.builds(PriceRow, plan=st.just("step"), source=st.just("drawn"), step_usd=amounts),
    st.just(FREE),
)
usages = st.builds(
    lambda plain, output, reasoning, read, write: Usage(
        input_tokens=plain + read + write,
        output_tokens=output + reasoning,
        reasoning_tokens=reasoning,
        cache_read_tokens=read,
        cache_write_tokens=write,
    ),
    *[st.integers(0, 4_000)] * 5,
)


@given(row=rows, usage=usages, billed=st.booleans())
def test_no_request_costs_more_than_was_projected(row: PriceRow, usage: Usage, billed: bool) -> None:
    """Proves: with the tokens foreseen rightly, the ledger's price of it is at most the projection, in every plan."""
    priced = price_of(usage, row=row, billed_in_step=int(billed))
    assert isinstance(priced, Priced)
    foreseen = projected_usd(row, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, is_billed=billed)
    assert priced.usd <= foreseen


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(300))
@given(
    row=rows,
    limit=st.decimals(Decimal("0.000001"), 2, places=6).map(MaxCost),
    first=st.integers(0, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 3_000)), min_size=1, max_size=25),
)
def test_a_limit_of_cost_is_overshot_by_the_last_response_alone(
    row: PriceRow, limit: MaxCost, first: int, steps: list[tuple[int, int]]
) -> None:
    """Proves: whatever models give and tools bring, each request's prompt was paid for, so what is over the limit is the
    output of one request, and nothing is sent after it. A response that keeps to its bound breaks nothing."""
    spent, prompt, longest = Spent(), first, 0
    for output, brought in steps:
        coming = forecast(prompt_tokens=prompt, longest_output_tokens=longest, price=row)
        pace_now = pace(limit, spent=spent, forecast=coming)
        if pace_now == "stop":
            assert is_over(limit, spent=spent + coming.answer)
            return
        keep = ANSWER_TOKENS if pace_now == "go" else None
        left = output_tokens_left(limit, spent=spent, prompt_tokens=prompt, keep_tokens=keep, price=row)
        alone = projected_usd(row, input_tokens=prompt, output_tokens=0)
        whole = projected_usd(row, input_tokens=prompt, output_tokens=output)
        assert add(spent.cost_usd, alone) <= limit.usd
        spent += Spent(steps=1, requests=1, input_tokens=prompt, output_tokens=output, cost_usd=whole)
        if left is None or output <= left:
            assert not is_over(limit, spent=spent)
        if pace_now == "answer":
            return
        prompt, longest = prompt + output + brought, max(longest, output)


@given(
    row=rows,
    left=st.decimals(0, 5, places=6),
    prompt=st.integers(0, 9_000),
    keep=st.none() | st.integers(0, 2_000),
    billed=st.booleans(),
)
def test_what_money_pays_for_is_the_longest_response(
    row: PriceRow, left: Decimal, prompt: int, keep: int | None, billed: bool
) -> None:
    """Proves: a token more would not be affordable, and what is said to be unbounded is."""
    found = output_tokens_for(left, row=row, prompt_tokens=prompt, keep_tokens=keep, is_billed=billed)

    def cost(tokens: int) -> Decimal:
        own = projected_usd(row, input_tokens=prompt, output_tokens=tokens, is_billed=billed)
        after = ZERO if keep is None else projected_usd(row, input_tokens=prompt + tokens, output_tokens=keep)
        return add(own, after)

    if found is None:
        assert cost(10**6) <= left
    else:
        assert cost(found) <= left or found == 0
        assert cost(found + 1) > left


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("limit", "row", "go", "answer"),
    [
        (usd("0.03"), ROW, Decimal("0.009488"), Decimal("0.025184")),
        (usd("0.05"), BY_REQUEST, Decimal("0.03"), Decimal("0.04")),
        (usd("0.05"), BY_STEP, Decimal("0.01"), Decimal("0.03")),
        (usd("0.05") | MaxRequests(1), FREE, None, Decimal("0.05")),
    ],
)
def test_the_last_affordable_request_is_the_answer(
    limit: Limit, row: PriceRow, go: Decimal | None, answer: Decimal
) -> None:
    """Proves: up to what was spent a step goes, then the answer alone, then nothing; by tokens, by request, by step, free."""
    coming = forecast(prompt_tokens=1_000, longest_output_tokens=500, price=row)
    fine = Decimal("0.0001")

    def at(cost: Decimal) -> str:
        return pace(limit, spent=Spent(cost_usd=cost), forecast=coming)

    if go:
        assert (at(go - fine), at(go + fine)) == ("go", "answer")
    if answer:
        assert (at(answer - fine), at(answer + fine)) == ("answer", "stop")
    held = binding(limit, spent=Spent(cost_usd=answer), forecast=coming)
    assert held is not None and stop_reason(held) is StopReason.BUDGET


def test_a_step_that_is_billed_already_costs_nothing_more() -> None:
    """Proves: by step, a second request of the step is free and the answer after it is not."""
    assert forecast(prompt_tokens=1, longest_output_tokens=1, price=BY_STEP, is_billed=True) == msgspec.structs.replace(
        forecast(prompt_tokens=1, longest_output_tokens=1),
        answer_after=msgspec.structs.replace(
            forecast(prompt_tokens=1, longest_output_tokens=1).answer_after, cost_usd=Decimal("0.02")
        ),
    )


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(("prompt_tokens", "input_usd"), [(2_439, 1), (2_440, 20), (3_000, 20), (3_001, 20)])
def test_a_guess_near_a_threshold_has_the_dearer_price(prompt_tokens: int, input_usd: int) -> None:
    """An eighth and 256 tokens below it: what a guess may be short by."""
    cheap = TokenPrices(input=Decimal(1), output=Decimal(4))
    dear = TokenPrices(input=Decimal(20), output=Decimal(80), above_tokens=3_000)
    row = PriceRow(plan="tokens", source="test", tokens=(cheap, dear))
    projected = projected_usd(row, input_tokens=prompt_tokens, output_tokens=0)
    assert projected == Decimal(prompt_tokens * input_usd) / 1_000_000


def test_a_row_that_says_no_price_beforehand_projects_nothing() -> None:
    """Proves: a plan without its rate, and a provider's own cost alone, hold no limit."""
    assert [can_project(row) for row in (ROW, BY_REQUEST, BY_STEP, FREE)] == [True] * 4
    for plan in ("tokens", "request", "step"):
        assert not can_project(PriceRow(plan=plan, source="nobody"))


@pytest.mark.promise("end:budget")
def test_a_share_of_the_money_is_rounded_down() -> None:
    """Proves: children that run together have no more than the whole, to the last digit, and none begins with nothing."""
    share = share_of(usd("1.00"), spent=Spent(cost_usd=Decimal("0.9")), among=3)
    assert share == Share(usd("0.033333333333"))
    assert share_of(usd("1"), spent=Spent(cost_usd=Decimal("1")), among=1) == NOTHING_LEFT
    both = share_of(usd("1") & MaxRequests(4), spent=Spent(cost_usd=Decimal("2"), requests=1), among=2)
    assert both == Share(MaxRequests(1))


def test_the_words_say_what_was_spent_and_what_was_guessed() -> None:
    """Proves: a request whose price nobody said is named as one."""
    spent = Spent(cost_usd=Decimal("0.4812"))
    assert said(usd("0.50"), spent=spent) == "The limit of $0.500 leaves no room for another step ($0.481 spent)."
    guessed = msgspec.structs.replace(spent, projected=1)
    assert said(usd("2"), spent=guessed) == (
        "The limit of $2.00 leaves no room for another step ($0.481 spent, 1 request of unknown price as projected)."
    )


def test_the_words_say_what_would_be_enough() -> None:
    """Proves: a figure to type, never less than the guess, and never one that is no more than the limit (from a newcomer's
    trial: `--max-cost 0.0001` said only that it is too little)."""
    wanted = Spent(cost_usd=Decimal("0.013312"), input_tokens=4_000, output_tokens=321)
    assert said(usd("0.0001"), spent=Spent(), wanted=wanted).endswith(" ($0.00 spent). $0.0140 would.")
    assert said(usd("0.0140"), spent=Spent(), wanted=wanted).endswith(" ($0.00 spent).")
    assert said(MaxTokens(100), spent=Spent(), wanted=wanted).endswith(" (0 used). 4,400 tokens would.")
    assert said(MaxTokens(100, "output"), spent=Spent(), wanted=wanted).endswith(" (0 used). 330 output tokens would.")


def test_a_limit_of_cost_is_data_and_a_decimal() -> None:
    """Proves: it comes back from the journal as it was; a float, and what is no amount, is the caller's mistake."""
    limit = usd("0.10") | MaxSteps(3) & usd("0.2")
    assert msgspec.json.decode(msgspec.json.encode(limit), type=Limit) == limit
    assert (counts_cost(limit), most_usd(limit)) == (True, Decimal("0.10"))
    assert (counts_cost(MaxSteps(1) | MaxTokens(2)), counts_cost(None), most_usd(None)) == (False, False, ZERO)
    with pytest.raises(CallerError, match=r'give `MaxCost\("0.5"\)`'):
        MaxCost(0.5)  # pyright: ignore[reportArgumentType]
    assert fault_of_limit(usd("0")) == "`MaxCost(usd=Decimal('0'))` allows nothing at all"
    assert fault_of_limit(usd("NaN")) == "`MaxCost(usd=Decimal('NaN'))` is no amount of money"


@pytest.mark.promise("bill:plans")
def test_a_prompt_that_is_kept_for_an_hour_is_projected_at_that_price() -> None:
    """Anthropic: writing for an hour costs twice the input, for five minutes 1.25 of it. What is asked for is foreseen, in each
    tier, and counted as that where usage tells no time (a gateway's)."""
    low = TokenPrices(
        input=Decimal(3),
        output=Decimal(15),
        cache_write=Decimal("3.75"),
        cache_write_1h=Decimal(6),
        cache_read=Decimal(0),
    )
    high = msgspec.structs.replace(low, above_tokens=200_000, cache_write_1h=Decimal(12))
    row = PriceRow(plan="tokens", source="test", tokens=(low, high))
    hour = msgspec.structs.replace(row, asks_hour=True)
    for tokens, price in ((100_000, Decimal(6)), (400_000, Decimal(12))):
        projected = projected_usd(hour, input_tokens=tokens, output_tokens=0)
        assert projected == price * tokens / 1_000_000
        assert projected_usd(row, input_tokens=tokens, output_tokens=0) < projected
        usage = Usage(input_tokens=tokens, cache_write_tokens=tokens)
        paid = price_of(usage, row=hour)
        assert isinstance(paid, Priced)
        assert paid.usd == projected
