"""What the ledger answers: totals by day, session, model or purpose, and what could have been saved."""

import functools
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from typing import Literal, NamedTuple, cast

import msgspec

from turnwise.errors import CallerError
from turnwise.journal.ledger import COLUMNS, JOINED, LEAST, PICO, LedgerEntry, Value, entry_from
from turnwise.journal.stores import Dialect, JournalConnection, JournalStore, Values
from turnwise.rules.pricing import EXACT, ZERO, CacheCounts, Cost, add, unread_tokens, unread_usd

By = Literal["day", "session", "model", "purpose"]

# Seen from the root, the requests of sub-agents are `child`; a day is one of the user's own clock.
_PURPOSE = "case when path = '[]' then purpose else 'child' end"
KEYS: dict[By, str] = {
    "day": "{day}",  # the database's own
    # `|| ''`: SQLite would walk the whole index of sessions to have them grouped, where only today's entries are wanted.
    "session": "root_session || ''",
    "model": "provider || ':' || model",
    "purpose": _PURPOSE,
}
AGAIN = "purpose in ('retry', 'continue')"
_SENT = f"coalesce(outcome, '') != '{JOINED}'"  # the others got the answer to another request
# The same as `LedgerEntry.saved_requests`.
_MORE = (
    "(case when outcome = 'ok' and discarded = 0 and calls > 0 then calls - 1 else 0 end + program_calls - programs)"
)
_BY_REQUEST = f"plan = 'request' and {_MORE} != 0"
# Not `tells_tokens`, the same of a row: one that was refused before it got any answer took none.
_UNTOLD = (
    "(input_tokens is null or output_tokens is null) and (ended is null or outcome = 'ok' or first_event is not null)"
)
_NOT_BY_TOKEN = "plan in ('request', 'step', 'free')"  # a cache changes nothing of their price
_LEAST = f"coalesce(priced_by = '{LEAST}', false)"
_SMALL = 10**12  # pico-dollars, a dollar: the sum has room for nine million requests at that price
# How many requests were saved, of how many of them the price is known, and what these would have cost.
_SAVED = f"""
    coalesce(sum({_MORE}) filter (where {_BY_REQUEST}), 0),
    coalesce(sum({_MORE}) filter (where {_BY_REQUEST} and usd is not null), 0),
    coalesce(sum({_MORE} * usd_pico) filter (where {_BY_REQUEST} and usd_pico <= {_SMALL}), 0),
    exact_sum(usd, {_MORE}) filter (where {_BY_REQUEST} and (usd_pico is null or usd_pico > {_SMALL}))"""


