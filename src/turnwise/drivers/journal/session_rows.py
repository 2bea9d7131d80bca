"""Sessions and their turns as the journal lists them, and the SQL that finds them."""

from typing import Literal

import msgspec

from turnwise.drivers.journal.labels import Labels, labels_in
from turnwise.drivers.journal.owners import is_alive
from turnwise.vocab import StopReason

SessionStatus = Literal["queued", "running", "waiting", "done", "lost"]
"""`queued`: no worker has begun it.
`waiting`: ended while calls wait for the client or for a person. `lost`: its process went away before the end."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session in the list of sessions.

    Times are UTC, in seconds since 1970. `updated` is the time at which the session's last turn began or ended. `status`,
    `stop_reason` and `complete` are those of the last turn. `labels` are those that the session's first run gave it.
    """

    id: str
    folder: str
    title: str
    created: float
    updated: float
    turns: int
    status: SessionStatus | None  # of the last turn
    stop_reason: StopReason | None
    complete: bool | None
    labels: Labels = {}


class TurnRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    session: str
    status: SessionStatus
    created: float
    finished: float | None
    stop_reason: StopReason | None
    complete: bool | None

    @property
    def has_lost_records(self) -> bool:
        """A damaged journal has lost the last records of the turn: what they told of may have run."""
        return self.status == "lost" and self.stop_reason is not None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it stands, its turns in order. The turn room folds the events into messages."""

    row: SessionRow
    turns: tuple[TurnRow, ...]


SESSIONS_WHERE = """
select session.id, folder, title, session.created, updated, last.finished,
    (select count(*) from turn where session = session.id),
    last.status, last.stop_reason, last.complete, last.owner, session.labels
from session left join turn as last on last.id = (
    select turn.id from turn where turn.session = session.id order by number desc nulls last, created desc, id desc limit 1
)
where {} order by updated desc, session.id desc"""
RUNNING_BELOW = """
with recursive tree (id) as (
    select cast(:session as text)
    union
    select session.id from tree join turn on turn.session = tree.id join session on session.parent_turn = turn.id
)
select distinct turn.owner from tree join turn on turn.session = tree.id where turn.status = 'running'"""
HAS_PART = "substr(session.id, 1, :length) = :part or substr(session.id, length(session.id) - :length + 1) = :part"

SessionColumns = tuple[
    str,
    str,
    str,
    float,
    float,
    float | None,
    int,
    SessionStatus | None,
    str | None,
    int | None,
    str | None,
    str,
]


def session_row(columns: SessionColumns) -> SessionRow:
    id, folder, title, created, updated, finished, turns, status, stop_reason, complete, owner, labels = columns
    return SessionRow(
        id=id,
        folder=folder,
        title=title,
        created=created,
        updated=max(updated, finished or 0.0),
        turns=turns,
        status="lost" if status == "running" and owner and not is_alive(owner) else status,
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        complete=None if complete is None else bool(complete),
        labels=labels_in(labels),
    )
