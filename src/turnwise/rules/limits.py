"""What a turn may spend: small limits that compose with `|` (either one stops) and `&` (only all together stop).

`pace` answers before each request whether it may be a step like any other, must be the answer because nothing more can be
afforded after it, or cannot be afforded at all (promise end:budget). What a request will cost is a forecast that comes in
as data, and so is the time; a limit is as exact as they are.
"""

from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from math import inf, nextafter
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError
from turnwise.rules.pricing import ZERO, PriceRow, add, output_tokens_for, part_of, projected_usd, subtract, usd_said
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
# "UTF-8 bytes / 3 for what was added since" the provider's own count.
BYTES_A_TOKEN = 3

Pace = Literal["go", "answer", "stop"]
# Which part of what is known of a run says what a limit counts: all of it knows the requests, and a ledger may not know the
# cost or the tokens of one. Steps, calls and time are known of the turn alone.
ToldBy = Literal["requests", "tokens", "cost", "turn"]
Found = TypeVar("Found")
Amount = TypeVar("Amount", int, float)


class Spent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a turn has spent, or what a request is likely to spend. `elapsed_s` is real time, with tools and waits.

    `cost_usd` counts where a limit of cost asks, `tool_calls` where one of calls does. Of `projected` requests nobody said the
    price, and they are in it as they were projected, never as 0. Of `at_dearest` requests a part of the price is known, and
    they are in it at the dearest price that is.
    """

    steps: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    elapsed_s: float = 0.0
    cost_usd: Decimal = ZERO
    projected: int = 0
    at_dearest: int = 0
    tool_calls: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            steps=self.steps + other.steps,
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            elapsed_s=self.elapsed_s + other.elapsed_s,
            cost_usd=add(self.cost_usd, other.cost_usd),
            projected=self.projected + other.projected,
            at_dearest=self.at_dearest + other.at_dearest,
            tool_calls=self.tool_calls + other.tool_calls,
        )


NOTHING_SPENT = Spent()


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request costs if it is a step (its tools included), what an answer of the least length does now, and one
    of full length after that step."""

    step: Spent
    answer: Spent
    answer_after: Spent

    @property
    def request(self) -> Spent:
        """The step's request alone, without what its calls take."""
        step = self.step
        return replace(
            self.answer, input_tokens=step.input_tokens, output_tokens=step.output_tokens, cost_usd=step.cost_usd
        )


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request whose response has to fit what is left. With `keep_tokens` an answer of so many has to be affordable after it,
    in a request whose prompt holds this one's and the response. `price` is the row of the model that is asked; `is_billed`: a
    request of its step was billed before it."""

    prompt_tokens: int
    keep_tokens: int | None = None
    price: PriceRow | None = None
    is_billed: bool = False


class Share(msgspec.Struct, frozen=True):
    """What one child may spend; None: nothing limits it. Not `enough`: too little for one request, so it is not begun."""

    limit: "Limit | None"
    enough: bool = True


NOTHING_LEFT = Share(None, enough=False)


class Among(msgspec.Struct, frozen=True, kw_only=True):
    """The children that share: so many run together, and a request of theirs costs `least_usd` at the least."""

    count: int
    least_usd: Decimal = ZERO


def _either(self: "Limit", other: "Limit") -> "AnyOf":
    """Stops as soon as one of them does."""
    if not isinstance(other, _LIMITS):  # pyright: ignore[reportUnnecessaryIsInstance] (a caller may give anything)
        return NotImplemented
    return AnyOf((*_members(self, of=AnyOf), *_members(other, of=AnyOf)))


def _both(self: "Limit", other: "Limit") -> "AllOf":
    """Stops once both of them do."""
    if not isinstance(other, _LIMITS):  # pyright: ignore[reportUnnecessaryIsInstance] (a caller may give anything)
        return NotImplemented
    return AllOf((*_members(self, of=AllOf), *_members(other, of=AllOf)))


def _is_over(self: "Leaf", spent: Spent) -> bool:
    """Whether `spent` exceeds the limit. Once true, it stays true."""
    return self.used(spent) > amount_in(self)


def _none_if_over(self: "Leaf", spent: Spent, *, coming: PlannedRequest) -> int | None:
    """The tokens that the next response may hold: None (this limit counts something else), or 0 once it is exceeded."""
    return 0 if self.is_over(spent) else None


def _unsaid(self: "Leaf", wanted: Spent) -> str | None:
    """None: this limit cannot tell an amount that would have been enough, or `said` tells it already."""
    return None


def _allows_nothing(limit: "Leaf", amount: float | Decimal) -> str | None:
    return None if amount > 0 else f"`{limit}` allows nothing at all"


# The leaves. The first field of each is its amount. Each says
# - `used`: what of that which was spent counts towards it. It never gets less, however much more is spent.
# - `is_over`: whether that is more than it allows.
# - `output_left`: the tokens that the coming response may hold; None: it does not bound them. Never below 0.
# - `reason` and `said`: why the turn ended, as a word and for an answer of ours: the limit, and what of it was spent.
# - `told_by`: what of a run has to be known, so that a budget need not count all that the run had reserved of it.
# - `enough`: the amount that would have allowed `wanted`, where that says more than the limit; None: nothing to say.
# - `share`: what each child gets of what is left.
# - `fault`: why no turn can go by it; None if one can.
#
# A new limit has four places:
# - here: its leaf, which stands in `Leaf`, too. What it counts is a field of `Spent`, also in `Spent.__add__`.
# - `turn/turn_spending.py`: where it is counted. A limit that counts what an event tells is counted in `Spending.see`. What one
#   step can spend of it stands in `forecast`, below. What can go past that must be capped where it is counted, or the model gets
#   no request for its answer.
# - `settings/options.py`: its row, for the command line, files, `turnwise submit` and MCP clients.
# - `turnwise/__init__.py`: its public name.


class MaxSteps(msgspec.Struct, frozen=True, tag="max_steps"):
    """A run has at most this many model steps. The last of them is the answer.

    `steps` counts accepted responses, not retries. Combine limits with `|` (any of them stops the run) and `&` (all of
    them together stop it).
    """

    steps: int
    reason: ClassVar = StopReason.STEP_LIMIT
    told_by: ClassVar[ToldBy] = "turn"
    __or__ = _either
    __and__ = _both
    is_over = _is_over
    output_left = _none_if_over
    enough = _unsaid

    def used(self, spent: Spent) -> int:
        """What of `spent` counts towards the limit."""
        return spent.steps

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        return f"The limit of {counted(self.steps, 'step')} was reached."

    def share(self, spent: Spent, *, among: Among) -> Share:
        """Each sub-agent has steps of its own, so this limit is not divided."""
        return NOTHING_LEFT if self.is_over(spent) else Share(None)

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        return _allows_nothing(self, self.steps)


class MaxRequests(msgspec.Struct, frozen=True, tag="max_requests"):
    """A run makes at most this many HTTP requests.

    Steps, retries, continuations, summaries and the answer count, and so do the requests of sub-agents.
    """

    requests: int
    reason: ClassVar = StopReason.BUDGET
    told_by: ClassVar[ToldBy] = "requests"
    __or__ = _either
    __and__ = _both
    is_over = _is_over
    output_left = _none_if_over
    enough = _unsaid

    def used(self, spent: Spent) -> int:
        """What of `spent` counts towards the limit."""
        return spent.requests

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        return f"The limit of {counted(self.requests, 'request')} was reached ({spent.requests:,} made)."

    def share(self, spent: Spent, *, among: Among) -> Share:
        """The part of the rest that each of several sub-agents gets."""
        left = (self.requests - spent.requests) // among.count
        return Share(MaxRequests(left)) if left > 0 else NOTHING_LEFT

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        return _allows_nothing(self, self.requests)


class MaxTokens(msgspec.Struct, frozen=True, tag="max_tokens", omit_defaults=True):
    """A run uses at most this many tokens over all its requests.

    Each request counts its whole prompt, cached or not. `counts` chooses prompt and output together (`all`), the prompt
    alone (`input`) or the output alone (`output`).
    """

    tokens: int
    counts: Literal["all", "input", "output"] = "all"
    reason: ClassVar = StopReason.BUDGET
    told_by: ClassVar[ToldBy] = "tokens"
    __or__ = _either
    __and__ = _both
    is_over = _is_over

    def used(self, spent: Spent) -> int:
        """What of `spent` counts towards the limit: the tokens of the chosen kind."""
        match self.counts:
            case "all":
                return spent.input_tokens + spent.output_tokens
            case "input":
                return spent.input_tokens
            case "output":
                return spent.output_tokens

    def output_left(self, spent: Spent, *, coming: PlannedRequest) -> int | None:
        """The tokens that the next response may hold; never below 0. None: this limit does not bound them.

        If an answer must still fit afterwards, the answer's prompt contains this prompt and this response, so both
        count twice.
        """
        left, prompt_tokens, keep_tokens = self.tokens - self.used(spent), coming.prompt_tokens, coming.keep_tokens
        kept = keep_tokens or 0
        match self.counts:
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

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        return f"The limit of {self._of(self.tokens)} leaves no room for another step ({self.used(spent):,} used)."

    def enough(self, wanted: Spent) -> str | None:
        """The amount that would have been enough for `wanted`, in words. None: the limit itself is enough."""
        tokens = int(_rounded_up(Decimal(self.used(wanted))))
        return self._of(tokens) if tokens > self.tokens else None

    def _of(self, tokens: int) -> str:
        return counted(tokens, "token" if self.counts == "all" else f"{self.counts} token")

    def share(self, spent: Spent, *, among: Among) -> Share:
        """The part of the rest that each of several sub-agents gets."""
        left = max(self.tokens - self.used(spent), 0) // among.count
        return Share(MaxTokens(left, self.counts)) if left >= ANSWER_TOKENS else NOTHING_LEFT

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        return _allows_nothing(self, self.tokens)


class MaxWallTime(msgspec.Struct, frozen=True, tag="max_wall_time"):
    """A run takes at most this many seconds of real time. Waits and tools count.

    At the end of the time turnwise stops the response that is on its way and keeps what has arrived.
    """

    seconds: float
    reason: ClassVar = StopReason.TIME_LIMIT
    told_by: ClassVar[ToldBy] = "turn"
    __or__ = _either
    __and__ = _both
    is_over = _is_over
    output_left = _none_if_over
    enough = _unsaid

    def used(self, spent: Spent) -> float:
        """What of `spent` counts towards the limit."""
        return spent.elapsed_s

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        return f"The limit of {self.seconds:g} s leaves no time for another step ({spent.elapsed_s:.0f} s passed)."

    def share(self, spent: Spent, *, among: Among) -> Share:
        """Each sub-agent gets all the time that is left, because time passes for all of them at once."""
        left_s = self.seconds - spent.elapsed_s
        return Share(MaxWallTime(left_s)) if left_s > 0 else NOTHING_LEFT

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        return _allows_nothing(self, self.seconds)


class MaxCost(msgspec.Struct, frozen=True, tag="max_cost"):
    """A run costs at most this many US dollars, sub-agents included.

    Give a `Decimal`, an int or a text: `MaxCost("0.50")`. The price of every model must be known; otherwise the run
    raises CallerError before the first request. Raises CallerError for a float, because it is not exactly the amount
    that you wrote, and for a value that is no amount.
    """

    usd: Decimal
    reason: ClassVar = StopReason.BUDGET
    told_by: ClassVar[ToldBy] = "cost"
    __or__ = _either
    __and__ = _both
    is_over = _is_over

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

    def used(self, spent: Spent) -> Decimal:
        """What of `spent` counts towards the limit."""
        return spent.cost_usd

    def output_left(self, spent: Spent, *, coming: PlannedRequest) -> int | None:
        """The tokens that the next response may hold, from the price of output; never below 0. None: no price bounds
        them.
        """
        if coming.price is None:
            return _none_if_over(self, spent, coming=coming)
        return output_tokens_for(
            subtract(self.usd, spent.cost_usd),
            row=coming.price,
            prompt_tokens=coming.prompt_tokens,
            keep_tokens=coming.keep_tokens,
            is_billed=coming.is_billed,
        )

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        guessed = f", {counted(spent.projected, 'request')} of unknown price as projected" if spent.projected else ""
        if spent.at_dearest:
            guessed += f", {counted(spent.at_dearest, 'request')} at the dearest known price, as a part is unknown"
        used = f"{usd_said(spent.cost_usd)} spent{guessed}"
        return f"The limit of {usd_said(self.usd)} leaves no room for another step ({used})."

    def enough(self, wanted: Spent) -> str | None:
        """The amount that would have been enough for `wanted`, in words. None: the limit itself is enough."""
        usd = _rounded_up(wanted.cost_usd)
        return usd_said(usd) if usd > self.usd else None

    def share(self, spent: Spent, *, among: Among) -> Share:
        """The part of the rest that each sub-agent gets. If it cannot pay for one request, nothing is started."""
        left_usd = part_of(subtract(self.usd, spent.cost_usd), among=among.count)
        return Share(MaxCost(left_usd)) if left_usd > 0 and left_usd >= among.least_usd else NOTHING_LEFT

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        if not self.usd.is_finite():
            return f"`{self}` is no amount of money"
        return _allows_nothing(self, self.usd)


class MaxToolCalls(msgspec.Struct, frozen=True, tag="max_tool_calls"):
    """A run makes at most this many tool calls. Calls of programs and sub-agents count.

    Only calls that run count: a denied or malformed call does not.
    """

    calls: int
    reason: ClassVar = StopReason.BUDGET
    told_by: ClassVar[ToldBy] = "turn"
    __or__ = _either
    __and__ = _both
    is_over = _is_over
    output_left = _none_if_over
    enough = _unsaid

    def used(self, spent: Spent) -> int:
        """What of `spent` counts towards the limit."""
        return spent.tool_calls

    def said(self, spent: Spent) -> str:
        """A sentence for people: the limit, and how much of it is spent."""
        return f"The limit of {counted(self.calls, 'tool call')} was reached ({spent.tool_calls:,} made)."

    def share(self, spent: Spent, *, among: Among) -> Share:
        """The part of the rest that each of several sub-agents gets."""
        left = (self.calls - spent.tool_calls) // among.count
        return Share(MaxToolCalls(left)) if left > 0 else NOTHING_LEFT

    def fault(self) -> str | None:
        """Why no run can work with this limit (it allows nothing). None: a run can."""
        return _allows_nothing(self, self.calls)


class AnyOf(msgspec.Struct, frozen=True, tag="any_of"):
    """Limits that were combined with `|`: the first one that is reached stops the run."""

    limits: "tuple[Limit, ...]"
    __or__ = _either
    __and__ = _both


class AllOf(msgspec.Struct, frozen=True, tag="all_of"):
    """Limits that were combined with `&`: the run stops once all of them are reached."""

    limits: "tuple[Limit, ...]"
    __or__ = _either
    __and__ = _both


Leaf = MaxSteps | MaxRequests | MaxTokens | MaxWallTime | MaxCost | MaxToolCalls
Limit = Leaf | AnyOf | AllOf
_LIMITS = get_args(Limit)


# What a limit says that is made of several: the one place that tells `|` from `&`.


def folded(
    limit: Limit,
    *,
    leaf: Callable[[Leaf], Found],
    either: Callable[[list[Found]], Found],
    both: Callable[[list[Found]], Found],
) -> Found:
    """What `leaf` says of each leaf, put together by `either` below `|` and by `both` below `&`."""
    match limit:
        case AnyOf(limits) | AllOf(limits):
            found = [folded(one, leaf=leaf, either=either, both=both) for one in limits]
            return (either if isinstance(limit, AnyOf) else both)(found)
        case _:
            return leaf(limit)


def leaves_of(limit: Limit | None) -> tuple[Leaf, ...]:
    """Those that it is made of, as written."""
    return () if limit is None else folded(limit, leaf=lambda one: (one,), either=_chained, both=_chained)


def _chained(found: list[tuple[Leaf, ...]]) -> tuple[Leaf, ...]:
    return tuple([leaf for leaves in found for leaf in leaves])


def kept_s(left_s: float, *, longest_request_s: float) -> float:
    """The seconds of `left_s` that are kept for the answer's request, before something that may take all of them."""
    return max(longest_request_s, min(ANSWER_S, left_s / 10))


