"""Entries of the ledger for requests that belong to no turn: the gateway sends them for its clients.

They stand in the same table as those of turns. `turn` is the id of the client's request, and `session` says whose it was;
that is no session of the journal, so no list of sessions shows it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import msgspec

from turnwise.journal.ledger import LEAVES, STAYED, LedgerEntry, update_of, values_before
from turnwise.journal.store_thread import Patience
from turnwise.journal.stores import JournalConnection

GATEWAY = "gateway"


def gateway_session(client: str) -> str:
    """What stands as the session of a request that the gateway sent: whose key its client showed."""
    return f"{GATEWAY}:{client}" if client else GATEWAY


def is_gateways(session: str) -> bool:
    """Sessions of the journal have ids without a colon."""
    return session == GATEWAY or session.startswith(f"{GATEWAY}:")


class LedgerLine:
    """The place of one entry: its row, once that is written."""

    __slots__ = ("row_id",)

    def __init__(self) -> None:
        self.row_id: int | None = None


class EntryLeaves(msgspec.Struct, frozen=True, kw_only=True):
    """The request is about to leave."""

    line: LedgerLine
    entry: LedgerEntry


class EntryBecame(msgspec.Struct, frozen=True, kw_only=True):
    """The request is over, and this is its entry."""

    line: LedgerLine
    entry: LedgerEntry


class EntryStayed(msgspec.Struct, frozen=True, kw_only=True):
    """The request never left: its entry is struck out."""

    line: LedgerLine


LedgerChange = EntryLeaves | EntryBecame | EntryStayed


class DirectLedger:
    """Writes entries. `transaction` opens the journal's database for one."""

    def __init__(
        self, transaction: Callable[[], AbstractContextManager[JournalConnection]], *, patience: Patience
    ) -> None:
        self._transaction = transaction
        self._patience = patience

    def wait_until(self, ends: float) -> None:
        """From now on this thread's work waits for the database until then (monotonic)."""
        self._patience.ends = ends

    def write(self, changes: Sequence[LedgerChange]) -> None:
        """All of them in this order, or none. On return they are safe from our own death. Raises JournalFailed."""
        rows: dict[LedgerLine, int] = {}
        with self._transaction() as connection:
            for change in changes:
                match change:
                    case EntryLeaves(line=line, entry=entry):
                        (rows[line],) = connection.execute(f"{LEAVES} returning id", values_before(entry)).fetchone()
                    case EntryBecame(line=line, entry=entry):
                        if (row_id := rows.get(line, line.row_id)) is not None:
                            connection.execute(*update_of(entry, row_id=row_id))
                    case EntryStayed(line=line):
                        if (row_id := rows.get(line, line.row_id)) is not None:
                            connection.execute(STAYED, (row_id,))
        for line, row_id in rows.items():
            line.row_id = row_id
