"""What a turn may spend: small limits that compose with `|` (either one stops) and `&` (only all together stop).

`pace` answers before each request whether it may be a step like any other, must be the answer because nothing more can be
afforded after it, or cannot be afforded at all (promise end:budget). What a request will cost is a forecast that comes in
as data, and so is the time; a limit is as exact as they are.
"""

from decimal import Decimal, InvalidOperation
from typing import Literal, assert_never, cast

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.pricing import ZERO, PriceRow, add, subtract, usd_said
from turnwise.rules.projection import output_tokens_for, projected_usd
from turnwise.vocab import StopReason, Usage

# Kept for the answer where nobody said how long it may get; a synthesis of a turn is a page or two.
ANSWER_TOKENS = 1_000
# Less is not worth a request: a paragraph. What lies between is for results that were longer than thought: the answer gets
# what they leave of ANSWER_TOKENS (`output_tokens_left`).
LEAST_ANSWER_TOKENS = 256
# Kept in the answer's prompt for what sub-agents bring, before they spend the rest: enough to quote them, and for our own words.
RESULT_TOKENS = 500
# Our own words at the end of the answer's request, which no history holds: that it is the last step, and why it is asked for
# once more (SYNTHESIS with EMPTY_AGAIN, three bytes a token).
ANSWER_WORDS_TOKENS = 128
# Kept in the prompt of the answer after a step for what that step brings: enough to quote some of it, cut short.
STEP_RESULT_TOKENS = 128
# Kept for the answer's request where none was timed yet.
ANSWER_S = 10.0
# "UTF-8 bytes / 3 for what was added since" the provider's own count (docs/architecture.md, tokens).
BYTES_A_TOKEN = 3

Pace = Literal["go", "answer", "stop"]


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn has spent, or what a request is likely to. `elapsed_s` is the wall clock's, tools and waits included.

    `cost_usd` counts where a limit of cost asks; of `projected` requests nobody said the price, and they are in it as they
    were projected, never as 0.
    """

    steps: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    elapsed_s: float = 0.0
    cost_usd: Decimal = ZERO
    projected: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            steps=self.steps + other.steps,
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            cost_usd=add(self.cost_usd, other.cost_usd),
            projected=self.projected + other.projected,
        )


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request costs if it is a step (its tools included), what an answer of the least length does now, and one
    of full length after that step."""

    step: Spent
    answer: Spent
    answer_after: Spent


def _either(self: "Limit", other: "Limit") -> "AnyOf":
    """Stops as soon as one of them does."""
    return AnyOf((*_members(self, of=AnyOf), *_members(other, of=AnyOf)))


def _both(self: "Limit", other: "Limit") -> "AllOf":
    """Stops once both of them do."""
    return AllOf((*_members(self, of=AllOf), *_members(other, of=AllOf)))


class MaxSteps(msgspec.Struct, frozen=True, tag="max_steps"):
    """At most so many model steps; the forced answer is the last of them (promise end:cap)."""

    steps: int
    __or__ = _either
    __and__ = _both


class MaxRequests(msgspec.Struct, frozen=True, tag="max_requests"):
    """At most so many HTTP requests: steps, retries, continuations, summaries and the answer."""

    requests: int
    __or__ = _either
    __and__ = _both


class MaxTokens(msgspec.Struct, frozen=True, tag="max_tokens", omit_defaults=True):
    """At most so many tokens over all requests. The prompt counts with each request, cached or not."""

    tokens: int
    counts: Literal["all", "input", "output"] = "all"
    __or__ = _either
    __and__ = _both


class MaxWallTime(msgspec.Struct, frozen=True, tag="max_wall_time"):
    """At most so many seconds since the turn began."""

    seconds: float
    __or__ = _either
    __and__ = _both


class MaxCost(msgspec.Struct, frozen=True, tag="max_cost"):
    """At most so many US dollars over all requests, sub-agents' included. The price of every model has to be known.

    An int and a text (`MaxCost("0.50")`) are taken as they are. Raises CallerError for a float, which is not the amount that was
    written, and for what is no amount.
    """

    usd: Decimal
    __or__ = _either
    __and__ = _both

    def __post_init__(self) -> None:
        given = cast("object", self.usd)
        if isinstance(given, Decimal):
            return
        if isinstance(given, float):
            raise CallerError(
                f'`MaxCost({given!r})`: a float is not exactly what was written; give `MaxCost("{given!r}")` or a Decimal'
            )
        try:
            amount = Decimal(given) if isinstance(given, str | int) and not isinstance(given, bool) else None
        except InvalidOperation:
            amount = None
        if amount is None:
            raise CallerError(
                f'`MaxCost({given!r})`: give the dollars as a Decimal, an int or a text, `MaxCost("0.50")`'
            )
        msgspec.structs.force_setattr(self, "usd", amount)