class LedgerSpan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which entries: from `since` to before `until` (UTC, seconds since 1970), of one `session` with its sub-agents;
    `gateway`: only those that the gateway sent for its clients."""

    since: float = 0.0
    until: float | None = None
    session: str | None = None
    gateway: bool = False


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """Several requests in one. `unfinished` have no known outcome; the counts of tokens leave out `tokens_unknown` of them, as
    nobody told what they took; `again` are the retries and continuations among them.
    `cache_saved_usd` sums those requests for which it is known; `seconds` is the time from leaving to ending. `saved` are the
    requests that programs and parallel calls have spared on plans that bill by request. `cache_misses` read less from the cache
    than the provider had kept, by `cache_missed_tokens`. `cache_unread_tokens` were written there and read by none of the
    requests in question; `cache_unread_usd` is what that cost more than plain input, where it is known. Both amounts are None
    where there was something to count and the price of no request is known. `joined` are requests of the gateway's clients that
    got the answer to another one: nothing was sent for them, and no other count has them."""

    key: str
    cost: Cost
    again: Cost
    unfinished: int
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    sent_bytes: int
    received_bytes: int
    seconds: float
    cache_saved_usd: Decimal | None
    saved: Cost
    cache_misses: int = 0
    cache_missed_tokens: int = 0
    cache_unread_tokens: int = 0
    cache_unread_usd: Decimal | None = ZERO
    tokens_unknown: int = 0
    joined: int = 0

    @property
    def tells_nothing(self) -> bool:
        """Whether nobody told the tokens of any request, so that 0 is no count."""
        return self.tokens_unknown == self.cost.requests

    @property
    def has_cached(self) -> bool:
        """Whether a cache was read or written."""
        return bool(self.cache_read_tokens or self.cache_write_tokens)


class TurnBill(msgspec.Struct, frozen=True, kw_only=True):
    """A turn on a plan that bills by request: what it took with its sub-agents, and what it would have taken with one request
    for each tool call. `calls` are those that did the work, `program_calls` those of them that programs made; `saved` is the
    difference, each further request at the price of the one that brought the call."""

    turn: str
    session: str
    started: float
    cost: Cost
    calls: int
    program_calls: int
    one_a_call_requests: int
    one_a_call_usd: Decimal | None
    saved: Cost


class ExactSum:
    """The sum of decimals as text, each so many times, exactly: SQLite's own would make floats of them."""

    def __init__(self) -> None:
        self._sum = ZERO

    def step(self, amount: str | None, times: int = 1) -> None:
        """An invalid amount makes the sum invalid: `LedgerReader` says which it was."""
        if amount is not None and self._sum.is_finite():
            self._sum = add(self._sum, EXACT.multiply(_amount(amount), Decimal(times)))

    def finalize(self) -> str:
        return str(self._sum)


def _sums(name: str, *, only: str = "true") -> str:
    """Two columns: the sum of the amounts that are whole numbers of pico-dollars, and that of the others, as text."""
    return (
        f"coalesce(sum({name}_pico) filter (where {only}), 0), "
        f"exact_sum({name}_usd) filter (where {name}_pico is null and {name}_usd is not null and {only})"
    ).replace("usd_usd", "usd")


_TOTALS = f"""
select {{key}}, count(*) filter (where {_SENT}), count(usd) filter (where {_SENT}), {_sums("usd")},
    count(*) filter (where {AGAIN}), count(usd) filter (where {AGAIN}), {_sums("usd", only=AGAIN)},
    count(*) filter (where ended is null),
    coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(reasoning_tokens), 0),
    coalesce(sum(cache_read_tokens), 0), coalesce(sum(cache_write_tokens), 0), sum(sent_bytes), sum(received_bytes),
    coalesce(sum(ended - started), 0.0), {_sums("cache_saved")}, {_SAVED},
    count(*) filter (where cache_missed_tokens > 0), sum(cache_missed_tokens),
    count(*) filter (where cache_saved_usd is not null or {_NOT_BY_TOKEN}),
    count(*) filter (where {_UNTOLD}),
    count(*) filter (where {_LEAST}), count(*) filter (where {_LEAST} and {AGAIN}), count(*) filter (where not {_SENT})
from request where {{where}} group by 1 order by {{order}}
"""
_CACHED = """
select {key}, session, provider || ':' || model, coalesce(cache_read_tokens, 0), coalesce(cache_write_tokens, 0),
    case when cache_write_usd is null and {not_by_token} then '0' else cache_write_usd end
from request where {where} and (cache_read_tokens > 0 or cache_write_tokens > 0) order by started, id
"""
_BILLS = f"""
select root_turn, min(root_session), min(started), count(*), count(usd), {_sums("usd")},
    sum(case when outcome = 'ok' and discarded = 0 then calls else 0 end - programs + program_calls), sum(program_calls),
    {_SAVED}
from request where plan = 'request' and {{where}} group by root_turn order by 3
"""
# Read from its end, for as long as turns are wanted.
_LATEST = (
    "select root_turn, root_session from request where plan = 'request' and {where} order by started desc, id desc"
)
# The sessions have an index, the turns none.
_OF_TURNS = "root_session in ({sessions}) and root_turn in ({turns})"
_TURNS = "select count(distinct root_turn) from request where plan = 'request' and {where}"
# Amounts that are no whole number of pico-dollars: few, and a damaged one is among them.
_ODD = """
select id, coalesce(usd, cache_saved_usd) from request where usd_pico is null and usd is not null
union all select id, cache_saved_usd from request where cache_saved_pico is null and cache_saved_usd is not null
union all select id, cache_write_usd from request where cache_write_usd is not null
"""


