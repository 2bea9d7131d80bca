"""What a request cost: its usage and a row of prices -> money.

Money is `Decimal`, in US dollars, and sums are exact. An unknown price is `Unknown` with the reason, never 0 (promise
bill:plans). Rows come in as data; where they come from is the drivers' business.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_DOWN, Context, Decimal, InvalidOperation
from typing import Literal, NamedTuple

import msgspec

from turnwise.rules.provider_tool_costs import SEARCHED
from turnwise.vocab import BilledPart, Fault, Untold, Usage
from turnwise.vocab.json_values import is_json_array, is_json_object

Plan = Literal["tokens", "request", "step", "free"]
"""What a provider bills by. `step`: once for all requests of a step."""
Fate = Literal["whole", "refused", "empty", "broken", "unheard"]
"""What came of a request: a whole response; an answer that is an error, so that nothing was generated; an answer that is
nothing of the kind (no content, a page of HTML); the beginning of an answer; or none at all, so that it is unknown whether
the request arrived."""

REDIRECTS = 300  # the lowest status that is no answer

MILLION = Decimal(1_000_000)
# A cost that a provider reports is somebody else's number: it is bounded before it is added up.
MOST_DIGITS = 18  # before the point; xAI counts in ticks of which 10,000,000,000 are a dollar
FINEST = -30  # places behind it; OpenRouter's floats have up to 18
# Wide enough that no sum of bounded amounts is ever rounded.
EXACT = Context(prec=120)
_DOWN = Context(prec=120, rounding=ROUND_DOWN)
SHARE_PLACES = Decimal("1e-12")  # as fine as prices may be
ZERO = Decimal(0)


class TokenPrices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """US dollars per million tokens, for requests whose whole prompt has more than `above_tokens` (all their tokens cost so, not
    only those above it). None: no price of its own, it costs as much as the tokens that it is a part of."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None  # kept for an hour; None: as `cache_write`
    reasoning: Decimal | None = None
    above_tokens: int = 0


class PriceTerm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a word of the provider's makes of a price: `speed=fast` costs `times` as much. Where only a range is published,
    `times` is the least, and `at_most` the most."""

    term: str
    times: Decimal
    at_most: Decimal | None = None

    @property
    def most_times(self) -> Decimal:
        """The most that is known."""
        return self.times if self.at_most is None else self.at_most


class OwnCost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place in the provider's usage object that says what the request cost. `unit_usd` is the value of 1 unit of it in
    US dollars. `also` is added if the flag at `also_if` is true (OpenRouter with the user's own key at the provider)."""

    path: tuple[str, ...]
    unit_usd: Decimal = Decimal(1)
    also: tuple[str, ...] = ()
    also_if: tuple[str, ...] = ()


class PriceRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The price of a model at a provider.

    - `tokens` are prices by the size of the prompt, smallest first.
    - `request_usd` is the price of each HTTP request, and `step_usd` of each step, in US dollars, beside any price of
      tokens.
    - `bills_refused`: whether a request that is answered with an error costs `request_usd`, too. None: not known.
    - `own_cost`: where to find the cost in the provider's usage object, if the provider reports it.
    - `is_from_project`: the price comes from a project's file. It is shown, but not used for limits.
    - `asks_hour`: whether the requests ask the provider to keep the cache for an hour.
    - `terms`: what tokens cost where the provider says that it served the request in a way of its own.
    - `kin_terms`: terms that make other models of the provider dearer, of kinds that make this one no dearer, as far as is known.
    - `asked_terms`: those that the requests ask for. A limit of cost reckons with them before the answer comes.
    """

    plan: Plan
    source: str
    tokens: tuple[TokenPrices, ...] = ()
    request_usd: Decimal | None = None
    step_usd: Decimal | None = None
    bills_refused: bool | None = None
    own_cost: OwnCost | None = None
    is_from_project: bool = False
    asks_hour: bool = False
    terms: tuple[PriceTerm, ...] = ()
    kin_terms: tuple[PriceTerm, ...] = ()
    asked_terms: tuple[str, ...] = ()


RowFinder = Callable[[str], PriceRow | None]
"""The row of another model that did a part of a request; None if no price is known."""


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """`by` the provider's own word, or a table's. `cache_saved_usd` is what the prompt would have cost more without its cache
    (less than 0 where writing the cache cost more than reading it saved), `cache_write_usd` what the tokens that were written
    there cost more than others; None where that cannot be said. `at_least` says why `usd` is only the part that is known;
    empty where it is all. Then `most_usd` is what a limit of cost reckons with: the dearest that is known."""

    usd: Decimal
    by: Literal["provider", "table"]
    cache_saved_usd: Decimal | None = None
    cache_write_usd: Decimal | None = None
    at_least: str = ""
    most_usd: Decimal | None = None


class Unknown(msgspec.Struct, frozen=True):
    why: str


NO_PRICE = Unknown("no price is known for this model at this provider")
NO_USAGE_SAID = Unknown("the provider did not say how many tokens it counted")
BROKE_OFF = Unknown("it broke off before the provider said what it had used")
UNHEARD = Unknown("nothing came back, so nobody knows whether the request arrived")
ERRORS_UNSURE = Unknown("whether requests answered by an error, or by nothing, are billed is not known")
NO_RATE = Unknown("the plan is known, its price is not: set it under [prices]")
_UNSURE: dict[Fate, Unknown] = {"broken": BROKE_OFF, "unheard": UNHEARD}


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of several requests.

    `usd` is the sum of the known prices, in US dollars. `requests` is the number of requests; `unknown` is the number
    of those whose price is not known, and `at_least` of those of which only a part is.
    """

    usd: Decimal = ZERO
    requests: int = 0
    unknown: int = 0
    at_least: int = 0

    @property
    def exact_usd(self) -> Decimal | None:
        """The whole sum in US dollars. None: a part of it is not known."""
        return None if self.is_partial else self.usd

    @property
    def is_partial(self) -> bool:
        """Whether a part of the sum is not known."""
        return bool(self.unknown or self.at_least)

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            usd=add(self.usd, other.usd),
            requests=self.requests + other.requests,
            unknown=self.unknown + other.unknown,
            at_least=self.at_least + other.at_least,
        )

    @property
    def is_unknown(self) -> bool:
        """Whether no price is known. Then `usd` is 0 and means nothing."""
        return self.requests != 0 and self.unknown == self.requests

    def __repr__(self) -> str:
        """An unknown sum does not read as 0."""
        usd = "unknown" if self.is_unknown else f"at least {self.usd}" if self.is_partial else repr(self.usd)
        partly = f", at_least={self.at_least}" if self.at_least else ""
        return f"Cost(usd={usd}, requests={self.requests}, unknown={self.unknown}{partly})"


def sum_of(prices: Iterable[Decimal | None], *, at_least: int = 0) -> Cost:
    """Exact, whatever the number of parts; so many of them are only a part of their price."""
    usd, requests, unknown = ZERO, 0, 0
    for price in prices:
        requests += 1
        if price is None:
            unknown += 1
        else:
            usd = add(usd, price)
    return Cost(usd=usd, requests=requests, unknown=unknown, at_least=at_least)


def cost_of_prices(prices: Iterable[Priced | Unknown]) -> Cost:
    """What requests of these prices cost together."""
    listed = list(prices)
    known = [price.usd if isinstance(price, Priced) else None for price in listed]
    return sum_of(known, at_least=sum([isinstance(price, Priced) and bool(price.at_least) for price in listed]))


def add(one: Decimal, other: Decimal) -> Decimal:
    """Exact for amounts within MOST_DIGITS and FINEST; the usual 28 digits would round."""
    return EXACT.add(one, other)


def subtract(one: Decimal, other: Decimal) -> Decimal:
    """As exact as `add`."""
    return EXACT.subtract(one, other)


def part_of(amount: Decimal, *, among: int) -> Decimal:
    """An even share, rounded down: all of them together are no more than the whole."""
    return _DOWN.quantize(_DOWN.divide(amount, Decimal(among)), SHARE_PLACES)


def usd_said(amount: Decimal) -> str:
    """As people read it: cents from a dollar on, three digits that mean something below: `$1.23`, `$0.0456`, `-$0.000125`."""
    sign, size = ("-" if amount < 0 else ""), abs(amount)
    places = 2 if size >= 1 or not size else 2 - size.adjusted()
    return f"{sign}${size:,.{places}f}"


def fate_of_failure(fault: Fault, *, is_answer: bool, has_content: bool, usage: Usage | None) -> Fate:
    """What came of a request that failed with `fault`. `is_answer`: the fault is all that was answered. The status of an error
    says that nothing was generated; an error under a status of success does not, nor one that comes behind content. A redirect
    is no answer either."""
    status = fault.status or 0
    if not is_answer and (has_content or status < REDIRECTS):
        return "broken"
    return "refused" if status >= REDIRECTS and usage is None else "empty"


