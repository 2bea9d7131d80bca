"""Prices: hand-checked against published lists, exact, and unknown where nobody knows."""

import json
from decimal import Decimal
from typing import NamedTuple

import pytest

from tables import each
from turnwise.rules.pricing import (
    BROKE_OFF,
    ERRORS_UNSURE,
    NO_PRICE,
    NO_RATE,
    NO_USAGE_SAID,
    UNHEARD,
    Cost,
    OwnCost,
    Priced,
    PriceRow,
    TokenPrices,
    Unknown,
    add,
    price_of,
    sum_of,
)
from turnwise.vocab import Usage

# Read on 2026-11-22, where no other date is named. US dollars per million tokens.
ANTHROPIC = "https://platform.claude.com/docs/en/about-claude/pricing ('Model pricing', 'Long context pricing')"
OPENAI_54 = "https://developers.openai.com/api/docs/models/gpt-5.4 (prompts above 272K: 2x input, 1.5x output)"
OPENAI = "https://openai.com/api/pricing (gpt-5, gpt-5 mini, gpt-5.2, gpt-4o, gpt-4o mini, o3)"
GOOGLE = "https://ai.google.dev/gemini-api/docs/pricing (Gemini 2.5: prompts above 200k; output includes thinking)"
DEEPSEEK = "https://api-docs.deepseek.com/quick_start/pricing-details-usd (cache hit, cache miss, output; 2025)"
XAI = "https://docs.x.ai/developers/cost-tracking (cost_in_usd_ticks; 10^10 ticks are a dollar)"
OPENROUTER = "https://openrouter.ai/docs/use-cases/usage-accounting (usage.cost)"
PERPLEXITY = "https://docs.perplexity.ai/getting-started/pricing (tokens, and a fee per request; 2025-07-05)"
CHUTES = "https://github.com/anomalyco/opencode/issues/11782 (each request of a tool loop counts; 2026-02-02)"


def prices(*figures: str, write_1h: str | None = None, above: int = 0, reasoning: str | None = None) -> TokenPrices:
    """Input, output, cache read, cache write."""
    known = [Decimal(figure) for figure in figures]
    return TokenPrices(
        input=known[0],
        output=known[1],
        cache_read=known[2] if len(known) > 2 else None,
        cache_write=known[3] if len(known) > 3 else None,
        cache_write_1h=None if write_1h is None else Decimal(write_1h),
        reasoning=None if reasoning is None else Decimal(reasoning),
        above_tokens=above,
    )


def by_tokens(*tiers: TokenPrices, request_usd: str | None = None, own: OwnCost | None = None) -> PriceRow:
    request = None if request_usd is None else Decimal(request_usd)
    return PriceRow(plan="tokens", source="a list", tokens=tiers, request_usd=request, own_cost=own)


OPUS_45 = by_tokens(prices("5", "25", "0.50", "6.25", write_1h="10"))
OPUS_41 = by_tokens(prices("15", "75", "1.50", "18.75", write_1h="30"))
HAIKU_45 = by_tokens(prices("1", "5", "0.10", "1.25", write_1h="2"))
SONNET_45 = by_tokens(
    prices("3", "15", "0.30", "3.75", write_1h="6"),
    prices("6", "22.50", "0.60", "7.50", write_1h="12", above=200_000),
)
GPT_5 = by_tokens(prices("1.25", "10", "0.125"))
GPT_5_MINI = by_tokens(prices("0.25", "2", "0.025"))
GPT_52 = by_tokens(prices("1.75", "14", "0.175"))
GPT_54 = by_tokens(prices("2.50", "15", "0.25"), prices("5", "22.50", "0.50", above=272_000))
GPT_4O = by_tokens(prices("2.50", "10", "1.25"))
GPT_4O_MINI = by_tokens(prices("0.15", "0.60", "0.075"))
O3 = by_tokens(prices("2", "8", "0.50"))
GEMINI_25_PRO = by_tokens(prices("1.25", "10", "0.125"), prices("2.50", "15", "0.25", above=200_000))
GEMINI_25_FLASH = by_tokens(prices("0.30", "2.50", "0.03"))
FLASH_LITE = by_tokens(prices("0.10", "0.40", "0.01"))
DEEPSEEK_CHAT = by_tokens(prices("0.27", "1.10", "0.07"))
DEEPSEEK_REASONER = by_tokens(prices("0.55", "2.19", "0.14"))
SONAR_PRO = by_tokens(prices("3", "15"), request_usd="0.006")  # small search context
DEEP_RESEARCH = by_tokens(prices("2", "8", reasoning="3"))
TICKS = by_tokens(own=OwnCost(path=("cost_in_usd_ticks",), unit_usd=Decimal("1E-10")))
CREDITS = by_tokens(own=OwnCost(path=("cost",), also=("cost_details", "upstream_inference_cost"), also_if=("is_byok",)))
EACH_CENT = PriceRow(plan="request", source="mine", request_usd=Decimal("0.01"))