def entries_where(where: str, values: Values, *, connection: JournalConnection) -> list[LedgerEntry]:
    """The requests that the SQL of a condition names, in the order in which they left."""
    query = f"select {', '.join(COLUMNS)} from request where {where} order by started, id"
    return [
        entry_from(cast("dict[str, Value]", dict(zip(COLUMNS, row, strict=True))))
        for row in connection.execute(query, values)
    ]


class LedgerReader:
    """Reads the ledger of a journal."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._dialect = store.dialect

    def totals(self, span: LedgerSpan, *, by: By) -> list[Total]:
        """Days in order; sessions by their first request; models and purposes by the number of requests."""
        query, values = query_of(by, span=span, dialect=self._dialect)
        with self._open() as connection:
            rows = [_Columns(*row) for row in connection.execute(query, values)]
            lost: dict[str, _Unread] = {}
            if any(row.cache_write_tokens for row in rows):
                key, where = key_of(by, dialect=self._dialect), where_of(span)[0]
                cached = _CACHED.format(key=key, where=where, not_by_token=_NOT_BY_TOKEN)
                lost = _unread_of([_CachedColumns(*row) for row in connection.execute(cached, values)])
            return [_total(row, lost=lost.get(row.key, _Unread())) for row in rows]

    def bills_by_request(self, span: LedgerSpan, *, latest: int | None = None) -> list[TurnBill]:
        """The turns on plans by request, in order; of many those `latest` that were at work last."""
        where, values = where_of(span)
        with self._open() as connection:
            if latest is not None:
                turns = _latest(connection.execute(_LATEST.format(where=where), values), most=latest)
                of_turns = _OF_TURNS.format(sessions=self._texts(":sessions"), turns=self._texts(":turns"))
                where = f"{of_turns} and {where}"
                values |= {"turns": _json(turns), "sessions": _json(set(turns.values()))}
            return [_bill(_BillColumns(*row)) for row in connection.execute(_BILLS.format(where=where), values)]

    def count_turns_by_request(self, span: LedgerSpan) -> int:
        """How many turns `bills_by_request` has in all."""
        where, values = where_of(span)
        with self._open() as connection:
            (count,) = connection.execute(_TURNS.format(where=where), values).fetchone()
        return count

    def titles(self, sessions: Collection[str]) -> dict[str, str]:
        """The titles of the sessions, by their ids."""
        with self._open() as connection:
            query = f"select id, title from session where id in ({self._texts('?')})"
            return dict(connection.execute(query, (_json(sessions),)).fetchall())

    def entries(self, span: LedgerSpan) -> list[LedgerEntry]:
        """Each request, in the order in which they left."""
        where, values = where_of(span)
        with self._open() as connection:
            return entries_where(where, values, connection=connection)

    def _texts(self, name: str) -> str:
        return self._dialect.texts.format(name)

    @contextmanager
    def _open(self) -> Generator[JournalConnection]:
        with self._store.statement() as connection:
            try:
                yield connection
            except (_NoAmount, msgspec.ValidationError) as error:
                raise CallerError(_damage(connection, store=self._store, error=error)) from None


def _latest(turns: Iterable[tuple[str, str]], *, most: int) -> dict[str, str]:
    """The first so many turns, and their sessions."""
    found: dict[str, str] = {}
    for turn, session in turns:
        if turn not in found and len(found) == most:
            break
        found[turn] = session
    return found


def _json(texts: Collection[str]) -> str:
    return msgspec.json.encode(list(texts)).decode()


class _NoAmount(Exception):
    """A sum in which one value is not an amount."""


def _amount(text: str) -> Decimal:
    """NaN for what is no amount of money."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return Decimal("nan")
    return amount if amount.is_finite() else Decimal("nan")