def price_of(
    usage: Usage | None,
    *,
    row: PriceRow | None,
    fate: Fate = "whole",
    billed_in_step: int = 0,
    apart: str = "",
    asked_hour: bool = False,
    asked: tuple[str, ...] = (),
    row_of: RowFinder | None = None,
) -> Priced | Unknown:
    """What a request cost. `billed_in_step` are the requests of its step that were billed before it; `apart` says what of
    its response costs more than tokens (`apart.billed_apart`). `asked_hour`: it asked for a cache that is kept for an hour, which
    holds for all that was written where usage does not tell (usage of Chat Completions never does). `asked` are the terms that
    it asked for (`apart.terms_asked`), and `row_of` knows the rows of other models that did a part of it.

    A refused request has generated nothing, so plans by token or step do not bill it. Source: usage is what the providers
    bill by, and an error has none. A plan by step bills the first request that is answered; whether it bills a request that
    broke off is unknown.
    """
    if row is None:
        return NO_PRICE
    match row.plan:
        case "free":
            return Priced(usd=ZERO, by="table")
        case "request":
            return _request_price(row, fate=fate)
        case "step":
            if row.step_usd is None:
                return NO_RATE
            if fate in _UNSURE and not billed_in_step:
                return _UNSURE[fate]
            return Priced(usd=row.step_usd if fate == "whole" and not billed_in_step else ZERO, by="table")
        case "tokens":
            asked = asked or row.asked_terms
            return _token_price(
                usage, row=row, fate=fate, apart=apart, asked_hour=asked_hour, asked=asked, row_of=row_of
            )


def _request_price(row: PriceRow, *, fate: Fate) -> Priced | Unknown:
    if row.request_usd is None:
        return NO_RATE
    if fate in _UNSURE:
        return _UNSURE[fate]
    if fate == "empty" and not row.bills_refused:
        return ERRORS_UNSURE
    if fate != "whole" and not row.bills_refused:
        return ERRORS_UNSURE if row.bills_refused is None else Priced(usd=ZERO, by="table")
    return Priced(usd=row.request_usd, by="table")


def _token_price(
    usage: Usage | None,
    *,
    row: PriceRow,
    fate: Fate,
    apart: str,
    asked_hour: bool,
    asked: tuple[str, ...],
    row_of: RowFinder | None,
) -> Priced | Unknown:
    details = {} if usage is None else _details(usage.provider)
    if (asked_hour or row.asks_hour) and usage is not None and "cache_creation" not in details:
        details = {**details, "cache_creation": {"ephemeral_1h_input_tokens": usage.cache_write_tokens}}
    own = None if row.own_cost is None else _own_cost(details, where=row.own_cost)
    # A 0 beside counts that are missing says nothing.
    if own is not None and usage is not None and (own or not usage.untold):
        saved, writing = _saved_of(usage, row=row, details=details)
        return Priced(usd=own, by="provider", cache_saved_usd=saved, cache_write_usd=writing)
    if fate == "refused":
        return Priced(usd=ZERO, by="table")
    if fate != "whole":
        return BROKE_OFF
    if usage is None:
        return NO_USAGE_SAID
    if not row.tokens:
        return NO_PRICE
    for what in (apart, _billed_apart(details), "searches" if "searches" in usage.untold else ""):
        if what and (what != SEARCHED or row.request_usd is None):  # else that is their price
            return Unknown(f"it has {what}, which are billed apart")
    if untold := _untold(usage, row=row, prices=_tier(row, input_tokens=usage.input_tokens)):
        return Unknown(f"the provider did not count the {untold}")
    return _price_of_bills(usage, row=row, details=details, asked=asked, row_of=row_of)


class _Bill(msgspec.Struct, frozen=True):
    """Tokens of one sampling, and their prices: those of its own model's row."""

    usage: Usage
    row: PriceRow
    prices: TokenPrices
    details: dict[str, object]