class AnyOf(msgspec.Struct, frozen=True, tag="any_of"):
    limits: "tuple[Limit, ...]"
    __or__ = _either
    __and__ = _both


class AllOf(msgspec.Struct, frozen=True, tag="all_of"):
    limits: "tuple[Limit, ...]"
    __or__ = _either
    __and__ = _both


Leaf = MaxSteps | MaxRequests | MaxTokens | MaxWallTime | MaxCost
Limit = Leaf | AnyOf | AllOf


def kept_s(left_s: float, *, longest_request_s: float) -> float:
    """The seconds of `left_s` that are kept for the answer's request, before something that may take all of them."""
    return max(longest_request_s, min(ANSWER_S, left_s / 10))


def is_over(limit: Limit, *, spent: Spent) -> bool:
    """Whether more was spent than `limit` allows. Once true it stays true, however much more is spent."""
    match limit:
        case MaxSteps(steps):
            return spent.steps > steps
        case MaxRequests(requests):
            return spent.requests > requests
        case MaxTokens():
            return _counted(limit, spent=spent) > limit.tokens
        case MaxWallTime(seconds):
            return spent.elapsed_s > seconds
        case MaxCost(usd):
            return spent.cost_usd > usd
        case AnyOf(limits):
            return any(is_over(one, spent=spent) for one in limits)
        case AllOf(limits):
            return bool(limits) and all(is_over(one, spent=spent) for one in limits)
        case _:
            assert_never(limit)


def pace(limit: Limit, *, spent: Spent, forecast: Forecast) -> Pace:
    """`go`: a step, and the answer after it, can be afforded. `answer`: only the answer can, so it is asked for now.
    `stop`: not even that, so it has to be ours."""
    if not is_over(limit, spent=spent + forecast.step + forecast.answer_after):
        return "go"
    return "stop" if is_over(limit, spent=spent + forecast.answer) else "answer"


def pace_of_steps(most: int, *, steps: int) -> Pace:
    """The `pace` of `MaxSteps(most)` after so many steps."""
    return "go" if steps + 2 <= most else "answer" if steps < most else "stop"


def binding(limit: Limit, *, spent: Spent, forecast: Forecast) -> Leaf | None:
    """The limit that stands against one more step; the first as written where several do. None: none does."""
    return _binding(limit, spent=spent + forecast.step + forecast.answer_after)


def stop_reason(limit: Leaf) -> StopReason:
    match limit:
        case MaxSteps():
            return StopReason.STEP_LIMIT
        case MaxRequests() | MaxTokens() | MaxCost():
            return StopReason.BUDGET
        case MaxWallTime():
            return StopReason.TIME_LIMIT


def said(limit: Leaf, *, spent: Spent) -> str:
    """What an answer of ours and the faces say: the limit, and what of it was spent."""
    match limit:
        case MaxSteps(steps):
            return f"The limit of {_count(steps, 'step')} was reached."
        case MaxRequests(requests):
            return f"The limit of {_count(requests, 'request')} was reached ({spent.requests:,} made)."
        case MaxTokens(tokens, counts):
            kind = "token" if counts == "all" else f"{counts} token"
            used = _counted(limit, spent=spent)
            return f"The limit of {_count(tokens, kind)} leaves no room for another step ({used:,} used)."
        case MaxWallTime(seconds):
            return f"The limit of {seconds:g} s leaves no time for another step ({spent.elapsed_s:.0f} s passed)."
        case MaxCost(usd):
            guessed = f", {_count(spent.projected, 'request')} of unknown price as projected" if spent.projected else ""
            return f"The limit of {usd_said(usd)} leaves no room for another step ({usd_said(spent.cost_usd)} spent{guessed})."