def used(input: int, output: int, *, read: int = 0, write: int = 0, reasoning: int = 0, said: object = None) -> Usage:
    return Usage(
        input_tokens=input,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
        provider="" if said is None else json.dumps(said),
    )


def hour(tokens: int, *, five_minutes: int = 0) -> object:
    return {"cache_creation": {"ephemeral_1h_input_tokens": tokens, "ephemeral_5m_input_tokens": five_minutes}}


class Case(NamedTuple):
    source: str
    row: PriceRow
    usage: Usage
    usd: str


# Each sum was done by hand; beside it stands how.
CASES = {
    "opus, plain": Case(ANTHROPIC, OPUS_45, used(1_000, 500), "0.0175"),  # 0.005 + 0.0125
    "opus, cache read": Case(ANTHROPIC, OPUS_45, used(100_000, 1_000, read=90_000), "0.12"),  # 0.05 + 0.045 + 0.025
    "opus, cache written": Case(ANTHROPIC, OPUS_45, used(100_000, 1_000, write=90_000), "0.6375"),  # 0.05+0.5625+0.025
    "opus, an hour": Case(
        ANTHROPIC,
        OPUS_45,
        used(100_000, 1_000, write=90_000, said=hour(90_000)),
        "0.975",  # 0.05 + 0.9 + 0.025
    ),
    "opus, both writes": Case(
        ANTHROPIC,
        OPUS_45,
        used(100_000, 0, write=90_000, said=hour(50_000, five_minutes=40_000)),
        "0.8",  # 0.05 + 40,000 x 6.25 = 0.25 + 50,000 x 10 = 0.5
    ),
    "opus 4.1, all kinds": Case(
        ANTHROPIC,
        OPUS_41,
        used(30_000, 2_000, read=10_000, write=10_000),
        "0.5025",  # 0.15 + 0.015 + 0.1875 + 0.15
    ),
    "haiku, plain": Case(ANTHROPIC, HAIKU_45, used(12_345, 678), "0.015735"),  # 0.012345 + 0.00339
    "haiku, cache": Case(ANTHROPIC, HAIKU_45, used(50_000, 100, read=49_000), "0.0064"),  # 0.001 + 0.0049 + 0.0005
    "sonnet, at the threshold": Case(ANTHROPIC, SONNET_45, used(200_000, 1_000), "0.615"),  # 0.6 + 0.015
    "sonnet, past it": Case(ANTHROPIC, SONNET_45, used(200_001, 1_000), "1.222506"),  # 1.200006 + 0.0225
    "sonnet, past it by its cache": Case(
        # cache reads count towards the threshold: 10,000 x 6 = 0.06, 300,000 x 0.6 = 0.18, 1,000 x 22.5 = 0.0225
        ANTHROPIC,
        SONNET_45,
        used(310_000, 1_000, read=300_000),
        "0.2625",
    ),
    "sonnet, long, an hour": Case(
        ANTHROPIC,
        SONNET_45,
        used(300_000, 0, write=100_000, said=hour(100_000)),
        "2.4",  # 1.2 + 1.2
    ),
    "gpt-5, plain": Case(OPENAI, GPT_5, used(1_000, 1_000), "0.01125"),  # 0.00125 + 0.01
    "gpt-5, cached": Case(OPENAI, GPT_5, used(10_000, 500, read=8_192), "0.008284"),  # 0.00226 + 0.001024 + 0.005
    "gpt-5, reasoning": Case(OPENAI, GPT_5, used(1_000, 5_000, reasoning=4_800), "0.05125"),  # 0.00125 + 0.05
    "gpt-5 mini": Case(OPENAI, GPT_5_MINI, used(1, 1), "0.00000225"),  # 0.00000025 + 0.000002
    "gpt-5.2": Case(OPENAI, GPT_52, used(20_000, 3_000, read=16_000), "0.0518"),  # 0.007 + 0.0028 + 0.042
    "gpt-5.4, short": Case(OPENAI_54, GPT_54, used(272_000, 1_000), "0.695"),  # 0.68 + 0.015
    "gpt-5.4, long": Case(OPENAI_54, GPT_54, used(272_001, 1_000), "1.382505"),  # 1.360005 + 0.0225
    "gpt-5.4, long, cached": Case(OPENAI_54, GPT_54, used(500_000, 0, read=400_000), "0.7"),  # 0.5 + 0.2
    "gpt-4o, cached": Case(OPENAI, GPT_4O, used(2_006, 300, read=1_920), "0.005615"),  # 0.000215 + 0.0024 + 0.003
    "gpt-4o mini": Case(OPENAI, GPT_4O_MINI, used(7, 3), "0.00000285"),  # 0.00000105 + 0.0000018
    "o3, reasoning": Case(OPENAI, O3, used(500, 2_000, reasoning=1_999), "0.017"),  # 0.001 + 0.016
    "gemini pro, at 200k": Case(GOOGLE, GEMINI_25_PRO, used(200_000, 100), "0.251"),  # 0.25 + 0.001
    "gemini pro, past 200k": Case(GOOGLE, GEMINI_25_PRO, used(300_000, 100), "0.7515"),  # 0.75 + 0.0015
    "gemini pro, thinking": Case(GOOGLE, GEMINI_25_PRO, used(1_000, 11_000, reasoning=10_000), "0.11125"),
    "gemini pro, cached": Case(
        GOOGLE,
        GEMINI_25_PRO,
        used(11_500, 1_000, read=10_000),
        "0.013125",  # 0.001875 + 0.00125 + 0.01
    ),
    "gemini flash": Case(GOOGLE, GEMINI_25_FLASH, used(10_000, 1_000, read=4_000), "0.00442"),  # 0.0018+0.00012+0.0025
    "flash-lite": Case(GOOGLE, FLASH_LITE, used(1_000, 10), "0.000104"),  # 0.0001 + 0.000004
    "deepseek, hits and misses": Case(DEEPSEEK, DEEPSEEK_CHAT, used(1_000, 100, read=640), "0.000252"),
    "deepseek, reasoner": Case(DEEPSEEK, DEEPSEEK_REASONER, used(1_000, 900, reasoning=800), "0.002521"),
    "perplexity, fee and tokens": Case(PERPLEXITY, SONAR_PRO, used(100, 200), "0.0093"),  # 0.0003 + 0.003 + 0.006
    "perplexity, reasoning apart": Case(
        PERPLEXITY,
        DEEP_RESEARCH,
        used(1_000, 3_000, reasoning=2_000),
        "0.016",  # 0.002 + 0.008 + 0.006
    ),
    "xai's own word": Case(XAI, TICKS, used(9, 9, said={"cost_in_usd_ticks": 37_756_000}), "0.0037756"),
    "openrouter's own word": Case(OPENROUTER, CREDITS, used(194, 2, said={"cost": 0.95}), "0.95"),
    "openrouter, own key": Case(
        OPENROUTER,
        CREDITS,
        used(194, 2, said={"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.95}}),
        "1",
    ),
    "openrouter, upstream is not added": Case(
        OPENROUTER,
        CREDITS,
        used(1, 1, said={"cost": 0.95, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.9}}),
        "0.95",
    ),
    "openrouter, a small float": Case(OPENROUTER, CREDITS, used(1, 1, said={"cost": 1.5e-07}), "0.00000015"),
    "chutes, by request": Case(CHUTES, EACH_CENT, used(900_000, 90_000), "0.01"),
}


@pytest.mark.promise("bill:plans")
@each("name", CASES)
def test_a_request_costs_what_the_published_list_says(name: str) -> None:
    """Exact to the last digit, against a sum done by hand; the list is named in the case."""
    case = CASES[name]
    price = price_of(case.usage, row=case.row)
    assert isinstance(price, Priced), price
    assert price.usd == Decimal(case.usd)
    assert price.by == ("provider" if case.row.own_cost else "table")


def test_there_are_enough_cases_with_their_sources() -> None:
    """Done when 2: at least thirty."""
    assert len(CASES) >= 30 and all(case.source.startswith("https://") for case in CASES.values())


@pytest.mark.promise("bill:plans")
@each(
    ("row", "fate", "billed", "expected"),
    [
        (EACH_CENT, "whole", 3, Priced(usd=Decimal("0.01"), by="table")),
        (EACH_CENT, "broken", 0, BROKE_OFF),
        (EACH_CENT, "unheard", 0, UNHEARD),
        (EACH_CENT, "refused", 0, ERRORS_UNSURE),
        (EACH_CENT, "empty", 0, ERRORS_UNSURE),
        (
            PriceRow(plan="request", source="", request_usd=Decimal("0.01"), bills_refused=False),
            "refused",
            0,
            Priced(usd=Decimal(0), by="table"),
        ),
        (
            PriceRow(plan="request", source="", request_usd=Decimal("0.01"), bills_refused=True),
            "refused",
            0,
            Priced(usd=Decimal("0.01"), by="table"),
        ),
        (PriceRow(plan="request", source=""), "whole", 0, NO_RATE),
        (
            PriceRow(plan="step", source="", step_usd=Decimal("0.02")),
            "whole",
            0,
            Priced(usd=Decimal("0.02"), by="table"),
        ),
        (PriceRow(plan="step", source="", step_usd=Decimal("0.02")), "whole", 1, Priced(usd=Decimal(0), by="table")),
        (PriceRow(plan="step", source="", step_usd=Decimal("0.02")), "refused", 0, Priced(usd=Decimal(0), by="table")),
        (PriceRow(plan="step", source="", step_usd=Decimal("0.02")), "empty", 0, Priced(usd=Decimal(0), by="table")),
        (PriceRow(plan="step", source="", step_usd=Decimal("0.02")), "broken", 0, BROKE_OFF),
        (PriceRow(plan="step", source="", step_usd=Decimal("0.02")), "broken", 1, Priced(usd=Decimal(0), by="table")),
        (PriceRow(plan="step", source=""), "whole", 0, NO_RATE),
        (PriceRow(plan="free", source=""), "broken", 0, Priced(usd=Decimal(0), by="table")),
        (GPT_5, "refused", 0, Priced(usd=Decimal(0), by="table")),
        (GPT_5, "broken", 0, BROKE_OFF),
        (GPT_5, "empty", 0, BROKE_OFF),
        (GPT_5, "whole", 0, NO_USAGE_SAID),
        (TICKS, "whole", 0, NO_USAGE_SAID),
        (None, "whole", 0, NO_PRICE),
        (None, "refused", 0, NO_PRICE),
    ],
)
def test_each_plan_bills_in_its_own_way(
    row: PriceRow | None, fate: str, billed: int, expected: Priced | Unknown
) -> None:
    """What a request costs of which the provider told no usage: what is not known is never 0."""
    assert price_of(None, row=row, fate=fate, billed_in_step=billed) == expected  # pyright: ignore[reportArgumentType]


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize(
    "said",
    [
        {"prompt_tokens_details": {"audio_tokens": 5}},
        {"completion_tokens_details": {"audio_tokens": 5}},
        {"server_tool_use": {"web_search_requests": 1}},
        {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}, {"modality": "AUDIO", "tokenCount": 9}]},
    ],
)
def test_what_is_billed_apart_makes_a_price_unknown(said: object) -> None:
    """Sound costs more than text, searches cost by the piece: a sum of text prices would be too low."""
    assert isinstance(price_of(used(10, 10, said=said), row=GPT_5), Unknown)


