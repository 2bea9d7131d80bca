"""What of the journal is kept: sessions that nobody wants any more are deleted with their sub-agents, their bill is not.

The ledger's rows stand by themselves, without a session or a turn to refer to, so every sum stays what it was.
"""

from collections.abc import Iterable

import msgspec

from turnwise.errors import JournalFailed
from turnwise.journal.owners import is_alive
from turnwise.journal.stores import JournalStore

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