def _price_of_bills(
    usage: Usage, *, row: PriceRow, details: dict[str, object], asked: tuple[str, ...], row_of: RowFinder | None
) -> Priced | Unknown:
    """Each sampling at the price of its own model and size of prompt, and all of them as the provider served them. What nobody
    can price makes the sum 'at least' (promise bill:served)."""
    bills = _bills_of(usage, row=row, details=details, row_of=row_of)
    tokens, dearest, saved, writing = ZERO, ZERO, None, None
    whys: dict[str, None] = {}
    for bill in bills:
        usd = _tokens_usd(bill.usage, prices=bill.prices, details=bill.details)
        if usd is None:
            return Unknown("the provider's counts of tokens do not add up")
        times, unsure = served_times(usage, row=bill.row, asked=asked)
        whys.update(dict.fromkeys(unsure))
        tokens = add(tokens, _times(usd, times))
        dearest = add(dearest, _times(usd, max(times, dearest_times(bill.row, named=(*usage.terms, *asked)))))
        more, written = _saved(bill.usage, prices=bill.prices, details=bill.details)
        saved = _sum_known(saved, more, times=times, is_first=bill is bills[0])
        writing = _sum_known(writing, written, times=times, is_first=bill is bills[0])
    whys.update(dict.fromkeys([f"`{name}` in its usage is not known" for name in usage.unread]))
    if len(bills) < len(usage.parts):
        whys["no price is known for a model that did a part of it"] = None
    request_usd = row.request_usd or ZERO
    return Priced(
        usd=add(tokens, request_usd),
        by="table",
        cache_saved_usd=saved,
        cache_write_usd=writing,
        at_least="; ".join(whys),
        most_usd=add(dearest, request_usd) if whys else None,
    )


def _sum_known(before: Decimal | None, more: Decimal | None, *, times: Decimal, is_first: bool) -> Decimal | None:
    """With one bill more, at its multiplier; None where a bill's is not known."""
    if more is None or (before is None and not is_first):
        return None
    return add(before or ZERO, _times(more, times))


def _bills_of(usage: Usage, *, row: PriceRow, details: dict[str, object], row_of: RowFinder | None) -> list[_Bill]:
    """A bill for each part whose price is known; of a request with one sampling, the only one."""
    if not usage.parts:
        return [_Bill(usage, row, _tier(row, input_tokens=usage.input_tokens), details)]
    bills: list[_Bill] = []
    for part in usage.parts:
        own = row if not part.model else None if row_of is None else row_of(part.model)
        if own is not None and own.tokens:
            bills.append(_Bill(part.counts, own, _tier(own, input_tokens=part.input_tokens), _writes_of(part)))
    return bills


def _writes_of(part: BilledPart) -> dict[str, object]:
    return {"cache_creation": {"ephemeral_1h_input_tokens": part.hour_write_tokens}}


# Words for the ordinary service, which the list prices are for. Sources: openai 3.57 `ServiceTier`, anthropic 2.14 `Usage`,
# google-genai 3.6 `ServiceTier` and `TrafficType`; Groq's "Service tiers" (`on_demand`).
ORDINARY = frozenset(
    """default standard auto standard_only on_demand unspecified traffic_type_unspecified service_tier_unspecified
    service_tier_standard global not_available not_applied""".split()
)


def is_ordinary(term: str) -> bool:
    """Whether a term (`service_tier=default`) says that the request was served like any other."""
    return term.partition("=")[2].casefold() in ORDINARY


def served_times(usage: Usage, *, row: PriceRow, asked: tuple[str, ...]) -> tuple[Decimal, list[str]]:
    """How many times the list price the tokens cost, as the provider says that it served them, at least; and why it may be more.
    A term that was asked for and of which the answer says nothing may have been served, or not."""
    known = {term.term.casefold(): term for term in row.terms}
    answered = {term.partition("=")[0].casefold().replace("_", "") for term in usage.terms}
    times, whys = Decimal(1), list[str]()
    for term in usage.terms:
        found = known.get(term.casefold())
        if found is not None:
            times = EXACT.multiply(times, found.times)
        if (found is None and not is_ordinary(term)) or (found is not None and found.at_most is not None):
            whys.append(f"the price of `{term}` is not known")
    for term in asked:
        if term.partition("=")[0].casefold().replace("_", "") in answered or is_ordinary(term):
            continue
        found = known.get(term.casefold())
        if found is not None and found.times < 1:
            times = EXACT.multiply(times, found.times)
        whys.append(f"`{term}` was asked for, and the answer does not say how it was served")
    return times, whys


