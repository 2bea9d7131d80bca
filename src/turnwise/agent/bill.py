"""A run's bill, request by request: a sequence of its entries that also gives rows for a data frame."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import TypedDict

from turnwise.journal.ledger import LedgerEntry
from turnwise.vocab import Untold, Usage


class BillRow(TypedDict):
    """One request of the bill. None means that a value is not known.

    Input tokens include those of the cache; output tokens include reasoning.
    """

    number: int  # of its turn, from 1
    path: str  # the sub-agents that lead to it, "editor/researcher"; empty for the run itself
    step: int
    purpose: str  # what `RunResult.requests_by_purpose` counts
    attempt: int  # 1, or more where the request was sent again
    provider: str
    model: str
    outcome: str | None
    discarded: bool
    started: datetime  # UTC
    seconds: float | None
    first_event_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    calls: int
    sent_bytes: int
    received_bytes: int
    cost_usd: Decimal | None


class Bill(tuple[LedgerEntry, ...]):
    """The ledger of a run: an entry for each request, in the order in which the requests were sent. Sub-agents' requests are
    included.

    It is a tuple, and equal to a tuple with the same entries.
    """

    __slots__ = ()

    def to_rows(self) -> list[BillRow]:
        """A plain dict for each request (`BillRow`), for `pandas.DataFrame(...)` or `csv.DictWriter`."""
        attempts: dict[str, int] = {}  # of each turn's last request
        rows: list[BillRow] = []
        for entry in self:
            attempts[entry.turn] = attempts.get(entry.turn, 0) + 1 if entry.retry_of is not None else 1
            rows.append(_row(entry, attempt=attempts[entry.turn]))
        return rows


def _row(entry: LedgerEntry, *, attempt: int) -> BillRow:
    return {
        "number": entry.number,
        "path": "/".join(entry.path),
        "step": entry.step,
        "purpose": entry.purpose,
        "attempt": attempt,
        "provider": entry.provider,
        "model": entry.model,
        "outcome": entry.outcome,
        "discarded": entry.discarded,
        "started": datetime.fromtimestamp(entry.started, UTC),
        "seconds": _since(entry.started, entry.ended),
        "first_event_seconds": _since(entry.started, entry.first_event),
        "input_tokens": _told(entry.usage, "input_tokens"),
        "output_tokens": _told(entry.usage, "output_tokens"),
        "reasoning_tokens": _told(entry.usage, "reasoning_tokens"),
        "cache_read_tokens": _told(entry.usage, "cache_read_tokens"),
        "cache_write_tokens": _told(entry.usage, "cache_write_tokens"),
        "calls": entry.calls,
        "sent_bytes": entry.sent_bytes,
        "received_bytes": entry.received_bytes,
        "cost_usd": entry.usd,
    }


def _since(started: float, then: float | None) -> float | None:
    return None if then is None else round(max(then - started, 0.0), 6)


def _told(usage: Usage | None, count: Untold) -> int | None:
    return None if usage is None or count in usage.untold else getattr(usage, count)