def is_over(limit: Limit, *, spent: Spent) -> bool:
    """Whether more was spent than `limit` allows. Once true it stays true, however much more is spent."""
    return folded(
        limit,
        leaf=lambda one: one.is_over(spent),
        either=any,
        both=lambda found: bool(found) and all(found),
    )


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
    coming = spent + forecast.step + forecast.answer_after

    def first(found: list[Leaf | None]) -> Leaf | None:
        return next((one for one in found if one is not None), None)

    return folded(
        limit,
        leaf=lambda one: one if one.is_over(coming) else None,
        either=first,
        both=lambda found: None if None in found else first(found),
    )


def amount_in(limit: Leaf) -> Any:
    """What it allows, as it was given."""
    return getattr(limit, limit.__struct_fields__[0])


def stop_reason(limit: Leaf) -> StopReason:
    return limit.reason


def said(limit: Leaf, *, spent: Spent, wanted: Spent | None = None) -> str:
    """What an answer of ours and the faces say: the limit, and what of it was spent. `wanted` is what the turn would have spent
    after one more step and an answer, if that is known."""
    enough = None if wanted is None else limit.enough(wanted)
    return limit.said(spent) if enough is None else f"{limit.said(spent)} {enough} would."


def _rounded_up(amount: Decimal) -> Decimal:
    """To two digits that mean something: a figure to type, and no less than the guess."""
    return amount.quantize(Decimal(1).scaleb(amount.adjusted() - 1), rounding=ROUND_CEILING) if amount else amount


