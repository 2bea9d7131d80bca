"""What a request will cost at most, before it is sent: what limits of cost decide by.

The prompt is weighed at the dearest price that it can have (a cache may be written and need not be hit), the output at the
dearer of text and reasoning. Where a cache is asked for that is kept for an hour (`PriceRow.asks_hour`), writing it counts, too.
A faster or nearer service that is asked for (`PriceRow.asked_terms`) counts at its own price.
"""

from decimal import Decimal

from turnwise.rules.pricing import EXACT, ZERO, PriceRow, TokenPrices, add, asked_times, tokens_usd

# Of a response; where as many can be paid for, money does not limit it.
UNBOUNDED_TOKENS = 10**9
# A prompt may be longer than it was guessed, and a threshold within that makes all its tokens dearer. The guess is the
# provider's own count of the last request, which is exact, with a third of a token a byte for what came since: dense text (code
# of numbers, CJK) has up to half a token a byte, and is seldom a quarter of a prompt.
GUESSED_SHORT = 8  # by at most one in so many
# Words of ours that a request alone has beside the history (to go on, to answer now).
OWN_WORDS_TOKENS = 256


def can_project(row: PriceRow) -> bool:
    """Whether the row says the price of a request that has not been made: one that only the provider prices does not. A
    project's is not believed: a folder from elsewhere could make a limit worthless."""
    if row.is_from_project:
        return False
    match row.plan:
        case "free":
            return True
        case "request":
            return row.request_usd is not None
        case "step":
            return row.step_usd is not None
        case "tokens":
            return bool(row.tokens)


def projected_usd(row: PriceRow, *, input_tokens: int, output_tokens: int, is_billed: bool = False) -> Decimal:
    """US dollars for a request like that; `is_billed`: a request of its step was billed before it. Never falls as tokens
    grow. The row is one that `can_project`."""
    match row.plan:
        case "free":
            return ZERO
        case "request":
            return row.request_usd or ZERO
        case "step":
            return ZERO if is_billed else row.step_usd or ZERO
        case "tokens":
            # A dearer tier below the one of this prompt would make a longer prompt cheaper: the dearest so far holds.
            reach = input_tokens + input_tokens // GUESSED_SHORT + OWN_WORDS_TOKENS
            tiers = [tier for tier in row.tokens if reach > tier.above_tokens] or row.tokens[:1]
            hour = row.asks_hour
            costs = [
                _tokens_usd(tier, input_tokens=input_tokens, output_tokens=output_tokens, asks_hour=hour)
                for tier in tiers
            ]
            dearest = EXACT.multiply(max(costs, default=ZERO), asked_times(row)) if row.asked_terms else max(costs)
            return add(dearest, row.request_usd or ZERO)


def output_tokens_for(
    usd: Decimal, *, row: PriceRow, prompt_tokens: int, keep_tokens: int | None, is_billed: bool = False
) -> int | None:
    """The longest response that `usd` pay for together with its prompt; None where money does not limit it. With
    `keep_tokens` an answer of so many has to be paid for after it, in a request whose prompt holds this one's and the
    response."""

    def is_affordable(tokens: int) -> bool:
        cost = projected_usd(row, input_tokens=prompt_tokens, output_tokens=tokens, is_billed=is_billed)
        if keep_tokens is not None:
            after = projected_usd(row, input_tokens=prompt_tokens + tokens, output_tokens=keep_tokens)
            cost = add(cost, after)
        return cost <= usd

    if is_affordable(UNBOUNDED_TOKENS):
        return None
    least, most = 0, UNBOUNDED_TOKENS  # by halves: prices have steps
    while least < most - 1:
        middle = (least + most) // 2
        least, most = (middle, most) if is_affordable(middle) else (least, middle)
    return least


def _tokens_usd(prices: TokenPrices, *, input_tokens: int, output_tokens: int, asks_hour: bool) -> Decimal:
    of_input = (prices.input, prices.cache_read, prices.cache_write, prices.cache_write_1h if asks_hour else None)
    dearest_input = max([one for one in of_input if one is not None])
    dearest_output = prices.output if prices.reasoning is None else max(prices.output, prices.reasoning)
    return tokens_usd((input_tokens, dearest_input), (output_tokens, dearest_output))