def output_tokens_left(
    limit: Limit,
    *,
    spent: Spent,
    prompt_tokens: int,
    keep_tokens: int | None = None,
    price: PriceRow | None = None,
    is_billed: bool = False,
) -> int | None:
    """What the next response may hold without breaking `limit`; None where nothing limits it. Never below 0.

    With `keep_tokens` an answer of so many has to be affordable after it, in a request whose prompt holds this one's and the
    response. `price` is the row of the model that is asked; `is_billed`: a request of its step was billed before it.
    """

    def left_by(one: Limit) -> int | None:
        return output_tokens_left(
            one,
            spent=spent,
            prompt_tokens=prompt_tokens,
            keep_tokens=keep_tokens,
            price=price,
            is_billed=is_billed,
        )

    match limit:
        case MaxTokens(tokens, counts):
            left = tokens - _counted(limit, spent=spent)
            return _response_tokens(left, counts=counts, prompt_tokens=prompt_tokens, keep_tokens=keep_tokens)
        case MaxCost(usd) if price is not None:
            return output_tokens_for(
                subtract(usd, spent.cost_usd),
                row=price,
                prompt_tokens=prompt_tokens,
                keep_tokens=keep_tokens,
                is_billed=is_billed,
            )
        case AnyOf(limits):
            return min([left for one in limits if (left := left_by(one)) is not None], default=None)
        case AllOf(limits):
            left = [left_by(one) for one in limits]
            # One that does not count tokens and is not over holds the stop back by itself.
            return max([one for one in left if one is not None], default=None) if None not in left else None
        case MaxSteps() | MaxRequests() | MaxWallTime() | MaxCost():
            return 0 if is_over(limit, spent=spent) else None
        case _:
            assert_never(limit)


def tokens_left(limit: MaxTokens, *, spent: Spent) -> int:
    """Of the kind that the limit counts. Never below 0."""
    return max(limit.tokens - _counted(limit, spent=spent), 0)


def counts_cost(limit: Limit | None) -> bool:
    """Whether a limit of cost is somewhere in it, so that prices have to be known."""
    return bool(_cost_limits(limit))


def no_price(model: str, *, profile: str, row: PriceRow | None = None) -> str:
    """Why a limit of cost cannot hold, and what to do. `row` is what there is."""
    if row is not None and row.is_from_project:
        return (
            f"a limit of cost cannot hold: what `{model}` costs at `{profile}` stands in the project's `{row.source}` alone, "
            "and a folder from elsewhere is not believed. Copy its row from there to [prices] in your own turnwise.toml if it "
            "is true, or limit requests or tokens instead"
        )
    return (
        f"a limit of cost cannot hold: nobody knows beforehand what `{model}` costs at `{profile}`. Give its price under "
        f'[prices] in turnwise.toml (`"{profile}:{model}" = {{ input = 1.25, output = 10 }}`, in Python `prices=`), or '
        "limit requests or tokens instead"
    )


def most_usd(limit: Limit | None) -> Decimal:
    """What may be spent by its limits of cost: the lowest of those of which each stops, the highest of those that stop together;
    0 where there is none."""
    match limit:
        case MaxCost(usd):
            return usd
        case AnyOf(limits) | AllOf(limits):
            found = [most_usd(one) for one in limits if counts_cost(one)]
            choose = min if isinstance(limit, AnyOf) else max
            return choose(found, default=ZERO)
        case _:
            return ZERO


def wall_time_s(limit: Limit, *, spent: Spent | None = None) -> float | None:
    """The seconds after which `limit` is over whatever else was spent, or once so much is `spent`; None where time alone does not
    decide."""
    match limit:
        case MaxWallTime(seconds):
            return seconds
        case AnyOf(limits):
            times = [wall_time_s(one, spent=spent) for one in limits]
            return min([one for one in times if one is not None], default=None)
        case AllOf(limits):
            left = [one for one in limits if spent is None or not is_over(one, spent=spent)]
            times = [time for one in left if (time := wall_time_s(one, spent=spent)) is not None]
            return max(times, default=None) if len(times) == len(left) else None
        case MaxSteps() | MaxRequests() | MaxTokens() | MaxCost():
            return None
        case _:
            assert_never(limit)


def fault_of_limit(limit: Limit) -> str | None:
    """Why no turn can go by `limit`; None if one can."""
    match limit:
        case MaxSteps(amount) | MaxRequests(amount) | MaxTokens(amount) | MaxWallTime(amount):
            return None if amount > 0 else f"`{limit}` allows nothing at all"
        case MaxCost(usd):
            if not usd.is_finite():
                return f"`{limit}` is no amount of money"
            return None if usd > 0 else f"`{limit}` allows nothing at all"
        case AnyOf(limits) | AllOf(limits):
            faults = [fault for one in limits if (fault := fault_of_limit(one))]
            return faults[0] if faults else None if limits else f"`{limit}` holds no limit"
        case _:
            assert_never(limit)