def dearest_times(row: PriceRow, *, named: Iterable[str] = ()) -> Decimal:
    """How many times its list price a request can cost at most, by what is known: the dearest word of each kind together. A term
    that is `named`, and whose price is not known here, counts as the dearest that is known of the provider's others."""
    dearest: dict[str, Decimal] = {}
    for term in row.terms:
        kind = term_kind(term.term)
        dearest[kind] = max(dearest.get(kind, Decimal(1)), term.most_times)
    known = {term.term.casefold() for term in row.terms}
    for name in named:
        if name.casefold() not in known and not is_ordinary(name) and term_kind(name) not in dearest_kinds(row.terms):
            kin = _kin_of(name, row=row)
            dearest[term_kind(name)] = max([term.most_times for term in kin], default=Decimal(1))
    times = Decimal(1)
    for most in dearest.values():
        times = EXACT.multiply(times, most)
    return times


def asked_times(row: PriceRow) -> Decimal:
    """The same of what the requests ask for: what they will cost where that is served. A cheaper way may not be."""
    known = {term.term.casefold(): term for term in row.terms}
    times = Decimal(1)
    for term in row.asked_terms:
        found = known.get(term.casefold())
        if found is not None:
            times = EXACT.multiply(times, max(Decimal(1), found.times if found.at_most is None else found.at_most))
        elif not is_ordinary(term):
            return dearest_times(row, named=row.asked_terms)
    return times


def term_kind(term: str) -> str:
    """`speed` of `speed=fast`."""
    return term.partition("=")[0]


def dearest_kinds(terms: Iterable[PriceTerm]) -> frozenset[str]:
    """The kinds of terms that make a request dearer than its list price."""
    return frozenset([term_kind(term.term) for term in terms if term.most_times > 1])


def _kin_of(name: str, *, row: PriceRow) -> Sequence[PriceTerm]:
    """The same term at other models; else those of its kind; else all."""
    same = [term for term in row.kin_terms if term.term.casefold() == name.casefold()]
    return same or [term for term in row.kin_terms if term_kind(term.term) == term_kind(name)] or row.kin_terms


def _times(amount: Decimal, times: Decimal) -> Decimal:
    return amount if times == 1 else EXACT.multiply(amount, times)


def _tier(row: PriceRow, *, input_tokens: int) -> TokenPrices:
    """A prompt beyond the threshold has all its tokens at the higher price. Sources: Anthropic, 'Long context pricing'; Google,
    Gemini API pricing ('prompts > 200k tokens')."""
    return max(
        [tier for tier in row.tokens if input_tokens > tier.above_tokens] or row.tokens[:1],
        key=lambda tier: tier.above_tokens,
    )


_NAMES: dict[Untold, str] = {
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens of the response",
    "reasoning_tokens": "tokens of reasoning",
    "cache_read_tokens": "tokens read from the cache",
    "cache_write_tokens": "tokens written to the cache",
}


def _untold(usage: Usage, *, row: PriceRow, prices: TokenPrices) -> str:
    """Which tokens, that cost something, were not counted; empty for none. Of a part of others, if it has a price of its own."""
    matters: dict[Untold, bool] = {
        "input_tokens": bool(prices.input) or len(row.tokens) > 1,
        "output_tokens": bool(prices.output),
        "reasoning_tokens": prices.reasoning not in (None, prices.output),
        "cache_read_tokens": prices.cache_read not in (None, prices.input),
        "cache_write_tokens": not {prices.cache_write, prices.cache_write_1h} <= {None, prices.input},
    }
    return next((_NAMES[name] for name in usage.untold if name in _NAMES and matters[name]), "")


def _tokens_usd(usage: Usage, *, prices: TokenPrices, details: dict[str, object]) -> Decimal | None:
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    said = usage.output_tokens - usage.reasoning_tokens
    hour = _hour_writes(usage, details)
    if plain < 0 or said < 0:
        return None
    read = prices.input if prices.cache_read is None else prices.cache_read
    write = prices.input if prices.cache_write is None else prices.cache_write
    write_1h = write if prices.cache_write_1h is None else prices.cache_write_1h
    reasoning = prices.output if prices.reasoning is None else prices.reasoning
    return tokens_usd(
        (plain, prices.input),
        (usage.cache_read_tokens, read),
        (usage.cache_write_tokens - hour, write),
        (hour, write_1h),
        (said, prices.output),
        (usage.reasoning_tokens, reasoning),
    )


