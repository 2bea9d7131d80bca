"""What is recorded of one client's request: in the ledger before anything is sent, and in counts, log and report afterwards.

The counts belong to this process and are lost with it, as Prometheus expects; lasting records are in the ledger and the report.
"""

import asyncio
import contextlib
import logging
import secrets
from asyncio import Future
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from turnwise.agent.written_lines import WrittenLines
from turnwise.assembly.evidence import Witness
from turnwise.base.clock import Clock, SystemClock
from turnwise.errors import JournalFailed
from turnwise.gateway.client_limits import LimitedClient, fault_of
from turnwise.gateway.doors import ClientCall, ClientGone, DoorReason, Outlet, PieceWriter
from turnwise.gateway.request_costs import output_tokens, part_of, prompt_tokens
from turnwise.gateway.unreachable_store import SEEN_S, Loan, StoreOutage, UnreachableStore
from turnwise.gateway.worker_counts import CountLabels, CountsFile, CountsState, Joined, added, tell_often
from turnwise.journal.direct_ledger import ANY, LedgerLine, RepairSeen, gateway_session
from turnwise.journal.file import BUSY_S
from turnwise.journal.journal import journal_path
from turnwise.journal.ledger import (
    CANCELLED,
    COUNTS,
    OK,
    Ledger,
    LedgerEntry,
    ReceivedResponse,
    ended_entry,
    joined_entry,
    tells_usage,
)
from turnwise.journal.ledger_thread import BudgetFull, LedgerThread
from turnwise.journal.prices import NO_PRICES, Prices, prices_of_layers
from turnwise.journal.request_budgets import RequestPart, count_request
from turnwise.relay.breaches import blames_provider
from turnwise.relay.client_exchange import RelayEnd
from turnwise.rules.pricing import NO_PRICE, NO_RATE, ZERO
from turnwise.settings.settings import Layer, durability_of, read_layers
from turnwise.telemetry.names import SpanFacts
from turnwise.telemetry.telemetry import Telemetry, telemetry_of
from turnwise.turn.events import Purpose
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Request, Response, Usage
from turnwise.wire.family import AnswerStamp
from turnwise.wire.json_fields import UNREADABLE, is_object, read_fields
from turnwise.wire.openai_chat.endings import counted
from turnwise.wire.profiles import FamilyName

if TYPE_CHECKING:
    from turnwise.telemetry.gateway_spans import GatewayTrace, UpstreamSpan

# --- counts, in Prometheus' text format (its documentation, "Exposition formats")

MOST_TEAMS = 100
MOST_MODELS = (
    200  # models that no file names: a client may name any model, and each name is a time series that Prometheus keeps
)
OTHER = "(other)"
LONGEST_LABEL = 120  # characters


# Upper bounds of seconds: from what the gateway adds by itself to the longest answers. Prometheus adds one for all the rest.
BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)


class Metric(msgspec.Struct, frozen=True):
    """One metric: its meaning, and the labels that distinguish its values."""

    help: str
    labels: tuple[str, ...]
    type: str = "counter"
    joined: Joined = "sum"  # of several workers


WITHOUT_PRICE = "turnwise_gateway_requests_without_price_total"
METRICS: dict[str, Metric] = {
    "turnwise_gateway_requests_total": Metric(
        "Requests of clients that have ended, by how: whole, fault (an error was the answer, or its end), left, refused "
        "(at the doors).",
        ("family", "kind", "status", "end"),
    ),
    "turnwise_gateway_refusals_total": Metric("Requests that the doors refused, by reason.", ("reason",)),
    "turnwise_gateway_open_requests": Metric("Requests of clients that are being served.", (), "gauge"),
    "turnwise_gateway_last_reload_good": Metric(
        "Whether the configuration could be used when it was last read: 1 or 0.", (), "gauge", "min"
    ),
    "turnwise_gateway_upstream_left_alone": Metric(
        "Whether an upstream and key is left alone for all of its models, after it failed.",
        ("upstream",),
        "gauge",
        "max",
    ),
    "turnwise_gateway_store_reachable": Metric(
        "Whether the journal could be written when it was last tried: 1 or 0.", (), "gauge", "min"
    ),
    "turnwise_gateway_budget_used_ratio": Metric(
        "How much of a budget is spent in its period: 1 is all of it.", ("kind", "owner", "limit"), "gauge", "max"
    ),
    "turnwise_gateway_answer_bytes": Metric("Bytes of the answers that are under way.", (), "gauge"),
    "turnwise_gateway_request_seconds_total": Metric("Seconds that requests of clients took.", ("family", "kind")),
    "turnwise_gateway_duration_seconds": Metric(
        "Seconds from a client's request to the end of its answer.", ("provider", "model", "route", "team"), "histogram"
    ),
    "turnwise_gateway_first_token_seconds": Metric(
        "Seconds from a client's request to the first event of the upstream's stream.",
        ("provider", "model", "route", "team"),
        "histogram",
    ),
    "turnwise_gateway_queue_seconds": Metric(
        "Seconds from a client's request until a request for it went upstream.",
        ("provider", "model", "route", "team"),
        "histogram",
    ),
    "turnwise_gateway_upstream_requests_total": Metric(
        "Requests to providers, by purpose and outcome.", ("provider", "model", "purpose", "outcome")
    ),
    "turnwise_gateway_requests_without_usage_total": Metric(
        "Requests to providers whose tokens nobody told: they are in no sum of tokens.",
        ("provider", "model", "purpose"),
    ),
    WITHOUT_PRICE: Metric(
        "Requests to providers whose tokens are known and whose price is not: they are in no sum of money.",
        ("provider", "model", "purpose"),
    ),
    "turnwise_gateway_joined_requests_total": Metric(
        "Requests of clients that got the answer to an equal one: nothing more went upstream for them.", ("route",)
    ),
    "turnwise_gateway_tokens_total": Metric("Tokens that providers reported.", ("provider", "model", "kind")),
    "turnwise_gateway_repairs_total": Metric("What was mended, by kind.", ("provider", "model", "kind")),
}