def _damage(connection: JournalConnection, *, store: JournalStore, error: Exception) -> str:
    """The database, the entry and its amount, and what to do."""
    file = store.name or "the ledger in memory"
    for number, amount in connection.execute(_ODD):
        if _amount(amount).is_nan():
            unknown = (
                f"update request set usd = null, cache_saved_usd = null, cache_write_usd = null where id = {number}"
            )
            return (
                f"`{file}` is damaged: the amount of request {number} in its ledger is `{amount[:40]}`, which is no "
                f'money; make it unknown (`{store.dialect.shell} "{file}" "{unknown}"`), or {store.dialect.elsewhere}'
            )
    return f"`{file}` is damaged: an entry of its ledger cannot be read: {error}; {store.dialect.elsewhere}"


def key_of(by: By, *, dialect: Dialect) -> str:
    """What the totals are grouped by, in SQL."""
    return KEYS[by].format(day=dialect.day)


def query_of(by: By, *, span: LedgerSpan, dialect: Dialect) -> tuple[str, dict[str, Value]]:
    """The query of `totals`, and its values."""
    order = {"day": "1", "session": "min(started)"}.get(by, "2 desc, 1")
    where, values = where_of(span)
    return _TOTALS.format(key=key_of(by, dialect=dialect), where=where, order=order), values


def where_of(span: LedgerSpan) -> tuple[str, dict[str, Value]]:
    """The condition in SQL, and its values: each has an index that it begins with."""
    values: dict[str, Value] = {}
    conditions: list[str] = []
    if span.since > 0:  # all of them are read faster without an index
        conditions.append("started >= :since")
        values["since"] = span.since
    if span.until is not None:
        conditions.append("started < :until")
        values["until"] = span.until
    if span.session is not None:
        conditions.insert(0, "root_session = :session")
        values["session"] = span.session
    if span.gateway:
        conditions.append("(root_session = 'gateway' or substr(root_session, 1, 8) = 'gateway:')")
    return " and ".join(conditions) or "true", values


def sum_of_totals(totals: Sequence[Total]) -> Total | None:
    """All in one; None where there are none."""
    if not totals:
        return None
    numbers = [
        name
        for name in Total.__struct_fields__
        if name not in ("key", "cost", "again", "saved", "cache_saved_usd", "cache_unread_usd")
    ]
    return Total(
        key="all",
        cost=_sum_of_costs([total.cost for total in totals]),
        again=_sum_of_costs([total.again for total in totals]),
        saved=_sum_of_costs([total.saved for total in totals]),
        cache_saved_usd=_sum_of_known([(total.cache_saved_usd, total.has_cached) for total in totals]),
        cache_unread_usd=_sum_of_known([(total.cache_unread_usd, total.cache_unread_tokens > 0) for total in totals]),
        **{name: sum(getattr(total, name) for total in totals) for name in numbers},
    )


def _sum_of_known(amounts: Sequence[tuple[Decimal | None, bool]]) -> Decimal | None:
    """The sum of the known amounts. Each comes with whether there was something to count. None if there was, and no price is
    known."""
    known = [amount for amount, _ in amounts if amount is not None]
    if any(amount is None for amount, _ in amounts) and not any(
        counts for amount, counts in amounts if amount is not None
    ):
        return None
    return functools.reduce(add, known, ZERO)


def _sum_of_costs(costs: Sequence[Cost]) -> Cost:
    return functools.reduce(lambda one, other: one + other, costs)


class _Columns(NamedTuple):
    """Those of _TOTALS."""

    key: str
    requests: int
    priced: int
    usd_pico: int
    usd: str | None
    again: int
    again_priced: int
    again_pico: int
    again_usd: str | None
    unfinished: int
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    sent_bytes: int
    received_bytes: int
    seconds: float
    cache_saved_pico: int
    cache_saved_usd: str | None
    saved: int
    saved_priced: int
    saved_pico: int
    saved_usd: str | None
    cache_misses: int
    cache_missed_tokens: int
    saving_known: int
    tokens_unknown: int
    at_least: int
    again_at_least: int
    joined: int