def _saved_of(usage: Usage, *, row: PriceRow, details: dict[str, object]) -> tuple[Decimal | None, Decimal | None]:
    if not row.tokens:
        return None, None
    return _saved(usage, prices=_tier(row, input_tokens=usage.input_tokens), details=details)


def _saved(usage: Usage, *, prices: TokenPrices, details: dict[str, object]) -> tuple[Decimal | None, Decimal | None]:
    """What the cache saved, and what writing it cost more than input does."""
    read = msgspec.structs.replace(usage, cache_write_tokens=0)
    without, only_read, within = (
        _tokens_usd(msgspec.structs.replace(read, cache_read_tokens=0), prices=prices, details={}),
        _tokens_usd(read, prices=prices, details={}),
        _tokens_usd(usage, prices=prices, details=details),
    )
    if without is None or only_read is None or within is None:
        return None, None
    return EXACT.subtract(without, within), EXACT.subtract(within, only_read)


def tokens_usd(*parts: tuple[int, Decimal]) -> Decimal:
    """Counts of tokens at their prices per million: exact."""
    total = ZERO
    for tokens, price in parts:
        total = EXACT.add(total, EXACT.multiply(Decimal(tokens), price))
    return EXACT.divide(total, MILLION)


def _hour_writes(usage: Usage, details: dict[str, object]) -> int:
    """Of the tokens written to the cache, those that are kept for an hour. Source: Anthropic API, `usage.cache_creation`."""
    found = _at(details, ("cache_creation", "ephemeral_1h_input_tokens"))
    return min(found, usage.cache_write_tokens) if isinstance(found, int) and found > 0 else 0


# What costs more than its tokens, or other than text does, and where a provider's usage says that there was some.
_APART = {
    "tokens of sound": (
        ("prompt_tokens_details", "audio_tokens"),
        ("completion_tokens_details", "audio_tokens"),
    ),
    "searches": (
        ("server_tool_use", "web_search_requests"),  # Anthropic
        ("server_tool_use_details", "web_search_requests"),  # OpenRouter
        ("num_sources_used",),  # xAI: each source of a live search
        ("server_side_tool_usage", "web_search"),
        ("server_side_tool_usage_details", "web_search_calls"),  # xAI
    ),
    "tools that the provider ran": (("num_server_side_tools_used",),),  # xAI
    SEARCHED: (("num_search_queries",),),  # Perplexity
}


# Each count in these objects is of a tool that the provider ran, and these cost nothing. Source: Anthropic, Web fetch tool
# ("no additional charges beyond standard token costs").
_TOOL_COUNTS = (
    "server_tool_use",
    "server_tool_use_details",
    "server_side_tool_usage",
    "server_side_tool_usage_details",
)
_FREE_TOOLS = frozenset({"web_fetch_requests"})


def _billed_apart(details: dict[str, object]) -> str:
    for what, paths in _APART.items():
        for path in paths:
            count = _at(details, path)
            if isinstance(count, int | Decimal) and count > 0:
                return what
    for place in _TOOL_COUNTS:
        counts = details.get(place)
        for name, count in counts.items() if is_json_object(counts) else ():
            if name not in _FREE_TOOLS and isinstance(count, int | Decimal) and count > 0:
                return "tools that the provider ran"
    for place in ("promptTokensDetails", "candidatesTokensDetails"):  # Gemini lists its modalities
        listed = details.get(place)
        for one in listed if is_json_array(listed) else ():
            if is_json_object(one) and one.get("modality") == "AUDIO" and one.get("tokenCount"):
                return "tokens of sound"
    return ""


def _own_cost(details: dict[str, object], *, where: OwnCost) -> Decimal | None:
    cost = _amount(_at(details, where.path))
    if cost is None or not where.also or _at(details, where.also_if) is not True:
        return None if cost is None else EXACT.multiply(cost, where.unit_usd)
    more = _amount(_at(details, where.also))
    return None if more is None else EXACT.multiply(add(cost, more), where.unit_usd)


def _amount(value: object) -> Decimal | None:
    """A sum of money that a provider named; None for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        amount = Decimal(value)
    except (InvalidOperation, ValueError):
        return None
    if not amount.is_finite() or amount < 0 or amount.adjusted() > MOST_DIGITS:
        return None
    exponent = amount.as_tuple().exponent
    return amount if isinstance(exponent, int) and exponent >= FINEST else None


def _details(text: str) -> dict[str, object]:
    """The provider's own usage object, its numbers as they were written."""
    if not text:
        return {}
    try:
        return _exact_decoder.decode(text)
    except (msgspec.DecodeError, InvalidOperation, RecursionError):
        return {}


