"""What a gateway does while its store cannot be reached: nothing leaves, or it goes on for a while and for some money.

What left meanwhile is written into the ledger, and into the budgets of its clients, as soon as the store answers.
"""

import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import msgspec

from turnwise.errors import JournalFailed
from turnwise.rules.pricing import ZERO

if TYPE_CHECKING:
    from turnwise.journal.direct_ledger import LedgerLine
    from turnwise.journal.ledger import LedgerEntry
    from turnwise.journal.ledger_thread import LedgerThread
    from turnwise.journal.request_budgets import RequestPart

LONGEST_S = 60.0
SEEN_S = (
    2.0  # a store that answers nothing for so long cannot be reached: a failover of a database takes a second or two
)


class UnreachableStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[unreachable_store]` of gateway.toml. Each process goes on for `goes_on_s` seconds at most, and with requests that
    may cost `usd` dollars together; 0 seconds: nothing leaves."""

    goes_on_s: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_S)] = 0.0
    usd: Annotated[float, msgspec.Meta(ge=0, le=1_000_000)] = 0.0

    def __post_init__(self) -> None:
        if (self.goes_on_s > 0) != (self.usd > 0):
            raise ValueError("`goes_on_s` and `usd` go together: how long, and for how much money")


class Loan(msgspec.Struct, frozen=True):
    """What one request may cost that leaves without its place in the store."""

    of: "StoreOutage"
    since_s: float
    usd: Decimal


class StoreOutage:
    """How far one process may still go on. Requests end in the ledger's thread."""

    def __init__(
        self, rule: UnreachableStore, ledger: "LedgerThread", *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rule, self._ledger, self._monotonic = rule, ledger, monotonic
        self._lock = threading.Lock()
        self._since_s, self._lent = 0.0, ZERO

    @property
    def goes_on(self) -> bool:
        """Whether the store cannot be reached, and requests leave all the same."""
        since_s = self._ledger.failing_since_s
        return since_s is not None and not self._ledger.is_full and self._monotonic() - since_s < self._rule.goes_on_s

    def lend(self, usd: Decimal | None) -> Loan | None:
        """None: the request must not leave. `usd` is the most that it may cost, None if that is not known."""
        since_s = self._ledger.failing_since_s
        if since_s is None or usd is None or not self.goes_on:
            return None
        with self._lock:
            if since_s != self._since_s:
                self._since_s, self._lent = since_s, ZERO
            if self._lent + usd > Decimal(str(self._rule.usd)):
                return None
            self._lent += usd
        return Loan(self, since_s, usd)

    def settle(self, loan: Loan, usd: Decimal | None) -> None:
        """The request has ended: what it did not cost comes back. None: its cost is not known."""
        with self._lock:
            if loan.since_s == self._since_s and usd is not None:
                self._lent -= max(loan.usd - usd, ZERO)

    async def write(
        self, entry: "LedgerEntry", part: "RequestPart | None", *, costs: "Callable[[], RequestPart | None]"
    ) -> "tuple[LedgerLine, Loan | None]":
        """On return the request may leave: it is written, or may go on without. `costs` tells what it may cost. Raises
        JournalFailed or BudgetFull: then it must not."""
        if not self.goes_on:  # else nobody has to wait once more to learn it
            try:
                return await self._ledger.leaves(entry, part=part), None
            except JournalFailed:
                if not self.goes_on:
                    raise
        known = part or costs()
        loan = None if known is None else self.lend(known.usd())
        if loan is None:
            raise JournalFailed("the store cannot be reached, and the request may cost more than is left for that time")
        return self._ledger.left(entry, part=part), loan
