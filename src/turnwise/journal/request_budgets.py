"""Budgets that single requests of a gateway's clients take parts of, in the transaction that writes them into the ledger.

A budget belongs to a key, a user or a team and to one period (`gateway/team/ops/day/2026-11-30`). It is a row like those of runs
(`budgets.py`), and a part of it is named after the request: reserved once, settled once, however often that is tried. A request
whose process died has left, so its provider may have billed it: its part counts as spent.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

import msgspec

from turnwise.journal.budgets import BudgetRow, KnownStates, begin_states, process_of, read_states, write_states
from turnwise.journal.gateway_rows import COUNTED, STREAMS, OwnerKind
from turnwise.journal.ledger import LedgerEntry, cost_of, tells_tokens
from turnwise.journal.owners import is_alive
from turnwise.journal.stores import Dialect, JournalConnection, JournalStore
from turnwise.rules.limits import Leaf, MaxCost, MaxRequests, MaxTokens
from turnwise.rules.pricing import ZERO, add
from turnwise.rules.reservations import Amount, BudgetPart, BudgetState, unspent

ROWS = "gateway/"
# What each of these rows counts, in the order of `COUNTED`. Their amounts do not matter: limits come with the request.
LEAVES: tuple[Leaf, ...] = (MaxRequests(1), MaxTokens(1), MaxCost(Decimal(1)))
UNSPENT = unspent(LEAVES)
SOON_S = 5.0  # when to come again where only requests under way are in the way
KEPT_S = {"minute": 600.0}  # of a row that nobody has changed
KEPT_LONG_S = 100 * 86_400.0
MOST_KNOWN = 10_000  # rows whose text is remembered
MOST_ROWS = 1_000  # of a statement

RequestLimits = tuple[int | None, int | None, Decimal | None]


class BudgetAsk(msgspec.Struct, frozen=True, gc=False):
    """A budget that a request needs a part of: its row, whose it is, its limits (requests, tokens, dollars), and when its period
    ends. `begins`: a moment in it. `is_open`: it counts requests under way, and nothing stays spent."""

    row: str
    kind: OwnerKind
    owner: str
    period: str
    limits: RequestLimits
    ends: float
    is_open: bool = False
    begins: float = 0.0


class RequestPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one request may cost at most, and the budgets that pay for it. `usd` is asked in the thread that writes, and only
    where a budget limits money: None where no price is known. `usd_of` prices what the ledger cannot, from its tokens."""

    id: str
    holder: str
    asks: tuple[BudgetAsk, ...]
    tokens: int
    usd: Callable[[], Decimal | None]
    usd_of: Callable[[LedgerEntry], Decimal | None] | None = None
    model: str = ""


class BudgetRefusal(NamedTuple):
    """Which budget has no room for a request. `what` is of `COUNTED`, `streams` or `price`; `retry_after_s` says when to come
    again, None: never as it is."""

    ask: BudgetAsk
    what: str
    limit: Amount
    needed: Amount
    free: Amount
    retry_after_s: float | None
    model: str = ""

    @property
    def is_money(self) -> bool:
        return self.what in ("usd", "price")


class _Spending(NamedTuple):
    """What a request took of `COUNTED`, and of which of them that is known. What is not known counts as it was reserved."""

    amounts: tuple[Amount, Amount, Amount]
    are_known: tuple[bool, bool, bool] = (True, True, True)


NOTHING = _Spending((0, 0, ZERO))
LOST = _Spending((1, 0, ZERO), (False, False, False))


def _sum(one: Amount, other: Amount) -> Decimal:
    return add(Decimal(one), Decimal(other))


