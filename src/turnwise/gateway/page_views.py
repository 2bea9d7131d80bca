"""What the page shows, from the ledger, the budgets and the counts: nothing is written down for it."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from turnwise.gateway.admin import usage_row
from turnwise.gateway.client_limits import span_of, zone_of
from turnwise.journal.direct_ledger import ANY, RepairBook, RepairSum
from turnwise.journal.gateway_rows import (
    COUNTED,
    PERIODS,
    STREAMS,
    GatewayBook,
    GatewayOwner,
    OwnerKind,
    by_owner,
    shown_owner,
)
from turnwise.journal.ledger_queries import LedgerReader, LedgerSpan, Total
from turnwise.journal.page_queries import PageQueries
from turnwise.journal.request_budgets import ROWS, held_rows
from turnwise.journal.stores import JournalStore
from turnwise.relay.breaches import breach_of, source_of

MINUTES = 60
FIRST_TOKENS_S = 900.0
ERRORS_DAYS, MOST_ERRORS = 7, 200
MOST_DAYS = 366
KEPT_TIMES, MOST_KEPT = 20, 32  # so that sums take a twentieth of a core at most, however many look
MOST_ROWS = 500  # of a table: the longest ones are cut, and say so

View = dict[str, Any]
"""One answer, as JSON has it."""

_GAUGE = re.compile(
    r'^turnwise_gateway_(open_requests|upstream_left_alone)(?:\{upstream="((?:[^"\\]|\\.)*)"[^}]*\})? (\S+)$', re.M
)
_ESCAPED = re.compile(r"\\(.)")


class PageViews:
    """Each method may have to wait for the journal; it raises CallerError."""

    def __init__(
        self,
        store: JournalStore,
        *,
        now: Callable[[], float],
        book: GatewayBook | None,
        counts: Callable[[], bytes] = lambda: b"",
    ) -> None:
        """Without a `book` it shows all requests of one user's own machine; with it those of a gateway's clients."""
        self._now, self._book, self._counts = now, book, counts
        self._known: dict[tuple[Callable[[float], View], float], tuple[float, View]] = {}
        self._ledger = LedgerReader(store)
        self._queries = PageQueries(store)
        self._repairs = RepairBook(transaction=store.transaction, statement=store.statement)

    def now(self, query: Mapping[str, str], /) -> View:
        """The last hour by minutes, first tokens, and how the upstreams do."""
        now = self._now()
        first = self._queries.first_tokens(self._span(now - FIRST_TOKENS_S))
        gauges = [(name, label, value) for name, label, value in _GAUGE.findall(self._counts().decode())]
        upstreams = [
            {"name": _ESCAPED.sub(r"\1", label), "left_alone": float(value) > 0}
            for name, label, value in gauges
            if name == "upstream_left_alone"
        ]
        opened = [int(float(value)) for name, _, value in gauges if name == "open_requests"]
        return {
            "now": now,
            "open": sum(opened) if opened else None,
            "minutes": self._queries.minutes(self._span((now // 60 - MINUTES + 1) * 60)),
            "first_token": {"of": len(first), "p50": _quantile(first, 0.5), "p99": _quantile(first, 0.99)},
            "upstreams": upstreams,
            "providers": self._repairs.requests(since_s=now - 3600)[:MOST_ROWS],
        }

    def spend(self, query: Mapping[str, str], /) -> View:
        """Sums of the last `days`, by day, by model, and by team; on one's own machine by purpose."""
        return self._kept(self._spend, since=self._since(query))

    def _spend(self, since: float) -> View:
        span = self._span(since)
        if self._book is None:
            third, totals = "purpose", self._ledger.totals(span, by="purpose")
        else:
            sessions = self._ledger.totals(span, by="session")
            third, totals = "team", by_owner(sessions, self._book.owners(), kind="team")
        models = self._ledger.totals(span, by="model")
        rows = {"day": self._ledger.totals(span, by="day"), "model": _dearest(models), third: _dearest(totals)}
        return {"by": third, **{by: list(map(usage_row, found)) for by, found in rows.items()}}

    def repairs(self, query: Mapping[str, str], /) -> View:
        """What was mended, by provider: those with the most repaired requests first."""
        return self._kept(self._mended, since=self._since(query))

    def _mended(self, since: float) -> View:
        sums = self._repairs.sums(since_day=datetime.fromtimestamp(since, UTC).date().isoformat())
        sent = self._repairs.requests(since_s=since)
        found: list[View] = []
        for provider in dict.fromkeys([one.provider for one in sums]):
            own = [one for one in sums if one.provider == provider]
            kinds = sorted([one for one in own if one.kind != ANY], key=lambda one: (-one.requests, one.kind))
            found.append(
                {
                    "provider": provider,
                    "requests": sum([one.requests for one in sent if one.provider == provider]),
                    "repaired": sum([one.requests for one in own if one.kind == ANY]),
                    "kinds": list(map(_repair, kinds))[:MOST_ROWS],
                }
            )
        return {"providers": sorted(found, key=lambda one: -one["repaired"])}

    def errors(self, query: Mapping[str, str], /) -> View:
        """The latest requests that a provider did not answer."""
        since = self._now() - timedelta(days=ERRORS_DAYS).total_seconds()
        return {"rows": self._queries.failed(self._span(since), most=MOST_ERRORS), "days": ERRORS_DAYS}

    def owners(self, query: Mapping[str, str], /) -> View:
        """Keys, users and teams, and where the budgets of the current periods stand."""
        if self._book is None:
            return {"keys": [], "users": [], "teams": [], "budgets": {}}
        owners, used = self._book.owners(), self._book.last_used()
        kinds: tuple[OwnerKind, ...] = ("key", "user", "team")
        shown = {
            f"{kind}s": [
                shown_owner(one, last_used=used.get(one.name) if kind == "key" else None)
                for one in owners.of(kind).values()
            ]
            for kind in kinds
        }
        return {**shown, "budgets": self._budgets({kind: owners.of(kind) for kind in kinds})}

    def _budgets(self, owners: Mapping[str, Mapping[str, GatewayOwner]]) -> dict[str, dict[str, str]]:
        """By `kind/name`: what is used or reserved of each limit, as texts."""
        assert self._book is not None
        found: dict[str, dict[str, str]] = {}
        for row in held_rows(self._book.store):
            kind, name, period, *span = row.name.removeprefix(ROWS).split("/")
            owner = owners.get(kind, {}).get(name)
            held = [part.amounts for part in row.state.parts.values()]
            own = found.setdefault(f"{kind}/{name}", {})
            if period == STREAMS:
                own[STREAMS] = str(len(held))
            elif owner is not None and period in PERIODS:
                current = span_of(period, at=self._now(), zone=zone_of(owner.terms.zone)).name
                if span == [current]:
                    sums = [row.state.used[nth] + sum([one[nth] for one in held]) for nth in range(len(COUNTED))]
                    own |= {f"{what}/{period}": f"{Decimal(sums[nth]):f}" for nth, what in enumerate(COUNTED)}
        return found

    def _kept(self, work: Callable[[float], View], *, since: float) -> View:
        """What `work` gives, or gave a moment ago: a sum of a long ledger counts for many times as long as it took."""
        began = time.monotonic()
        until, told = self._known.get((work, since), (0.0, {}))
        if began >= until:
            told, ended = work(since), time.monotonic()
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[work, since] = (ended + KEPT_TIMES * (ended - began), told)
        return told

    def _span(self, since: float) -> LedgerSpan:
        return LedgerSpan(since=since, gateway=self._book is not None)

    def _since(self, query: Mapping[str, str]) -> float:
        """The beginning of the first of so many days, by the user's own clock."""
        days = query.get("days", "")
        wanted = min(max(int(days), 1), MOST_DAYS) if days.isdecimal() and len(days) < 9 else 30
        today = datetime.fromtimestamp(self._now()).replace(hour=0, minute=0, second=0, microsecond=0)
        return (today - timedelta(days=wanted - 1)).timestamp()


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def _dearest(totals: Sequence[Total]) -> list[Total]:
    return sorted(totals, key=lambda one: (-one.cost.usd, -one.cost.requests, one.key))[:MOST_ROWS]


def _repair(one: RepairSum) -> View:
    breach = breach_of(one.kind, family=one.family)
    told = {} if breach is None else {"whose": breach.whose, "rule": breach.rule}
    source = "" if breach is None else source_of(breach, family=one.family)
    return {"whose": "", "rule": "", "source": source, **msgspec.structs.asdict(one), **told}