_exact_decoder = msgspec.json.Decoder(dict[str, object], float_hook=Decimal)


def _at(details: dict[str, object], path: tuple[str, ...]) -> object:
    value: object = details
    for key in path:
        if not is_json_object(value):
            return None
        value = value.get(key)
    return value


# What a request will cost at most, before it is sent: what limits of cost decide by.
#
# The prompt is weighed at the dearest price that it can have (a cache may be written and need not be hit), the output at the
# dearer of text and reasoning. Where a cache is asked for that is kept for an hour (`PriceRow.asks_hour`), writing it counts,
# too. A faster or nearer service that is asked for (`PriceRow.asked_terms`) counts at its own price.


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
                _most_usd(tier, input_tokens=input_tokens, output_tokens=output_tokens, asks_hour=hour)
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


def _most_usd(prices: TokenPrices, *, input_tokens: int, output_tokens: int, asks_hour: bool) -> Decimal:
    of_input = (prices.input, prices.cache_read, prices.cache_write, prices.cache_write_1h if asks_hour else None)
    dearest_input = max([one for one in of_input if one is not None])
    dearest_output = prices.output if prices.reasoning is None else max(prices.output, prices.reasoning)
    return tokens_usd((input_tokens, dearest_input), (output_tokens, dearest_output))


# What a provider's cache has kept, and what was written to it and never read: by counts alone.


MOST_LOOKED_AT = 50  # writes: a read that ends inside an earlier one is of a recent one, or of its session's first


class CacheCounts(NamedTuple):
    """What one request read from the cache and wrote to it. `endpoint` is a provider and a model: others share no cache."""

    session: str
    endpoint: str
    read: int
    written: int


def kept_tokens(usage: Usage, *, is_asked: bool, has_hit: bool) -> int:
    """How much of the prompt that was counted so its provider has kept. `is_asked`: it keeps what was marked alone, and tells
    what it wrote. Others tell nothing, so a prompt counts as kept once something of one has been read (`has_hit`)."""
    if is_asked or usage.cache_write_tokens:
        return usage.cache_read_tokens + usage.cache_write_tokens
    return usage.input_tokens if has_hit or usage.cache_read_tokens else 0


class _Write(NamedTuple):
    """The part of a prompt that a request wrote: from the token where its read ended."""

    place: int
    begins: int
    ends: int


class _Writes:
    """Of one session, or of a whole endpoint."""

    def __init__(self) -> None:
        self._by_end: dict[int, _Write] = {}
        self._listed: list[_Write] = []

    def add(self, write: _Write) -> None:
        self._by_end[write.ends] = write
        self._listed.append(write)

    def read_by(self, tokens: int) -> _Write | None:
        """The write whose end a read of so many tokens has reached: a provider reads up to a place where it wrote. Else the
        latest one that it ends inside of: what was marked there were the tools or the system text."""
        if (exact := self._by_end.get(tokens)) is not None:
            return exact
        looked_at = (*reversed(self._listed[-MOST_LOOKED_AT:]), *self._listed[:1])
        return next((one for one in looked_at if one.begins < tokens < one.ends), None)


def unread_tokens(requests: Iterable[CacheCounts]) -> list[int]:
    """Of each request, in the order in which they left, the tokens that it wrote and no later one has read."""
    unread: list[int] = []
    of_sessions: dict[tuple[str, str], _Writes] = {}
    of_endpoints: dict[str, _Writes] = {}
    for place, one in enumerate(requests):
        own = of_sessions.setdefault((one.session, one.endpoint), _Writes())
        every = of_endpoints.setdefault(one.endpoint, _Writes())
        if one.read and (found := own.read_by(one.read) or every.read_by(one.read)) is not None:
            unread[found.place] = min(unread[found.place], found.ends - one.read)
        unread.append(one.written)
        if one.written:
            write = _Write(place, one.read, one.read + one.written)
            own.add(write)
            every.add(write)
    return unread


def unread_usd(cache_write_usd: Decimal, *, unread: int, written: int) -> Decimal:
    """What the unread part of a write cost more than plain input."""
    if unread == written:
        return cache_write_usd
    share = EXACT.divide(EXACT.multiply(cache_write_usd, Decimal(unread)), Decimal(written))
    return share.quantize(SHARE_PLACES, context=EXACT)
