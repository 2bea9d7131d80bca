"""Who is signed in at the gateway's page. The rows stand in the table `gateway`, so every process of it knows them."""

import secrets
from collections.abc import Callable

import msgspec

from turnwise.journal.gateway_rows import digest_of
from turnwise.journal.stores import JournalConnection, JournalStore

MOST = 200  # sessions at once: past it the one that ends first goes
KIND = "page"


class PageSession(msgspec.Struct, frozen=True, kw_only=True):
    """`sha256` is the digest of the key that opened it: once nobody has that key, the session opens nothing. `ends`: UTC, seconds
    since 1970."""

    sha256: str
    ends: float


class PageSessionBook:
    """Keeps sessions by the digests of their tokens: who reads the table can use none. What fails raises JournalFailed."""

    def __init__(self, store: JournalStore, *, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    def open(self, session: PageSession) -> str:
        """The token of a new session, which is stored nowhere."""
        token = secrets.token_urlsafe(32)
        body = msgspec.json.encode(session).decode()

        def opened(connection: JournalConnection) -> None:
            rows = connection.execute("select name, body from gateway where kind = ?", (KIND,)).fetchall()
            known = sorted([(msgspec.json.decode(body, type=PageSession).ends, name) for name, body in rows])
            over = [name for ends, name in known if ends <= self._now()]
            left = [name for ends, name in known if ends > self._now()]
            for name in (*over, *left[: max(0, len(left) - MOST + 1)]):
                connection.execute("delete from gateway where kind = ? and name = ?", (KIND, name))
            connection.execute(
                "insert into gateway (kind, name, body) values (?, ?, ?) on conflict do nothing",
                (KIND, digest_of(token), body),
            )

        self._store.attempt(opened)
        return token

    def find(self, token: str) -> PageSession | None:
        """None for a token that is unknown, or whose time is over."""
        with self._store.statement() as connection:
            row = connection.execute(
                "select body from gateway where kind = ? and name = ?", (KIND, digest_of(token))
            ).fetchone()
        found = None if row is None else msgspec.json.decode(row[0], type=PageSession)
        return found if found is not None and self._now() < found.ends else None

    def end(self, token: str) -> None:
        self._store.execute_all([("delete from gateway where kind = ? and name = ?", (KIND, digest_of(token)))])
