"""What the journal asks of the database that keeps it: SQLite's file (`file.py`), or PostgreSQL (`postgres/store.py`).

The journal, its pens and its readers are the same over both. They speak the SQL that both understand, with `?` or `:name` for
values; the few places where the two differ stand in a `Dialect`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from turnwise.journal.ledger import LedgerEntry, Value
from turnwise.journal.store_thread import WaitingStore
from turnwise.settings.durability import Durability

Values = Sequence[Value] | Mapping[str, Value]
Statement = tuple[str, Values]
T = TypeVar("T")


class FoundRows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class JournalConnection(Protocol):
    def execute(self, sql: str, values: Values = ..., /) -> FoundRows: ...


# SQL of a record: it says more than that what was at hand is tried again. A request that was lost is at hand as before.
PROGRESS = """(kind not in ('request_sent', 'script_began')
    and not (kind = 'request_failed' and body like '%"lost"_true}'))"""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Where the two databases differ in what the journal asks."""

    day: str  # of `started`, by the user's own clock
    texts: str  # the rows of a JSON array of texts, whose name stands in it as `{}`
    next_number: str  # of a new turn
    shell: str  # the program that takes SQL from a user
    elsewhere: str  # what a user may do instead
    record: str  # inserts one: number of the turn, seq, epoch, kind, body, time
    last_epoch: str  # of the last record of the turn `:number` that is PROGRESS
    waits_elsewhere: str  # of a turn: 1 if it goes on as soon as a person has answered, else 0
    forget: tuple[str, ...]  # deletes the records of the turn `:turn` with its `:number`
    before_deleting: str  # so that what is deleted is overwritten; "" where there is nothing to say
    after_deleting: str  # so that no copy of it stays
    locked: str  # behind a select of one row: nobody else changes it until the transaction ends
    unless_locked: str  # behind a select of one row: it is not found where somebody else has locked it


class EventRow(msgspec.Struct, frozen=True, gc=False):
    """One record as text. `seq` counts the records of its turn."""

    seq: int
    kind: str
    body: str
    time: float


class PenBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one turn writes at once. `events` and `leaves` (a request that is about to leave) count only while the turn has that
    epoch and runs; what became of requests, and those that never left (`stayed`, by their rows), is kept all the same."""

    turn: str
    number: int  # of the turn
    epoch: int
    events: Sequence[EventRow]
    became: Sequence[tuple[LedgerEntry, int]] = ()
    stayed: Sequence[int] = ()
    leaves: LedgerEntry | None = None


class BatchWritten(msgspec.Struct, frozen=True, gc=False):
    """`is_ours`: nobody has taken the turn over, so all of the batch stands. `row` is that of the request that leaves."""

    is_ours: bool
    row: int | None = None


class JournalStore(WaitingStore, Protocol):
    """One database, used by one thread at a time. What fails raises JournalFailed and says what to do."""

    @property
    def dialect(self) -> Dialect: ...
    @property
    def name(self) -> str:
        """The file, or the address without its password; "" where it has none."""
        ...

    def statement(self) -> AbstractContextManager[JournalConnection]:
        """For a single statement, its rows fetched inside."""
        ...

    def transaction(self) -> AbstractContextManager[JournalConnection]:
        """For several statements, all or none."""
        ...

    def attempt(self, work: Callable[[JournalConnection], T], /) -> T:
        """`work` in a transaction. Where a connection is lost, it may be called again though its first attempt stands."""
        ...

    def execute_all(self, statements: Sequence[Statement], /) -> None:
        """All or none, in one transaction. They may be executed twice."""
        ...

    def append(self, batch: PenBatch, /) -> BatchWritten:
        """Write what a turn has to say, exactly once. On return it is safe from our own death."""
        ...

    def check_version(self, connection: JournalConnection, /) -> None:
        """Raises CallerError where a newer turnwise has changed the tables since they were opened."""
        ...

    def is_whole(self) -> bool:
        """Whether no broken page is found; a server that looks after its pages itself is taken at its word."""
        ...

    def keep(self, durability: Durability, /) -> None:
        """From the next commit on what is written is kept so."""
        ...

    def close(self) -> None: ...