@each("cost", [-1, "x", True, None, [], 1e400, "NaN", "1e99", "1e-99", {"usd": 1}])
def test_a_providers_nonsense_is_no_price(cost: object) -> None:
    """A number that cannot be money is not added to the bill; where the row has token prices these hold."""
    usage = used(1_000, 1_000, said={"cost": cost})
    assert isinstance(price_of(usage, row=CREDITS), Unknown)
    both = PriceRow(plan="tokens", source="", tokens=GPT_5.tokens, own_cost=CREDITS.own_cost)
    price = price_of(usage, row=both)
    assert isinstance(price, Priced) and (price.usd, price.by) == (Decimal("0.01125"), "table")


def test_counts_that_do_not_add_up_have_no_price() -> None:
    """More tokens from the cache than there were, more reasoning than output: no figure is made of them."""
    assert isinstance(price_of(used(10, 10, read=11), row=GPT_5), Unknown)
    assert isinstance(price_of(used(10, 10, reasoning=11), row=GPT_5), Unknown)


@pytest.mark.parametrize(
    ("usage", "saved"),
    [
        (used(100_000, 1_000, read=90_000), "0.405"),  # 90,000 x (5 - 0.5)
        (used(100_000, 1_000, write=90_000), "-0.1125"),  # 90,000 x (5 - 6.25)
        (used(100_000, 1_000), "0"),
    ],
)
def test_what_a_cache_saved_is_told(usage: Usage, saved: str) -> None:
    """Against the same prompt without a cache; writing it costs more, and that is told too."""
    price = price_of(usage, row=OPUS_45)
    assert isinstance(price, Priced)
    assert price.cache_saved_usd == Decimal(saved)


