"""What the page asks of the ledger beside its totals: the latest minutes, first tokens, and requests that failed."""

from operator import itemgetter
from typing import Any

from turnwise.journal.ledger_queries import LedgerSpan, where_of
from turnwise.journal.stores import JournalStore

# Not `cast`: PostgreSQL rounds where SQLite cuts off.
_MINUTE = "round(started / 60 - 0.5)"
_FAILED = "outcome is not null and outcome not in ('ok', 'cancelled')"
# So far back errors are looked for, where there are few.
_LATE = "id > (select coalesce(max(id), 0) - 200000 from request)"
_OF_FAILED = ("at", "request", "session", "provider", "model", "purpose", "outcome", "seconds")
MOST_TIMES = 5_000  # first tokens that percentiles are made of: the latest ones


QueryRow = dict[str, Any]


class PageQueries:
    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def minutes(self, span: LedgerSpan) -> list[QueryRow]:
        """`minute` is a number since 1970, `failed` are those without a whole answer; minutes without a request are left out."""
        where, values = where_of(span)
        with self._store.statement() as connection:
            rows = connection.execute(
                f"select {_MINUTE}, count(*), count(*) filter (where {_FAILED}) from request where {where} group by 1 order by 1",
                values,
            ).fetchall()
        return [{"minute": int(minute), "requests": requests, "failed": failed} for minute, requests, failed in rows]

    def first_tokens(self, span: LedgerSpan) -> list[float]:
        """Seconds from a request to the first event of its stream, in order."""
        where, values = where_of(span)
        with self._store.statement() as connection:
            rows = connection.execute(
                f"select first_event - started from request where {where} and first_event is not null "
                f"order by started desc limit {MOST_TIMES}",
                values,
            ).fetchall()
        return sorted([float(seconds) for (seconds,) in rows])

    def failed(self, span: LedgerSpan, *, most: int) -> list[QueryRow]:
        """The latest first. `request` is the id that the client was told, `session` says whose it was."""
        where, values = where_of(span)
        with self._store.statement() as connection:
            rows = connection.execute(
                "select started, root_turn, root_session, provider, model, purpose, outcome, ended - started from request "
                f"where {where} and {_FAILED} and {_LATE} order by id desc limit {most}",
                values,
            ).fetchall()
        return [dict(zip(_OF_FAILED, row, strict=True)) for row in sorted(rows, key=itemgetter(0), reverse=True)]