class GatewayCounts:
    """Only the event loop's thread changes them; others append the provider, model and purpose of a request to `without_price`.
    `file`: where one of several workers tells them to the others. `fullness` tells how much of each budget is spent."""

    def __init__(
        self, *, file: Path | None = None, fullness: "Callable[[], Mapping[CountLabels, float]]" = dict
    ) -> None:
        gauges = frozenset([name for name, metric in METRICS.items() if metric.type == "gauge"])
        self._file = None if file is None else CountsFile(file, gauges=gauges)
        self._fullness = fullness
        self.measure: Callable[[], None] = lambda: None  # sets the gauges, each time before they are told
        self._teams: dict[str, None] = {}
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in METRICS}
        # Of each histogram: how many were in each bucket, in the last one the rest, and behind it the sum of seconds.
        self._seconds: dict[str, dict[tuple[str, ...], list[float]]] = {name: {} for name in METRICS}
        self._values["turnwise_gateway_open_requests"][()] = self._values["turnwise_gateway_answer_bytes"][()] = 0
        self._values["turnwise_gateway_last_reload_good"][()] = 1
        self._values["turnwise_gateway_store_reachable"][()] = 1
        self.without_price: deque[tuple[str, str, str]] = deque()
        self._configured: frozenset[str] = frozenset()
        self._served: dict[tuple[str, str], None] = {}  # the last used one comes last

    def configure(self, models: Iterable[str]) -> None:
        """The names in the configuration are always labels."""
        self._configured = frozenset(models)

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        values = self._values[name]
        values[labels] = values.get(labels, 0) + amount

    def took(self, name: str, *labels: str, seconds: float) -> None:
        """One more value of a histogram."""
        found = self._seconds[name].setdefault(labels, [0] * (len(BUCKETS) + 2))
        found[bisect_left(BUCKETS, seconds)] += 1
        found[-1] += seconds

    def count_prices(self) -> None:
        """What other threads have found is counted."""
        while self.without_price:
            provider, model, purpose = self.without_price.popleft()
            self.add(WITHOUT_PRICE, provider, self.model_label(provider, model, has_served=True), purpose)

    def set(self, name: str, amount: float) -> None:
        self._values[name][()] = amount

    def set_each(self, name: str, amounts: Mapping[str, float]) -> None:
        """The values of a gauge with one label, in place of those before."""
        self._values[name] = {(label,): amount for label, amount in amounts.items()}

    def refused(self, reason: DoorReason, *, family: FamilyName, kind: str, status: int) -> None:
        """The doors have refused a request."""
        self.add("turnwise_gateway_refusals_total", reason)
        self.add("turnwise_gateway_requests_total", family, kind, str(status), "refused")

    def model_label(self, provider: str, model: str, *, has_served: bool) -> str:
        """The model's name, or the label for all other models. The latter is for names that are in no file and for which no
        upstream has answered. `has_served` says that one just has. If there are more than `MOST_MODELS` of them, the model that
        was idle longest gives way."""
        label = model[:LONGEST_LABEL]
        if model in self._configured:
            return label
        key = (provider, label)
        if key not in self._served and not has_served:
            return OTHER
        self._served.pop(key, None)
        self._served[key] = None
        if len(self._served) > MOST_MODELS:
            self._fold(*next(iter(self._served)))
        return label

    def team_label(self, team: str) -> str:
        """The team's name, or the label for all further ones."""
        if len(self._teams) < MOST_TEAMS:
            self._teams[team] = None
        return team if team in self._teams else OTHER

    @contextlib.asynccontextmanager
    async def told(self) -> AsyncGenerator[None]:
        """Until the end of the block, other workers know these counts as they were a second ago."""
        telling = None if self._file is None else asyncio.ensure_future(tell_often(self._tell))
        try:
            yield
        finally:
            if telling is not None:
                telling.cancel()
                self._tell()

    def _tell(self) -> None:
        if self._file is not None:
            self._file.tell(self._own())

    def _own(self) -> CountsState:
        """Of this worker, as it is now: a gauge that stayed as it was at this worker's last scrape would mislead the others."""
        self.measure()
        self.count_prices()
        self._values["turnwise_gateway_budget_used_ratio"] = dict(self._fullness())
        return CountsState(self._values, self._seconds)

    def _of_all(self) -> CountsState:
        """Of all workers."""
        own = self._own()
        if self._file is None:
            return own
        joined: dict[str, Joined] = {name: metric.joined for name, metric in METRICS.items()}
        return added([self._file.told(own), *self._file.others()], joined=joined)

    def _fold(self, provider: str, label: str) -> None:
        """Move the counts of a model to the label for others, so that sums over models never fall."""
        del self._served[provider, label]
        for name, metric in METRICS.items():
            if metric.labels[:2] != ("provider", "model"):
                continue
            values = self._values[name]
            for labels in [labels for labels in values if labels[:2] == (provider, label)]:
                self.add(name, provider, OTHER, *labels[2:], amount=values.pop(labels))
            seconds = self._seconds[name]
            for labels in [labels for labels in seconds if labels[:2] == (provider, label)]:
                moved, others = seconds.pop(labels), seconds.get((provider, OTHER, *labels[2:]))
                if others is not None:
                    moved = [one + other for one, other in zip(moved, others, strict=True)]
                seconds[provider, OTHER, *labels[2:]] = moved

    def text(self) -> bytes:
        """All counts in the text format."""
        lines: list[str] = []
        found = self._of_all()
        for name, metric in METRICS.items():
            lines += (f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}")
            lines += [
                f"{name}{_labels(dict(zip(metric.labels, labels, strict=True)))} {_number(value)}"
                for labels, value in found.values[name].items()
            ]
            for labels, seconds in found.seconds[name].items():
                lines += _histogram(name, dict(zip(metric.labels, labels, strict=True)), seconds)
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _histogram(name: str, labels: Mapping[str, str], seconds: Sequence[float]) -> Iterator[str]:
    """The lines of one histogram: each bucket has those below it, too."""
    *buckets, total_s = seconds
    for bound, sofar in zip((*BUCKETS, "+Inf"), accumulate(buckets), strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': str(bound)})} {sofar:.0f}"
    yield f"{name}_sum{_labels(labels)} {total_s:.6f}"
    yield f"{name}_count{_labels(labels)} {sum(buckets):.0f}"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


# --- the log: one line each, for people or as JSON

FIELDS = "turnwise_fields"
"""The attribute of a log record that holds its fields, for a log in JSON."""


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{_time_of(record)} {one_line(record.getMessage())}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: object = getattr(record, FIELDS, None)
        told = {"message": record.getMessage()} if fields is None else msgspec.to_builtins(fields)
        line = {"time": _time_of(record), "level": record.levelname.lower(), **told}
        return msgspec.json.encode(line).decode()


class LogLines(logging.Handler):
    """Writes to `stream` in a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines = WrittenLines(stream, dropped_line=self._dropped_line)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put(self.format(record))

    def close(self) -> None:
        """Write the waiting lines, if somebody reads them in time."""
        self._lines.close()
        super().close()

    def _dropped_line(self, why: str) -> str:
        return self.format(logging.makeLogRecord({"msg": why, "levelname": "WARNING", "levelno": logging.WARNING}))


@contextlib.contextmanager
def logging_to(stream: TextIO, *, as_json: bool, quiet: bool, first: str = "") -> Generator[None]:
    """Until the end of the block, the log goes there. `quiet`: only errors. `first` is an error that it begins with."""
    log, handler = logging.getLogger("turnwise"), LogLines(stream)
    handler.setFormatter(_Json() if as_json else _Plain())
    before = log.level, log.propagate
    log.addHandler(handler)
    handler.setLevel(logging.ERROR if quiet else logging.INFO)  # the log itself may tell others more
    log.setLevel(handler.level)
    log.propagate = False
    if first:
        log.error("gateway: %s", first)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
        handler.close()


def one_line(text: str) -> str:
    """The text without characters that would end the line or control a terminal."""
    return "".join([character if character.isprintable() else "�" for character in text])


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_log = logging.getLogger("turnwise")

LONGEST_NAME = 100  # characters of a model's name in a line

# Nothing is sent that is not in the ledger: otherwise the provider could bill requests that nobody can find again.
NO_LEDGER = Fault(
    kind=FaultKind.SERVER,
    message="the gateway cannot write its ledger, so it sent nothing; its log says why",
    status=500,
    should_retry=False,
)


class AccountMeans(msgspec.Struct, frozen=True, kw_only=True):
    """Where accounts are written. Without a `ledger` nothing is kept, for a trial run. `telemetry` makes a span for each
    request. `read_prices` reads the user's prices again. `holder` is this gateway's name in budgets. `outage` lets requests leave
    while the ledger cannot be written. `new_id` draws what an answer is known by that has no id of its own."""

    ledger: LedgerThread | None = None
    counts: GatewayCounts = msgspec.field(default_factory=GatewayCounts)
    prices: Prices = NO_PRICES
    read_prices: Callable[[], Prices] | None = None
    clock: Clock = msgspec.field(default_factory=SystemClock)
    telemetry: Telemetry | None = None
    holder: str = ""
    outage: StoreOutage | None = None
    new_id: Callable[[], str] = partial(secrets.token_hex, 12)

    @property
    def is_well(self) -> bool:
        """Whether the ledger can be written; after a failure each question is an attempt, too."""
        return self.ledger is None or self.ledger.is_well

    @property
    def is_ready(self) -> bool:
        return self.is_well or (self.outage is not None and self.outage.goes_on)


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that goes upstream. `ended` is called once, whatever its outcome."""

    account: "Account"
    entry: LedgerEntry
    line: LedgerLine | None
    asked_hour: bool
    asked: tuple[str, ...]
    family: str
    span: "UpstreamSpan | None" = None
    loan: Loan | None = None

    @property
    def traceparent(self) -> tuple[tuple[str, str], ...]:
        """The header for an upstream that joins the trace."""
        return () if self.span is None else self.span.traceparent

    def ended(self, received: ReceivedResponse | None, *, witness: Witness | None = None) -> None:
        """The request is over. None: no byte of it has left. `witness` kept what came."""
        self.account.note(self, received, witness=witness)


class RequestLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a client, as its log line shows it. `requests` went upstream; `provider` and `model` are those of the last
    one. `without_usage` are those whose tokens are unknown. `not_carried` names fields of the request. `fault` is the kind of
    failure that the client was told, `refused` if nothing was sent. `joined` is the request whose answer it got."""

    request: str
    client: str = ""
    family: str
    kind: str
    provider: str = ""
    model: str = ""
    status: int
    end: str
    seconds: float
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    without_usage: int = 0
    repairs: dict[str, int] = {}
    not_carried: tuple[str, ...] = ()
    fault: str = ""
    joined: str = ""


class WatchedOutlet:
    """An outlet that remembers the status that the client got."""

    def __init__(self, outlet: Outlet) -> None:
        self.status = 0
        self._outlet = outlet
        self.send = outlet.send
        self.gone = outlet.gone

    @property
    def direct(self) -> PieceWriter | None:
        return self._outlet.direct

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        await self._outlet.start(status, headers)
        self.status = status


class _HeardAnswer(msgspec.Struct):
    """The answer to one upstream request, and the repairs that it needed."""

    entry: LedgerEntry
    family: str
    kinds: Counter[str]
    witness: Witness | None

    def seen(self, day: str) -> Iterator[RepairSeen]:
        """One row for each kind of repair, and one for the request if the provider is to blame for any of them."""
        entry, family = self.entry, self.family
        told = [(kind, times, self.witness.events(kind) if self.witness else ()) for kind, times in self.kinds.items()]
        if any(blames_provider(kind, family=family) for kind in self.kinds):
            told.append((ANY, 1, ()))
        for kind, times, events in told:
            yield RepairSeen(
                day=day,
                provider=entry.provider,
                family=family,
                model=entry.model,
                kind=kind,
                times=times,
                events=events,
            )


class Account:
    """The account of one client's request, with everything that goes upstream for it."""

    def __init__(self, call: ClientCall, *, means: AccountMeans) -> None:
        self._call = call
        self._means = means
        self._books = Ledger(root_session=gateway_session(call.client), root_turn=call.id)
        self._number = 0
        self._last = ("", "")  # provider and model
        self._tokens = (0, 0)
        self._without_usage = 0  # requests whose tokens are unknown
        self._repairs: Counter[str] = Counter()
        self._answers: list[_HeardAnswer] = []
        self._of_models: list[tuple[str, str, str, tuple[str, ...], int]] = []  # not counted yet
        self._served: set[tuple[str, str]] = set()  # provider and model of the upstreams that answered
        self._relayed = 0  # how many of them belong to upstreams that are over
        self._fault = ""
        self._trace: GatewayTrace | None = None  # the span of the request
        self.stamp = AnswerStamp(id=means.new_id(), created_s=int(means.clock.now()))
        self._began_s = means.clock.monotonic()
        self._queue_s: float | None = None
        self._first_s: float | None = None
        self.route = ""  # the name of the route that serves it
        self.refused: Fault | None = None  # by a budget of the client, so no other upstream is asked
        self._token = ""  # names its parts of budgets: the client chooses its request's id
        self.not_carried: tuple[str, ...] = ()  # fields of the request that the last upstream did not get
        # If others may get the answer, too: waits until nobody does any more. For a client that has left.
        self.outlive: Callable[[Future[None]], Awaitable[None]] | None = None
        self._joined: Account | None = None  # of the request whose answer this one gets

    @contextlib.contextmanager
    def open(self, outlet: Outlet) -> Generator[WatchedOutlet]:
        """At the end of the block the request is over: it is counted, and its log line is written."""
        means = self._means
        spans = means.telemetry
        span = (
            contextlib.nullcontext() if spans is None else spans.gateway_span(dict(self._call.trace), clock=means.clock)
        )
        with span as self._trace, self._open(outlet) as watched:
            yield watched

    @contextlib.contextmanager
    def _open(self, outlet: Outlet) -> Generator[WatchedOutlet]:
        counts, clock, watched = self._means.counts, self._means.clock, WatchedOutlet(outlet)
        began_s = self._began_s = clock.monotonic()
        counts.add("turnwise_gateway_open_requests")
        end = "left"
        try:
            yield watched
            end = "fault" if self._fault or watched.status >= 400 else "whole"
        except ClientGone:
            raise
        except Exception:
            end, self._fault = "fault", "bug"
            raise
        finally:
            counts.add("turnwise_gateway_open_requests", amount=-1)
            if watched.status >= 400 and not self._fault:
                self._fault = "refused"
            self._close(end, status=watched.status, seconds=clock.monotonic() - began_s)

    def _close(self, end: str, *, status: int, seconds: float) -> None:
        call, counts = self._call, self._means.counts
        if self._joined is not None:
            self._last = self._joined._last
            self._enter_joined(self._joined.id)
        counts.add("turnwise_gateway_requests_total", call.family, call.kind, str(status or ""), end)
        counts.add("turnwise_gateway_request_seconds_total", call.family, call.kind, amount=float(seconds))
        self._count_models()
        counts.count_prices()
        self._count_seconds(seconds)
        line = RequestLine(
            request=call.id,
            client=call.client,
            family=call.family,
            kind=call.kind,
            provider=self._last[0],
            model=self._last[1][:LONGEST_NAME],
            status=status,
            end=end,
            seconds=round(seconds, 3),
            requests=self._number,
            input_tokens=self._tokens[0],
            output_tokens=self._tokens[1],
            without_usage=self._without_usage,
            repairs=dict(self._repairs),
            not_carried=self.not_carried,
            fault=self._fault,
            joined="" if self._joined is None else self._joined.id,
        )
        _log.info("%s", said_of(line), extra={FIELDS: line})
        if self._trace is not None:
            self._trace.learn(span_of(line))
        if (ledger := self._means.ledger) is not None:
            day = datetime.fromtimestamp(self._means.clock.now(), UTC).date().isoformat()
            if seen := [one for answer in self._answers for one in answer.seen(day)]:
                ledger.mended(seen)

    def _count_seconds(self, seconds: float) -> None:
        """Of requests that went upstream."""
        if self._queue_s is None:
            return
        provider, model = self._last
        counts = self._means.counts
        team = "" if self._call.limits is None else counts.team_label(self._call.limits.team)
        label = counts.model_label(provider, model, has_served=False)
        for name, value in (("duration", seconds), ("first_token", self._first_s), ("queue", self._queue_s)):
            if value is not None:
                counts.took(f"turnwise_gateway_{name}_seconds", provider, label, self.route, team, seconds=value)

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def has_begun(self) -> bool:
        """Whether an upstream's stream has begun."""
        return self._first_s is not None

    async def refuses_joining(self, other: "Account") -> Fault | None:
        """It asks no provider, but counts as a request of this minute."""
        client, ledger, now = self._call.limits, self._means.ledger, self._means.clock.now()
        asks = () if client is None or ledger is None else client.asks_of_minute(now)
        if not asks or ledger is None:
            return None
        part = RequestPart(id=secrets.token_hex(8), holder=self._means.holder, asks=asks, tokens=0, usd=lambda: ZERO)
        entry = joined_entry(self._entry("step", number=1, provider="", model="", sent_bytes=0), other=other.id)
        with contextlib.suppress(JournalFailed):  # it costs nothing
            refusal = await ledger.does(partial(count_request, part=part, entry=entry, now=now))
            return None if refusal is None else fault_of(refusal)
        return None

    def joins(self, other: "Account") -> None:
        """The request gets the answer to that one."""
        self._joined = other
        self._means.counts.add("turnwise_gateway_joined_requests_total", self.route)

    def _enter_joined(self, other: str) -> None:
        """In the ledger, as what costs nothing."""
        if (ledger := self._means.ledger) is not None:
            provider, model = self._last
            entry = self._entry("step", number=1, provider=provider, model=model, sent_bytes=0)
            ledger.entered(joined_entry(entry, other=other))

    def _entry(self, purpose: Purpose, *, number: int, provider: str, model: str, sent_bytes: int) -> LedgerEntry:
        return LedgerEntry(
            session=self._books.root_session,
            turn=self._books.root_turn,
            root_session=self._books.root_session,
            root_turn=self._books.root_turn,
            number=number,
            step=1,
            purpose=purpose,
            retry_of="step" if purpose == "retry" else None,
            provider=provider,
            model=model,
            started=self._means.clock.now(),
            sent_bytes=sent_bytes,
        )

    def began(self) -> None:
        """The first event of an upstream's stream has come."""
        if self._first_s is None:
            self._first_s = self._means.clock.monotonic() - self._began_s

    def upstream_said(self, told: str, *, provider: str) -> None:
        """Only for the log, and without anything that was sent to the upstream."""
        _log.warning("gateway: [%s] upstream %s: %s", self._call.id, provider, told)

    def relayed(self, end: RelayEnd) -> None:
        """What the relay did for the client, beside the repairs of single responses."""
        self._fault = "" if end.fault is None else str(end.fault.kind)
        answers, self._relayed = self._answers[self._relayed :], len(self._answers)
        own = Counter([repair.kind for repair in end.repairs])
        for answer in answers:
            own -= answer.kinds
        self._mended(own.elements(), *self._last)
        self._count_models()
        if answers:
            answers[0].kinds.update(own)  # the first of them was asked again, or continued

    def counted(
        self, provider: str, model: str, found: bytes | Fault, *, is_estimated: bool = False, purpose: str = "count"
    ) -> None:
        """Tokens were counted upstream, or (`is_estimated`) could not be, or something was passed on for nothing: no provider
        bills that, so the ledger does not have it."""
        self._last = (provider, model)
        outcome = str(found.kind) if isinstance(found, Fault) else OK
        self._fault = "" if outcome == OK or is_estimated else outcome
        self._count_of_model("turnwise_gateway_upstream_requests_total", provider, model, purpose, outcome)
        if outcome == OK:
            self._served.add((provider, model))
        self._count_models()

    def _count_of_model(self, name: str, provider: str, model: str, *labels: str, amount: int = 1) -> None:
        """The answers of a model decide its label: failed requests are asked again first."""
        self._of_models.append((name, provider, model, labels, amount))

    def _count_models(self) -> None:
        counts, waiting, self._of_models = self._means.counts, self._of_models, []
        for name, provider, model, labels, amount in waiting:
            label = counts.model_label(provider, model, has_served=(provider, model) in self._served)
            counts.add(name, provider, label, *labels, amount=amount)

    def _mended(self, kinds: Iterable[str], provider: str, model: str) -> None:
        for kind in kinds:
            self._repairs[kind] += 1
            if self._trace is not None:
                self._trace.repaired(kind)
            self._count_of_model("turnwise_gateway_repairs_total", provider, model, kind)

    def _count(self, entry: LedgerEntry, received: ReceivedResponse | None) -> None:
        provider, model = entry.provider, entry.model
        fault = FaultKind.UNREACHABLE if received is None else received.fault and received.fault.kind
        outcome = CANCELLED if received is not None and received.cancelled else str(fault or OK)
        self._count_of_model("turnwise_gateway_upstream_requests_total", provider, model, entry.purpose, outcome)
        if received is None:
            return
        if outcome == OK or received.first_event is not None:
            self._served.add((provider, model))
        response = received.response or received.partial
        usage = None if response is None else response.usage
        if not tells_usage(usage) and (outcome == OK or received.first_event is not None):
            self._without_usage += 1
            self._count_of_model("turnwise_gateway_requests_without_usage_total", provider, model, entry.purpose)
        if response is not None:
            self._mended([repair.kind for repair in response.repairs], provider, entry.model)
        self._count_tokens(usage, provider, model)
        if outcome == OK:
            self._count_models()

    def _count_tokens(self, usage: Usage | None, provider: str, model: str) -> None:
        if usage is None:
            return
        self._tokens = (self._tokens[0] + usage.input_tokens, self._tokens[1] + usage.output_tokens)
        for name in COUNTS:
            if number := getattr(usage, name):
                kind = name.removesuffix("_tokens")
                self._count_of_model("turnwise_gateway_tokens_total", provider, model, kind, amount=number)

    async def sends(
        self,
        purpose: Purpose,
        *,
        provider: str,
        model: str,
        sent_bytes: int,
        asked_hour: bool = False,
        asked: tuple[str, ...] = (),
        family: str = "",
        request: Request | None = None,
        body: bytes = b"",
    ) -> SentRequest | Fault:
        """On return the request is in the ledger, its budgets have room for it, and it may be sent; otherwise it must not be.
        `family` is the upstream's; `request` is None for a `body` that is passed on."""
        number = self._number + 1
        if number > 1 and purpose == "step":
            purpose = "retry"  # now another upstream is asked
        entry = self._entry(purpose, number=number, provider=provider, model=model, sent_bytes=sent_bytes)
        line, loan = None, None
        if self._means.ledger is not None:
            costs = partial(self._part, entry, request=request, body=body, asked=asked, asked_hour=asked_hour)
            part = costs()
            try:
                if (outage := self._means.outage) is not None:
                    line, loan = await outage.write(entry, part, costs=partial(costs, is_for_all=True))
                else:
                    leaving = self._means.ledger.leaves
                    line = await (leaving(entry) if part is None else leaving(entry, part=part))
            except JournalFailed:
                return NO_LEDGER
            except BudgetFull as full:
                self.refused = fault_of(full.refusal)
                if number > 1:  # the client may get the answer so far, without an error
                    _log.warning(
                        "gateway: [%s] a request to %s did not leave: %s", self._call.id, purpose, self.refused.message
                    )
                return self.refused
        self._number = number
        self._last = (provider, model)
        if self._queue_s is None:
            self._queue_s = self._means.clock.monotonic() - self._began_s
        span = None if self._trace is None else self._trace.asks(asked_of(entry))
        return SentRequest(
            account=self,
            entry=entry,
            line=line,
            asked_hour=asked_hour,
            asked=asked,
            family=family,
            span=span,
            loan=loan,
        )

    def _part(
        self,
        entry: LedgerEntry,
        *,
        request: Request | None,
        body: bytes,
        asked: tuple[str, ...],
        asked_hour: bool,
        is_for_all: bool = False,
    ) -> RequestPart | None:
        """What the request may cost at most, if anything of its client is limited, or `is_for_all`."""
        client, means = self._call.limits, self._means
        asks = () if client is None else client.asks(entry.started)
        if not asks and not is_for_all:
            return None
        self._token = self._token or secrets.token_hex(8)
        of_answer = output_tokens(request, body=body, model=entry.model, profile=entry.provider, path=self._call.path)
        return part_of(
            entry,
            asks,
            id=f"{self._token}.{entry.number}",
            holder=means.holder,
            client=client or LimitedClient(name=""),
            prices=means.prices,
            tokens=(prompt_tokens(request, sent_bytes=entry.sent_bytes), of_answer),
            asked=asked,
            asked_hour=asked_hour,
        )

    def note(self, sent: SentRequest, received: ReceivedResponse | None, *, witness: Witness | None) -> None:
        """The outcome of a request; None if it was never sent."""
        self._count(sent.entry, received)
        if sent.span is not None:
            sent.span.end(outcome_of(received))
        if received is None:
            self._number -= 1
        elif not received.cancelled:  # if the client left early, the answer's end is unknown
            response = received.response or received.partial
            kinds = Counter([] if response is None else [repair.kind for repair in response.repairs])
            self._answers.append(_HeardAnswer(sent.entry, sent.family, kinds, witness))
        if (ledger := self._means.ledger) is None or sent.line is None:
            return
        if received is None:
            ledger.stayed(sent.line)
            if sent.loan is not None:
                sent.loan.of.settle(sent.loan, ZERO)
        else:
            ledger.became(sent.line, partial(self._completed, sent, received, ended=self._means.clock.now()))

    def _completed(self, sent: SentRequest, received: ReceivedResponse, *, ended: float) -> LedgerEntry:
        """In the ledger's thread, one request after the other."""
        entry = sent.entry
        find = partial(self._means.prices.find, profile=entry.provider, at_s=entry.started)
        found = ended_entry(
            entry,
            received,
            ended=ended,
            row=find(entry.model),
            billed_in_step=self._books.billed_in_step(entry),
            asked_hour=sent.asked_hour,
            asked=sent.asked,
            row_of=find,
        )
        self._books.put(found)
        if found.usage is not None and found.price_note in (NO_PRICE.why, NO_RATE.why):
            self._means.counts.without_price.append((entry.provider, entry.model, entry.purpose))
        if sent.loan is not None:
            sent.loan.of.settle(sent.loan, found.usd)
        return found


def asked_of(entry: LedgerEntry) -> SpanFacts:
    """The fields of the span of a request that goes upstream."""
    from turnwise.telemetry.gateway_spans import of_attempt  # only if there are spans

    model = entry.model[:LONGEST_NAME]
    return of_attempt(provider=entry.provider, model=model, purpose=entry.purpose, number=entry.number)


def outcome_of(received: ReceivedResponse | None) -> SpanFacts:
    """What that span says in the end."""
    from turnwise.telemetry.gateway_spans import of_outcome  # as above

    if received is None:
        return of_outcome(tokens=(0, 0), fault=str(FaultKind.UNREACHABLE), is_sent=False, repairs=())
    response = received.response or received.partial
    usage = None if response is None else response.usage
    fault = CANCELLED if received.cancelled else str((received.fault and received.fault.kind) or "")
    return of_outcome(
        tokens=(0, 0) if usage is None else (usage.input_tokens, usage.output_tokens),
        fault=fault,
        is_sent=True,
        repairs=() if response is None else [repair.kind for repair in response.repairs],
    )


def span_of(line: RequestLine) -> SpanFacts:
    """The fields of a request's span."""
    from turnwise.telemetry.gateway_spans import of_answer  # as above

    return of_answer(
        provider=line.provider,
        model=line.model,
        tokens=(line.input_tokens, line.output_tokens),
        requests=line.requests,
        status=line.status,
        fault=line.fault or ("client_left" if line.end == "left" else ""),
        repairs=line.repairs,
    )


def said_of(line: RequestLine) -> str:
    """The line for people: it shows nothing but its fields."""
    upstream = f"{line.provider}:{line.model}" if line.provider else "nowhere"
    words = [
        f"gateway: {line.status or '-'} [{line.request}] {line.client or '-'} {line.family} {line.kind} -> {upstream}",
        f"{line.end} after {line.seconds:.2f} s",
        f"{line.requests} {'request' if line.requests == 1 else 'requests'}",
        f"{line.input_tokens:,} tokens in, {line.output_tokens:,} out",
        *[f"{kind} {number}" for kind, number in line.repairs.items()],
        *([f"not carried: {' '.join(line.not_carried)}"] if line.not_carried else []),
        *([f"fault {line.fault}"] if line.fault else []),
        *([f"joined {line.joined}"] if line.joined else []),
    ]
    return ", ".join(words)


def user_layers(env: Mapping[str, str]) -> list[Layer]:
    """A project's file may price models for runs in its folder: a server has no folder. Raises CallerError."""
    return [layer for layer in read_layers(Path.home(), env=env) if layer.source == "user"]


@contextlib.contextmanager
def open_accounts(
    env: Mapping[str, str],
    *,
    clock: Clock,
    counts: GatewayCounts | None = None,
    database: str | None = None,
    holder: str = "",
    rule: UnreachableStore | None = None,
) -> Generator[AccountMeans]:
    """Accounts in the user's journal, or in that of a `database`, with the user's prices. `rule` is for when that cannot be
    reached. Raises CallerError for unusable files."""
    layers = user_layers(env)
    goes_on = rule is not None and rule.goes_on_s > 0
    limit_s = SEEN_S if goes_on else BUSY_S
    ledger = LedgerThread(database or journal_path(env), clock=clock, durability=durability_of(layers), limit_s=limit_s)
    try:
        yield AccountMeans(
            ledger=ledger,
            counts=counts or GatewayCounts(),
            prices=prices_of_layers(layers, env=env),
            read_prices=lambda: prices_of_layers(user_layers(env), env=env),
            clock=clock,
            telemetry=telemetry_of(env),
            holder=holder,
            outage=StoreOutage(rule, ledger) if rule is not None and goes_on else None,
        )
    finally:
        ledger.close()


class _OnlyInput(msgspec.Struct, forbid_unknown_fields=True):
    """Usage of embeddings: no output is written. Source: OpenAI's reference, "Create embeddings"."""

    prompt_tokens: int
    total_tokens: int


def received_body(body: bytes | Fault) -> ReceivedResponse | None:
    """The answer to a request that is passed on unread; None if the request was never sent."""
    if isinstance(body, Fault):
        if body.kind is FaultKind.UNREACHABLE:
            return None
        return ReceivedResponse(fault=body, answered=body.status is not None, is_answer=body.status is not None)
    response = Response(message=Message("assistant", ()), finish=FinishReason.STOP, usage=_usage_in(body))
    return ReceivedResponse(response=response, received_bytes=len(body))


def _usage_in(body: bytes) -> Usage | None:
    with contextlib.suppress(*UNREADABLE):
        said = read_fields(body).get("usage")
        if said is not None and is_object(said):
            with contextlib.suppress(msgspec.ValidationError):
                only = msgspec.json.decode(said, type=_OnlyInput)
                if only.prompt_tokens == only.total_tokens >= 0:
                    return Usage(input_tokens=only.prompt_tokens, provider=bytes(said).decode())
            return counted(bytes(said))
    return None