@pytest.mark.promise("bill:plans")
def test_sums_are_exact_and_say_what_they_do_not_know() -> None:
    """A million tenths are 100,000; a dollar and 1e-30 keep their last digit, which 28 digits would round away."""
    assert sum_of([Decimal("0.1")] * 1_000_000) == Cost(usd=Decimal(100_000), requests=1_000_000)
    assert add(Decimal(10**12), Decimal("1E-30")) == Decimal("1000000000000.000000000000000000000000000001")
    partly = sum_of([Decimal(1), None, Decimal(2), None])
    assert partly == Cost(usd=Decimal(3), requests=4, unknown=2)
    assert partly.exact_usd is None and sum_of([]).exact_usd == 0


def test_a_cost_that_nobody_knows_does_not_read_as_nothing_spent() -> None:
    """Issue 15: `Cost(usd=Decimal('0'), requests=1, unknown=1)`. The field stays a Decimal; what is shown says it."""
    assert (
        repr(Cost(requests=1, unknown=1))
        == str(Cost(requests=1, unknown=1))
        == "Cost(usd=unknown, requests=1, unknown=1)"
    )
    assert repr(Cost(usd=Decimal("0.02"), requests=3, unknown=1)) == "Cost(usd=at least 0.02, requests=3, unknown=1)"
    assert repr(Cost(usd=Decimal("0.02"), requests=3)) == "Cost(usd=Decimal('0.02'), requests=3, unknown=0)"
    assert repr(Cost()) == "Cost(usd=Decimal('0'), requests=0, unknown=0)"
    assert Cost(requests=1, unknown=1).usd == 0