def output_tokens_left(
    limit: Limit,
    *,
    spent: Spent,
    prompt_tokens: int,
    keep_tokens: int | None = None,
    price: PriceRow | None = None,
    is_billed: bool = False,
) -> int | None:
    """What the next response may hold without breaking `limit`; None where nothing limits it. Never below 0."""
    coming = PlannedRequest(prompt_tokens=prompt_tokens, keep_tokens=keep_tokens, price=price, is_billed=is_billed)
    return folded(
        limit, leaf=lambda one: one.output_left(spent, coming=coming), either=_least_of, both=_most_if_each_bounds
    )


def _least_of(left: list[int | None]) -> int | None:
    return min([one for one in left if one is not None], default=None)


def _most_if_each_bounds(left: list[int | None]) -> int | None:
    """The largest bound. None if one limit has no bound for it: that limit alone keeps the turn from stopping."""
    return max([one for one in left if one is not None], default=None) if None not in left else None


def counts_cost(limit: Limit | None) -> bool:
    """Whether a limit of cost is somewhere in it, so that prices have to be known."""
    return any(isinstance(one, MaxCost) for one in leaves_of(limit))


def no_price(model: str, *, profile: str, row: PriceRow | None = None) -> str:
    """Why a limit of cost cannot hold, and what to do. `row` is the price row that was found."""
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
    if limit is None:
        return ZERO
    found = folded(
        limit,
        leaf=lambda one: one.usd if isinstance(one, MaxCost) else None,
        either=lambda found: min([usd for usd in found if usd is not None], default=None),
        both=lambda found: max([usd for usd in found if usd is not None], default=None),
    )
    return ZERO if found is None else found


