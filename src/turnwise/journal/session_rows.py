"""Sessions and their turns as the journal lists them, and the SQL that finds them. Labels are short texts by name that a caller
gives a session, to tell whose it is or what it is about."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, cast

import msgspec

from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.owners import is_alive
from turnwise.journal.stores import JournalStore
from turnwise.vocab import StopReason
from turnwise.vocab.file_names import is_text
from turnwise.vocab.hidden_characters import visible_line

MOST_LABELS = 50
LONGEST_NAME = 100  # characters
LONGEST_VALUE = 1_000

Labels = Mapping[str, str]
NO_LABELS: Labels = MappingProxyType({})

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


def read_labels(given: object) -> dict[str, str]:
    """Raises CallerError for what is no mapping of names to texts, and for too many or too long ones. No value is shown."""
    if not isinstance(given, Mapping):
        raise CallerError('`labels` must be a dict of texts, `{"user": "42"}`, not `' + type(given).__name__ + "`")
    labels = cast("Mapping[object, object]", given)
    if len(labels) > MOST_LABELS:
        raise CallerError(f"`labels` has {len(labels)} names: a session has at most {MOST_LABELS}")
    read = dict[str, str]()
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise CallerError(f"`labels` must be a dict of texts: write `{name!s}` and its value as texts")
        if not name or len(name) > LONGEST_NAME or not name.isprintable() or "=" in name:
            raise CallerError(f"the name of a label has 1 to {LONGEST_NAME} printable characters and no `=`")
        if len(value) > LONGEST_VALUE or not is_text(value):
            raise CallerError(f"the label `{name}` is too long or no UTF-8 text: at most {LONGEST_VALUE} characters")
        read[name] = value
    return read


def check_same(given: Labels, *, kept: Labels, session: str) -> None:
    """Raise CallerError for labels that differ from those that the session was begun with."""
    if given and dict(given) != dict(kept):
        raise CallerError(
            f"session `{session}` was begun with other labels: leave `labels` out to continue it, or start a new session"
        )


def labels_text(labels: Labels) -> str:
    """As a journal keeps them: one JSON object, equal for equal labels."""
    return _encode(dict(labels)).decode()


def labels_in(text: str) -> dict[str, str]:
    """Nothing where the text is damaged: a label is no reason to lose a session."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {}


SessionStatus = Literal["accepted", "queued", "running", "waiting", "done", "lost"]
"""`accepted`: kept under its key, and not begun. `queued`: no worker has begun it.
`waiting`: ended while calls wait for the client or for a person. `lost`: its process went away before the end."""


LONGEST_ID = 200  # characters: turnwise's own have 26, and a server's notice takes no text of more than 8,000 bytes
LONGEST_SHOWN = 100  # characters of an id that a caller gave


def shown_id(id: str) -> str:
    """What a caller gave as an id, in one short line."""
    return visible_line(id[:LONGEST_SHOWN])[:LONGEST_SHOWN]