def forecast(
    *,
    prompt_tokens: int,
    longest_output_tokens: int,
    longest_step_s: float = 0.0,
    longest_request_s: float = ANSWER_S,
    answer_tokens: int = ANSWER_TOKENS,
    price: PriceRow | None = None,
    is_billed: bool = False,
) -> Forecast:
    """What comes next, guessed from what was: a step like the longest so far, and an answer of `answer_tokens`.

    `prompt_tokens` are those of the next request (`prompt_tokens_of`); a step's response, and some of what it brings, is part of
    the prompt after it, and our own words are part of an answer's.
    `price` is the row of the model that is asked; `is_billed`: a request of the step at hand was billed already.
    """

    def cost_of(one: Spent, *, is_billed: bool) -> Spent:
        if price is None:
            return one
        usd = projected_usd(price, input_tokens=one.input_tokens, output_tokens=one.output_tokens, is_billed=is_billed)
        return msgspec.structs.replace(one, cost_usd=usd)

    longest_output_tokens = longest_output_tokens or answer_tokens
    answer_prompt_tokens = prompt_tokens + ANSWER_WORDS_TOKENS
    answer = Spent(
        steps=1,
        requests=1,
        input_tokens=answer_prompt_tokens,
        output_tokens=answer_tokens,
        elapsed_s=longest_request_s,
    )
    step = msgspec.structs.replace(
        answer,
        input_tokens=prompt_tokens,
        output_tokens=longest_output_tokens,
        elapsed_s=longest_step_s or longest_request_s,
    )
    least = msgspec.structs.replace(answer, output_tokens=min(answer_tokens, LEAST_ANSWER_TOKENS))
    after_tokens = answer_prompt_tokens + longest_output_tokens + STEP_RESULT_TOKENS
    after = msgspec.structs.replace(answer, input_tokens=after_tokens)
    return Forecast(
        step=cost_of(step, is_billed=is_billed),
        answer=cost_of(least, is_billed=is_billed),
        answer_after=cost_of(after, is_billed=False),
    )


def prompt_tokens_of(last: Usage, *, added_bytes: int) -> int:
    """Tokens of the next prompt: the last request's own count, and `added_bytes` of text that came since."""
    return last.input_tokens + last.output_tokens + -(-added_bytes // BYTES_A_TOKEN)


def _response_tokens(
    left: int, *, counts: Literal["all", "input", "output"], prompt_tokens: int, keep_tokens: int | None
) -> int | None:
    """Of `left` tokens, those that a response may have: where an answer is kept its prompt holds the response once more."""
    kept = keep_tokens or 0
    match counts:
        case "output":
            return max(left - kept, 0)
        case "all" if keep_tokens is None:
            return max(left - prompt_tokens, 0)
        case "all":
            return max((left - 2 * prompt_tokens - kept) // 2, 0)
        case "input" if keep_tokens is None:
            return None if prompt_tokens <= left else 0
        case "input":
            return max(left - 2 * prompt_tokens, 0)


def _binding(limit: Limit, *, spent: Spent) -> Leaf | None:
    if not is_over(limit, spent=spent):
        return None
    match limit:
        case AnyOf(limits) | AllOf(limits):
            found = [_binding(one, spent=spent) for one in limits]
            return next((one for one in found if one is not None), None)
        case MaxSteps() | MaxRequests() | MaxTokens() | MaxWallTime() | MaxCost():
            return limit
        case _:
            assert_never(limit)


def _cost_limits(limit: Limit | None) -> tuple[MaxCost, ...]:
    match limit:
        case MaxCost():
            return (limit,)
        case AnyOf(limits) | AllOf(limits):
            return tuple([found for one in limits for found in _cost_limits(one)])
        case _:
            return ()


def _members(limit: Limit, *, of: type[AnyOf] | type[AllOf]) -> tuple[Limit, ...]:
    """`(a | b) | c` is one list of three, which reads better and decides the same."""
    return limit.limits if isinstance(limit, of) else (limit,)


def _counted(limit: MaxTokens, *, spent: Spent) -> int:
    match limit.counts:
        case "all":
            return spent.input_tokens + spent.output_tokens
        case "input":
            return spent.input_tokens
        case "output":
            return spent.output_tokens


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