def wall_time_s(limit: Limit, *, spent: Spent = NOTHING_SPENT) -> float | None:
    """The seconds after which `limit` is over, once so much else is `spent`; None where time does not decide."""
    ends = [one.seconds for one in leaves_of(limit) if isinstance(one, MaxWallTime)]
    return _end_of(limit, ends=ends, after=lambda end: replace(spent, elapsed_s=nextafter(end, inf)))


def most_tool_calls(limit: Limit | None, *, spent: Spent = NOTHING_SPENT) -> int | None:
    """The calls that `limit` allows in all, once so much else is `spent`; None where calls do not decide."""
    ends = [one.calls for one in leaves_of(limit) if isinstance(one, MaxToolCalls)]
    return None if limit is None else _end_of(limit, ends=ends, after=lambda end: replace(spent, tool_calls=end + 1))


def counts_tool_calls(limit: Limit | None) -> bool:
    """Whether a limit of tool calls is somewhere in it."""
    return any(isinstance(one, MaxToolCalls) for one in leaves_of(limit))


def _end_of(limit: Limit, *, ends: Iterable[Amount], after: Callable[[Amount], Spent]) -> Amount | None:
    """The first of these amounts beyond which `limit` is over: `after` is what was spent just beyond one."""
    return next((end for end in sorted(ends) if is_over(limit, spent=after(end))), None)