def check_session_id(id: str) -> None:
    """Raise CallerError for what no session can have as its id."""
    if not is_text(id) or len(id) > LONGEST_ID or not id.isprintable():
        raise CallerError(f"there is no session `{shown_id(id)}`: give the whole id of a session")


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
    key: str | None = None  # the caller's name for it

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
from session left join turn as last on last.id = coalesce((
    select turn.id from turn where turn.session = session.id and turn.status <> 'accepted'
    order by number desc nulls last, created desc, id desc limit 1
), (select turn.id from turn where turn.session = session.id order by created desc, id desc limit 1))
where {} order by updated desc, session.id desc"""
RUNNING_BELOW = """
with recursive tree (id) as (
    select id from session where id = :session
    union
    select session.id from tree join turn on turn.session = tree.id join session on session.parent_turn = turn.id
)
select distinct turn.owner, turn.session from tree join turn on turn.session = tree.id where turn.status = 'running'"""
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
        status="lost" if status == "running" and owner and not is_alive(owner, session=id) else status,
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        complete=None if complete is None else bool(complete),
        labels=labels_in(labels),
    )


# What of the journal is kept: sessions that nobody wants any more are deleted with their sub-agents, their bill is not.
#
# The ledger's rows stand by themselves, without a session or a turn to refer to, so every sum stays what it was.


# A session of the user's, and those below it at any depth.
_TREE = """with recursive tree (root, id) as (
    select id, id from session where {}
    union all
    select tree.root, session.id from tree join turn on turn.session = tree.id join session on session.parent_turn = turn.id
)"""
_SESSIONS = f"""{_TREE.format("parent_turn is null")},
    sizes (root, sessions) as (select root, count(*) from tree group by root)
    select session.id, title, folder, updated, (select count(*) from turn where session = session.id), sessions - 1
    from session join sizes on sizes.root = session.id order by updated desc, session.id desc"""
_OWNERS = f"""{_TREE.format("parent_turn is null")}
    select tree.root, turn.owner from tree join turn on turn.session = tree.id where turn.status = 'running'"""
_TURNS = f"""{_TREE.format("id = ?")} select turn.id, turn.number, turn.status, turn.owner from tree
    join turn on turn.session = tree.id"""
_IDS = f"{_TREE.format('id = ?')} select id from tree"


class KeptSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session of the user's as it may be deleted. `subagents` are the sessions below it, `is_running`: a living process runs a
    turn of one of them. `updated` is UTC, seconds since 1970."""

    id: str
    title: str
    folder: str
    updated: float
    turns: int
    subagents: int
    is_running: bool


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions that are `gone`, and what kept the rest: a full disk, say."""

    gone: list[KeptSession]
    failed: JournalFailed | None = None


class Retention:
    """Lists sessions and deletes them, each in a transaction of its own: who writes meanwhile waits for one at the most."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    def sessions(self) -> list[KeptSession]:
        """All, the latest first."""
        with self._store.statement() as connection:
            rows = connection.execute(_SESSIONS).fetchall()
            running = {root for root, owner in connection.execute(_OWNERS).fetchall() if is_alive(owner, session=root)}
        return [
            KeptSession(
                id=id,
                title=title,
                folder=folder,
                updated=updated,
                turns=turns,
                subagents=subagents,
                is_running=id in running,
            )
            for id, title, folder, updated, turns, subagents in rows
        ]

    def delete(self, sessions: Iterable[KeptSession]) -> Deleted:
        """Delete them with their sub-agents; what was said and done cannot be read from the file any more. One that runs by now,
        or was used since it was listed, stays. A failure ends it: each session is gone with all that belongs to it, or whole."""
        gone = list[KeptSession]()
        try:
            for one in sessions:
                if self._delete_in_the_room_there_is(one):
                    gone.append(one)
            if gone:
                self._drop_copies()
        except JournalFailed as failed:
            return Deleted(gone=gone, failed=failed)
        return Deleted(gone=gone)

    def _delete_in_the_room_there_is(self, session: KeptSession) -> bool:
        """On a disk that is nearly full, what earlier deletions took beside the file is given back first."""
        try:
            return self._delete(session)
        except JournalFailed:
            if not self._drop_copies():
                raise
            return self._delete(session)

    def _drop_copies(self) -> bool:
        """False where there are none. Of what is gone they may stand in the file beside it."""
        if not (ends := self._store.dialect.after_deleting):
            return False
        with self._store.statement() as connection:
            connection.execute(ends).fetchall()
        return True

    def _delete(self, session: KeptSession) -> bool:
        if begins := self._store.dialect.before_deleting:  # overwritten, not only let go
            with self._store.statement() as connection:
                connection.execute(begins).fetchall()
        with self._store.transaction() as connection:
            found = connection.execute("select updated from session where id = ?", (session.id,)).fetchone()
            turns = connection.execute(_TURNS, (session.id,)).fetchall()
            if found is None or found[0] != session.updated:
                return False
            if any(status == "running" and is_alive(owner, session=session.id) for _, _, status, owner in turns):
                return False
            ids = connection.execute(_IDS, (session.id,)).fetchall()
            for turn, number, _, _ in turns:
                for forget in self._store.dialect.forget:
                    connection.execute(forget, {"turn": turn, "number": number})
                connection.execute("delete from turn where id = ?", (turn,))
            for (id,) in ids:
                connection.execute("delete from session where id = ?", (id,))
        return True
