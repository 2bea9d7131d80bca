"""Whose what is stored at a provider is: a row of the kind `stored` for each id that a client of a gateway was given.

A name is `ACCOUNT/KIND/ID`, a body when the row ends, where the object is, and its owner. The first owner stays.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from turnwise.journal.stores import JournalConnection, JournalStore

DAY_S = 86_400.0
MOST_AT_ONCE = 400  # names in one statement


class StoredOwner(NamedTuple):
    """`door` is the upstream and key by which the object was made."""

    owner: str
    door: str


class StoredRow(NamedTuple):
    """`kept_s`: so long after its last use it is forgotten."""

    name: str
    owner: StoredOwner
    kept_s: float


def owners_of(store: JournalStore, names: Mapping[str, float], *, now: float) -> dict[str, StoredOwner]:
    """Of these names those that are known. Each is kept for so many seconds from now on, to the day."""
    found: dict[str, StoredOwner] = {}
    late: list[tuple[str, str]] = []
    every = list(names)
    for at in range(0, len(every), MOST_AT_ONCE):
        some = every[at : at + MOST_AT_ONCE]
        marks = ", ".join("?" * len(some))
        with store.statement() as connection:
            rows = connection.execute(
                f"select name, body from gateway where kind = 'stored' and name in ({marks})", tuple(some)
            ).fetchall()
        for name, body in rows:
            ends, door, owner = body.split(" ", 2)
            if float(ends) > now:
                found[name] = StoredOwner(owner, door)
                if float(ends) < now + names[name] - DAY_S:
                    late.append((_body(found[name], ends=now + names[name]), name))
    if late:
        store.execute_all([("update gateway set body = ? where kind = 'stored' and name = ?", row) for row in late])
    return found


def remember(store: JournalStore, rows: Sequence[StoredRow], *, now: float) -> None:
    """On return they are safe from our own death. What has an owner keeps it."""

    def work(connection: JournalConnection) -> None:
        for row in sorted(rows):
            connection.execute(
                "insert into gateway (kind, name, body) values ('stored', ?, ?) on conflict (kind, name) do nothing",
                (row.name, _body(row.owner, ends=now + row.kept_s)),
            )

    store.attempt(work)


def forget(store: JournalStore, name: str) -> None:
    store.execute_all([("delete from gateway where kind = 'stored' and name = ?", (name,))])


def forget_ended(store: JournalStore, *, now: float) -> None:
    """Delete the rows that nobody has used for too long."""
    store.execute_all([("delete from gateway where kind = 'stored' and body < ?", (f"{now:010.0f}",))])


def _body(owner: StoredOwner, *, ends: float) -> str:
    return f"{ends:010.0f} {owner.door} {owner.owner}"
