"""What a client with a key of the journal may use: its models, its limits by period, and what it is told where one is reached."""

import fnmatch
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from functools import cache
from math import inf

import msgspec

from turnwise.journal.gateway_rows import COUNTED, PERIODS, STREAMS, GatewayOwner, OwnerKind, OwnerSet, Period
from turnwise.journal.request_budgets import ROWS, BudgetAsk, BudgetRefusal, RequestLimits
from turnwise.rules.pricing import usd_said
from turnwise.rules.reservations import BudgetState
from turnwise.vocab import Fault, FaultKind

_log = logging.getLogger("turnwise")

# --- periods, and what a client asks of budgets


class PeriodSpan(msgspec.Struct, frozen=True):
    """The period of a moment: its name in a row, and when it ends (UTC, seconds since 1970)."""

    name: str
    ends: float


def span_of(period: Period, *, at: float, zone: tzinfo = UTC) -> PeriodSpan:
    """Days begin at midnight of the zone, weeks on Monday, months on the first."""
    if period == "minute":
        number = int(at // 60)
        return PeriodSpan(str(number), (number + 1) * 60.0)
    today = datetime.fromtimestamp(at, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "day":
            first, after = today, today + timedelta(days=1)
        case "week":
            first = today - timedelta(days=today.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            after = (first + timedelta(days=31)).replace(day=1)
    return PeriodSpan(first.date().isoformat(), after.timestamp())


@cache
def zone_of(name: str) -> tzinfo:
    """UTC for a name that this machine does not know: what is limited stays limited."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # loaded only where a zone is named

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        _log.error("gateway: the time zone `%s` is not known on this machine: budgets go by UTC", name)
        return UTC


class _Limit(msgspec.Struct, frozen=True):
    """The limits of one owner in one period."""

    kind: OwnerKind
    owner: str
    period: Period
    zone: tzinfo
    limits: RequestLimits


class LimitedClient(msgspec.Struct, frozen=True, kw_only=True):
    """A client with a key of the journal. `models` are the patterns of its key, its user and its team, each None or some."""

    name: str
    team: str = ""
    rights: str = ""
    models: tuple[tuple[str, ...], ...] = ()
    unknown_price: str = "refuse"
    expires: float = inf
    limits: tuple[_Limit, ...] = ()
    streams: tuple[BudgetAsk, ...] = ()

    @property
    def admin(self) -> bool:
        """Whether it may read the counts."""
        return self.rights in ("metrics", "admin")

    def why_not(self, model: str) -> str:
        """Why the client may not name this model; empty if it may."""
        if all(any(fnmatch.fnmatchcase(model, pattern) for pattern in patterns) for patterns in self.models):
            return ""
        return f"this key may not use the model `{model}`"

    def asks(self, at: float) -> tuple[BudgetAsk, ...]:
        """What a request at that time needs parts of."""
        if not self.limits:
            return self.streams
        return (*self.streams, *[_ask_of(limit, at=at) for limit in self.limits])

    def asks_of_minute(self, at: float) -> tuple[BudgetAsk, ...]:
        """What a request at that time for which nothing leaves needs parts of."""
        found = [
            _ask_of(limit, at=at) for limit in self.limits if limit.period == "minute" and limit.limits[0] is not None
        ]
        return tuple([msgspec.structs.replace(ask, limits=(ask.limits[0], None, None)) for ask in found])


_asks: dict[_Limit, BudgetAsk] = {}
MOST_ASKS = 10_000


def _ask_of(limit: _Limit, *, at: float) -> BudgetAsk:
    found = _asks.get(limit)
    if found is not None and at < found.ends and at >= found.begins:
        return found
    span = span_of(limit.period, at=at, zone=limit.zone)
    if len(_asks) >= MOST_ASKS:
        _asks.clear()
    row = f"{ROWS}{limit.kind}/{limit.owner}/{limit.period}/{span.name}"
    made = BudgetAsk(row, limit.kind, limit.owner, limit.period, limit.limits, span.ends, begins=at)
    _asks[limit] = made
    return made


def client_of(key: GatewayOwner, owners: OwnerSet) -> LimitedClient:
    """The key with the terms of its user and its team."""
    named: list[tuple[OwnerKind, str, GatewayOwner | None]] = [
        ("key", key.name, key),
        ("user", key.user, owners.users.get(key.user)),
        ("team", key.team, owners.teams.get(key.team)),
    ]
    limits, streams = list[_Limit](), list[BudgetAsk]()
    for kind, name, owner in named:
        if owner is None:
            continue
        terms = owner.terms
        for period in PERIODS:
            told = [terms.limits.get(f"{what}/{period}") for what in COUNTED]
            if any(one is not None for one in told):
                limits.append(_Limit(kind, name, period, zone_of(terms.zone), _limits_of(told)))
        if (most := terms.limits.get(STREAMS)) is not None:
            row = f"{ROWS}{kind}/{name}/{STREAMS}"
            streams.append(BudgetAsk(row, kind, name, "", (int(most), None, None), inf, is_open=True))
    known = [owner for _, _, owner in named if owner is not None]
    ends = [owner.terms.expires for owner in known if owner.terms.expires is not None]
    ends += [owner.revoked for owner in known if owner.revoked is not None]
    return LimitedClient(
        name=key.name,
        team=key.team,
        rights=key.rights,
        models=tuple([owner.terms.models for owner in known if owner.terms.models]),
        unknown_price=next((o.terms.unknown_price for o in known if o.terms.unknown_price != "refuse"), "refuse"),
        expires=min(ends, default=inf),
        limits=tuple(limits),
        streams=tuple(streams),
    )


def _limits_of(told: Sequence[Decimal | None]) -> RequestLimits:
    requests, tokens, usd = told
    return (None if requests is None else int(requests), None if tokens is None else int(tokens), usd)


MOST_TOLD = 500


def used_ratios(
    clients: Iterable[LimitedClient], held: Mapping[str, BudgetState], *, at: float
) -> dict[tuple[str, str, str], float]:
    """How much of each budget is spent in its period, 1 for all of it, by kind, owner and limit: those of teams, and then the
    fullest. Minutes are over before anybody looks."""
    found: dict[tuple[str, str, str], float] = {}
    for limit in {limit for client in clients for limit in client.limits if limit.period != "minute"}:
        state = held.get(_ask_of(limit, at=at).row)
        for nth, most in enumerate(limit.limits):
            if most:
                used = 0 if state is None else state.used[nth]
                found[limit.kind, limit.owner, f"{COUNTED[nth]}/{limit.period}"] = float(Decimal(used) / Decimal(most))
    first = sorted(found, key=lambda one: (one[0] != "team", -found[one], one))[:MOST_TOLD]
    return {one: found[one] for one in first}


# --- what a client is told whose budget is used up

OVER_BUDGET = "budget_exceeded"
OVER_RATE = "rate_limit_exceeded"
NO_PRICE = "price_unknown"
LONGEST_RETRY_S = 60.0  # the SDKs of OpenAI and Anthropic wait so long at most where they are told to try again
OWN_CODES = frozenset({OVER_BUDGET, OVER_RATE, NO_PRICE})


def fault_of(refusal: BudgetRefusal) -> Fault:
    """402 where money is used up, 429 where requests, tokens or streams are; the message says of whom, and when to come again."""
    ask, what, again_s = refusal.ask, refusal.what, refusal.retry_after_s
    whose = f"the {ask.kind} `{ask.owner}`"
    if what == "price":
        said = (
            f"{whose} has a budget in dollars, and no price is known for the model `{refusal.model}`: the operator adds one "
            "to the prices, or lets the key count it at a rate"
        )
        return Fault(kind=FaultKind.QUOTA, message=said, status=402, code=NO_PRICE, should_retry=False)
    if what == STREAMS:
        said = f"{whose} has {refusal.limit:,} requests under way, as many as it may"
    else:
        most, needs, free = [_said(what, amount) for amount in (refusal.limit, refusal.needed, refusal.free)]
        said = f"{whose} may use {most} a {ask.period}; {free} are free now, and this request may need {needs}"
    if again_s is None and what in ("tokens", "usd"):
        said += ": ask for a shorter answer"
    status, kind, code = (
        (402, FaultKind.QUOTA, OVER_BUDGET) if refusal.is_money else (429, FaultKind.RATE_LIMITED, OVER_RATE)
    )
    if again_s is not None:
        again_s = float(math.ceil(again_s))
        said += f"; come again in {again_s:.0f} s"
    return Fault(kind=kind, message=said, status=status, code=code, should_retry=False, retry_after_s=again_s)


def _said(what: str, amount: int | Decimal) -> str:
    return usd_said(Decimal(amount)) if what == "usd" else f"{amount:,} {what}"