class _CachedColumns(NamedTuple):
    """Those of _CACHED."""

    key: str
    session: str
    endpoint: str
    read: int
    written: int
    cache_write_usd: str | None


class _Unread(NamedTuple):
    """What was written to caches and never read."""

    tokens: int = 0
    usd: Decimal | None = ZERO


class _BillColumns(NamedTuple):
    """Those of _BILLS."""

    turn: str
    session: str
    started: float
    requests: int
    priced: int
    usd_pico: int
    usd: str | None
    calls: int
    program_calls: int
    saved: int
    saved_priced: int
    saved_pico: int
    saved_usd: str | None


def _unread_of(rows: Sequence[_CachedColumns]) -> dict[str, _Unread]:
    """By the keys of the rows."""
    found: dict[str, _Unread] = {}
    unread = unread_tokens([CacheCounts(row.session, row.endpoint, row.read, row.written) for row in rows])
    for row, tokens in zip(rows, unread, strict=True):
        if not tokens:
            continue
        before = found.get(row.key, _Unread())
        usd: Decimal | None = None
        if row.cache_write_usd is not None:
            amount = _amount(row.cache_write_usd)
            if not amount.is_finite():
                raise _NoAmount
            usd = unread_usd(amount, unread=tokens, written=row.written)
        both = _sum_of_known([(before.usd, before.tokens > 0), (usd, True)])
        found[row.key] = _Unread(before.tokens + tokens, both)
    return found


def _total(row: _Columns, *, lost: _Unread) -> Total:
    has_cached = row.cache_read_tokens or row.cache_write_tokens
    same = ("key", "unfinished", "sent_bytes", "received_bytes", "seconds", "cache_misses", "tokens_unknown", "joined")
    return Total(
        **{name: value for name, value in row._asdict().items() if name in same or name.endswith("_tokens")},
        cost=Cost(
            usd=_usd(row.usd_pico, row.usd),
            requests=row.requests,
            unknown=row.requests - row.priced,
            at_least=row.at_least,
        ),
        again=Cost(
            usd=_usd(row.again_pico, row.again_usd),
            requests=row.again,
            unknown=row.again - row.again_priced,
            at_least=row.again_at_least,
        ),
        cache_saved_usd=None
        if has_cached and not row.saving_known
        else _usd(row.cache_saved_pico, row.cache_saved_usd),
        cache_unread_tokens=lost.tokens,
        cache_unread_usd=lost.usd,
        saved=_saved(row),
    )


def _usd(whole_pico: int, others: str | None) -> Decimal:
    """Without the zeros at its end that pico-dollars would bring."""
    if others is None and not whole_pico:
        return ZERO
    amount = add(EXACT.multiply(Decimal(whole_pico), PICO), Decimal(others or 0))
    if not amount.is_finite():
        raise _NoAmount
    amount = amount.normalize(EXACT)
    return amount.quantize(Decimal(1)) if amount == amount.to_integral_value() else amount


def _saved(row: _Columns | _BillColumns) -> Cost:
    return Cost(usd=_usd(row.saved_pico, row.saved_usd), requests=row.saved, unknown=row.saved - row.saved_priced)


def _bill(row: _BillColumns) -> TurnBill:
    cost = Cost(usd=_usd(row.usd_pico, row.usd), requests=row.requests, unknown=row.requests - row.priced)
    saved = _saved(row)
    return TurnBill(
        turn=row.turn,
        session=row.session,
        started=row.started,
        cost=cost,
        calls=row.calls,
        program_calls=row.program_calls,
        one_a_call_requests=cost.requests + saved.requests,
        one_a_call_usd=None if saved.unknown or not row.priced else add(cost.usd, saved.usd),
        saved=saved,
    )