def fault_of_limit(limit: Limit) -> str | None:
    """Why no turn can go by `limit`; None if one can."""
    match limit:
        case AnyOf(limits) | AllOf(limits):
            faults = [fault for one in limits if (fault := fault_of_limit(one))]
            return faults[0] if faults else None if limits else f"`{limit}` holds no limit"
        case _:
            return limit.fault()


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
    the prompt after it, and our own words are part of an answer's. `price` is the row of the model that is asked; `is_billed`: a
    request of the current step was billed already.
    """

    def cost_of(one: Spent, *, is_billed: bool) -> Spent:
        if price is None:
            return one
        usd = projected_usd(price, input_tokens=one.input_tokens, output_tokens=one.output_tokens, is_billed=is_billed)
        return replace(one, cost_usd=usd)

    longest_output_tokens = longest_output_tokens or answer_tokens
    answer_prompt_tokens = prompt_tokens + ANSWER_WORDS_TOKENS
    answer = Spent(
        steps=1,
        requests=1,
        input_tokens=answer_prompt_tokens,
        output_tokens=answer_tokens,
        elapsed_s=longest_request_s,
    )
    step = replace(
        answer,
        input_tokens=prompt_tokens,
        output_tokens=longest_output_tokens,
        elapsed_s=longest_step_s or longest_request_s,
        tool_calls=1,
    )
    least = replace(answer, output_tokens=min(answer_tokens, LEAST_ANSWER_TOKENS))
    after_tokens = answer_prompt_tokens + longest_output_tokens + STEP_RESULT_TOKENS
    after = replace(answer, input_tokens=after_tokens)
    return Forecast(
        step=cost_of(step, is_billed=is_billed),
        answer=cost_of(least, is_billed=is_billed),
        answer_after=cost_of(after, is_billed=False),
    )


def prompt_tokens_of(last: Usage, *, added_bytes: int) -> int:
    """Tokens of the next prompt: the last request's own count, and `added_bytes` of text that came since."""
    return last.input_tokens + last.output_tokens + -(-added_bytes // BYTES_A_TOKEN)


def _members(limit: Limit, *, of: type[AnyOf] | type[AllOf]) -> tuple[Limit, ...]:
    """`(a | b) | c` is one list of three, which reads better and decides the same."""
    return limit.limits if isinstance(limit, of) else (limit,)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