class _Page:
    """One row while its transaction lasts. What its parts hold together is summed up once."""

    def __init__(self, state: BudgetState) -> None:
        self.parts = dict(state.parts)
        self.used = list(state.used)
        self._spent = state.spent
        self._held: dict[int, Amount] = {}  # of what is limited: the sum of the parts
        self.is_changed = False

    def _hold(self, part: BudgetPart, *, sign: int) -> None:
        for nth, held in self._held.items():
            self._held[nth] = held + sign * part.amounts[nth] if nth < 2 else _sum(held, sign * part.amounts[nth])

    def free(self, nth: int, *, limit: Amount) -> Amount:
        """What is neither used nor reserved; below 0 where a limit was lowered."""
        if nth not in self._held:
            amounts = [part.amounts[nth] for part in self.parts.values()]
            self._held[nth] = functools.reduce(_sum, amounts, ZERO) if nth == 2 else sum(amounts)
        return limit - self.used[nth] - self._held[nth]

    def reserve(self, id: str, part: BudgetPart) -> None:
        self.parts[id] = part
        self._hold(part, sign=1)
        self.is_changed = True

    def settle(self, id: str, spending: _Spending) -> None:
        """Count what the request spent. Nothing where its part is gone: it was settled before, or counted as lost."""
        part = self.parts.pop(id, None)
        if part is None:
            return
        requests, tokens, usd = [
            amount if is_known else max(amount, reserved)
            for amount, is_known, reserved in zip(spending.amounts, spending.are_known, part.amounts, strict=True)
        ]
        used = self.used
        self.used = [used[0] + requests, used[1] + tokens, add(Decimal(used[2]), Decimal(usd))]
        self._hold(part, sign=-1)
        self.is_changed = True

    @property
    def state(self) -> BudgetState:
        return BudgetState(counts=UNSPENT.counts, used=tuple(self.used), parts=self.parts, spent=self._spent)


class RequestBudgets:
    """The budgets of a batch of requests, inside of one transaction. `write` them at its end."""

    def __init__(self, connection: JournalConnection, *, dialect: Dialect, now: float, known: KnownStates) -> None:
        self._connection, self._dialect, self._now, self._known = connection, dialect, now, known
        self._pages: dict[str, _Page] = {}

    def open(self, parts: Iterable[RequestPart]) -> None:
        """Lock the rows of these parts: in one order, so that two gateways never wait for each other. New rows are made before
        any is locked, or they could."""
        names = sorted({ask.row for part in parts for ask in part.asks})
        if not names:
            return
        if new := [name for name in names if name not in self._known.rows]:
            for few in _by_few(new):
                begin_states(self._connection, few, new=UNSPENT, now=self._now)
            if len(self._known.rows) > MOST_KNOWN:
                self._known.rows.clear()
            self._known.rows.update(dict.fromkeys(new))
        found: dict[str, BudgetState] = {}
        for few in _by_few(names):
            found.update(read_states(self._connection, few, dialect=self._dialect, known=self._known))
        for name in names:
            state = found.get(name)
            if state is None:  # it was deleted meanwhile, or its attempt was rolled back
                state = BudgetRow(self._connection, name=name, dialect=self._dialect, now=self._now).read(UNSPENT)
            self._pages[name] = _Page(state)

    def reserve(self, part: RequestPart, *, must: bool = False) -> BudgetRefusal | None:
        """Reserve in each of its budgets, or in none. `must`: in each, whether it has room or not."""
        if any(part.id in self._pages[ask.row].parts for ask in part.asks):
            return None  # an attempt of before stands
        usd: Decimal | None = ZERO
        if any(ask.limits[2] is not None for ask in part.asks):
            usd = part.usd()
        amounts: tuple[Amount, ...] = (1, part.tokens, usd or ZERO)
        for ask in part.asks:
            if not must and (refusal := self._refuse(ask, part, amounts, is_priced=usd is not None)) is not None:
                return refusal
        for ask in part.asks:
            own = (1, 0, ZERO) if ask.is_open else amounts
            self._pages[ask.row].reserve(part.id, BudgetPart(own, part.holder))
        return None

    def _refuse(
        self, ask: BudgetAsk, part: RequestPart, amounts: Sequence[Amount], *, is_priced: bool
    ) -> BudgetRefusal | None:
        page = self._pages[ask.row]
        for nth, limit in enumerate(ask.limits):
            if limit is None:
                continue
            if nth == COUNTED.index("usd") and not is_priced:
                return BudgetRefusal(ask, "price", limit, ZERO, ZERO, None, part.model)
            needed, free = amounts[nth], page.free(nth, limit=limit)
            if needed > free:
                what = STREAMS if ask.is_open else COUNTED[nth]
                return BudgetRefusal(ask, what, limit, needed, max(free, 0), self._again(ask, nth, page, limit, needed))
        return None

    def _again(self, ask: BudgetAsk, nth: int, page: _Page, limit: Amount, needed: Amount) -> float | None:
        if needed > limit:
            return None
        left_s = max(ask.ends - self._now, 1.0)
        if ask.is_open or needed <= limit - page.used[nth]:
            return 1.0 if ask.is_open else min(SOON_S, left_s)
        return left_s

    def settle(self, part: RequestPart, entry: LedgerEntry | None) -> None:
        """The request has ended; None: it never left, so all of its part comes back."""
        spending = NOTHING if entry is None else _spending(part, entry)
        for ask in part.asks:
            self._pages[ask.row].settle(part.id, NOTHING if ask.is_open else spending)

    def write(self) -> None:
        changed = [name for name, page in self._pages.items() if page.is_changed]
        for few in _by_few(changed):
            states = {name: self._pages[name].state for name in few}
            write_states(self._connection, states, now=self._now, known=self._known)


def count_request(store: JournalStore, part: RequestPart, entry: LedgerEntry, *, now: float) -> BudgetRefusal | None:
    """Count a request for which nothing leaves, if each of its budgets has room."""

    def attempted(connection: JournalConnection) -> BudgetRefusal | None:
        budgets = RequestBudgets(connection, dialect=store.dialect, now=now, known=KnownStates())
        budgets.open([part])
        if (refusal := budgets.reserve(part)) is None:
            budgets.settle(part, entry)
        budgets.write()
        return refusal

    return store.attempt(attempted)


def _by_few(names: list[str]) -> list[list[str]]:
    """No database takes any number of values in one statement."""
    if len(names) <= MOST_ROWS:
        return [names] if names else []
    return [names[at : at + MOST_ROWS] for at in range(0, len(names), MOST_ROWS)]


def _spending(part: RequestPart, entry: LedgerEntry) -> _Spending:
    usage, cost = entry.usage, cost_of([entry])
    tokens = 0 if usage is None else usage.input_tokens + usage.output_tokens
    usd, is_known = cost.usd, cost.exact_usd is not None
    if not is_known and part.usd_of is not None and (by_rate := part.usd_of(entry)) is not None:
        usd, is_known = max(by_rate, usd), True
    return _Spending((1, tokens, usd), (True, tells_tokens(entry), is_known))


# --- what the dead have left, and what is over


class HeldRow(NamedTuple):
    """A budget as it stands, for people and for a look after the dead."""

    name: str
    state: BudgetState


def held_rows(store: JournalStore, *, front: str = ROWS) -> list[HeldRow]:
    """All rows whose names begin so, by an index."""
    with store.statement() as connection:
        rows = connection.execute(
            "select name, state from budget where name >= ? and name < ? order by name", (front, front + "\uffff")
        ).fetchall()
    return [HeldRow(name, msgspec.json.decode(state, type=BudgetState)) for name, state in rows]


def is_gone(holder: str) -> bool:
    """Whether the process was seen to be gone."""
    return not is_alive(process_of(BudgetPart((), holder)))


def bill_dead(store: JournalStore, holders: Iterable[str], *, now: float) -> int:
    """Count the parts of processes that are gone as spent, and return how many there were. Requests under way count no more."""
    dead, found = set(holders), 0
    for row in held_rows(store):
        if not any(part.holder in dead for part in row.state.parts.values()):
            continue

        def bill(connection: JournalConnection, name: str = row.name) -> int:
            own = BudgetRow(connection, name=name, dialect=store.dialect, now=now)
            page = _Page(own.read(UNSPENT))
            left = [id for id, part in page.parts.items() if part.holder in dead]
            for id in left:
                page.settle(id, NOTHING if name.endswith(f"/{STREAMS}") else LOST)
            own.write(page.state)
            return len(left)

        found += store.attempt(bill)
    return found


def forget_old(store: JournalStore, *, now: float) -> None:
    """Delete rows of periods that are long over. One with parts has been changed since, or its process is looked after."""
    empty = '%"parts":{}%'
    store.execute_all(
        [
            (
                "delete from budget where name like ? and updated < ? and state like ?",
                (f"{ROWS}%/minute/%", now - KEPT_S["minute"], empty),
            ),
            (
                "delete from budget where name like ? and updated < ? and state like ?",
                (f"{ROWS}%/____-__-__%", now - KEPT_LONG_S, empty),
            ),
        ]
    )
