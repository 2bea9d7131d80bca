"""The clients whose keys stand in the journal, as one gateway knows them: a copy in memory, which is looked at every second.

One thread does what is not part of a request: it looks whether keys have changed, says that this gateway lives, writes down when
keys were used, and counts what dead gateways had reserved as spent.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Mapping
from math import inf

from turnwise.base.clock import Clock
from turnwise.errors import CallerError, TurnwiseBug
from turnwise.gateway.client_bounds import ClientKey
from turnwise.gateway.client_limits import LimitedClient, client_of, used_ratios
from turnwise.journal.budgets import holder_in
from turnwise.journal.gateway_rows import GatewayBook
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.ledger_queries import LedgerReader
from turnwise.journal.owners import our_name
from turnwise.journal.request_budgets import bill_dead, forget_old, held_rows, is_gone

_log = logging.getLogger("turnwise")

LOOK_S = 1.0  # how old the copy may be; a revoked key opens nothing more after it
BEAT_S = 10.0
LEASE_S = 40.0  # a gateway whose beats stand still for so long is gone, and what it has reserved counts as spent
STALE_S = 15.0  # where the journal cannot be read for so long, nobody is let in: longer than one try to reach a server


# --- the copy, and the thread that keeps it


class SharedClients:
    """The clients of a journal. `close` it at the end. Only `over` is asked for each request: it reads no file."""

    def __init__(
        self,
        journal: Journal,
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float] = time.monotonic,
        stale_s: float = STALE_S,
    ) -> None:
        """Raises JournalFailed."""
        self.holder = holder_in(our_name(), token=secrets.token_hex(8))
        self._journal, self._now, self._monotonic, self._stale_s = journal, now, monotonic, stale_s
        self.book: GatewayBook = journal.gateway
        self._looking = threading.Lock()
        self._beats = 0
        self._seen: dict[str, tuple[str, float]] = {}  # beats of other gateways, and when they were another number
        self._used: dict[str, float] = {}
        self._told: dict[str, float] = {}
        self._merged: tuple[object, object, Mapping[str, ClientKey | LimitedClient] | None] = (self, self, None)
        self._next_beat_s = -inf
        self._ends = threading.Event()
        self._fullness: Mapping[tuple[str, ...], float] = {}
        self._clients: Mapping[str, LimitedClient] = {}
        self._has_keys = False  # or had: a revoked key opens no doors
        self._version, self._read_s = -1, -inf
        self.look()
        self._thread = threading.Thread(target=self._work, name="turnwise gateway clients", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def over(self, file: Mapping[str, ClientKey] | None) -> Mapping[str, ClientKey | LimitedClient] | None:
        """The clients of the file and of the journal, by the digests of their keys; None if nobody has ever made a key. Raises
        CallerError where the journal has not been readable for too long."""
        if self._monotonic() - self._read_s > self._stale_s:
            raise CallerError("the journal that holds the clients' keys cannot be read")
        clients = self._clients
        before, known, merged = self._merged
        if before is file and known is clients:
            return merged
        merged = None if file is None and not self._has_keys else {**(file or {}), **clients}
        self._merged = (file, clients, merged)
        return merged

    def uses(self, client: LimitedClient) -> bool:
        """Whether the client's key still holds at this moment; its use is noted."""
        now = self._now()
        self._used[client.name] = now
        return now < client.expires

    def fullness(self) -> Mapping[tuple[str, ...], float]:
        """How much of each budget was spent when it was last looked at, by kind, owner and limit; 1 is all of it."""
        return self._fullness

    @property
    def ledger(self) -> LedgerReader:
        """All requests of the journal."""
        return self._journal.ledger

    def look(self) -> None:
        """One round of the thread, also done after a change. Raises JournalFailed."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        began_s = self._monotonic()
        version = self.book.version()
        if version != self._version:
            owners = self.book.owners()
            self._clients = {
                key.sha256: client_of(key, owners) for key in owners.keys.values() if key.revoked is None and key.sha256
            }
            self._version, self._has_keys = owners.version, bool(owners.keys)
        self._read_s = began_s
        if began_s >= self._next_beat_s:
            self._next_beat_s = began_s + BEAT_S
            self._beat(began_s)

    def _beat(self, now_s: float) -> None:
        self._beats += 1
        self.book.beat(self.holder, self._beats)
        used = {name: at for name, at in self._used.items() if at != self._told.get(name)}
        if used:
            self.book.note_used(used)
            self._told.update(used)
        store = self.book.store
        beats = self.book.beats()
        rows = held_rows(store)
        self._fullness = used_ratios(self._clients.values(), {row.name: row.state for row in rows}, at=self._now())
        holders = {part.holder for row in rows for part in row.state.parts.values()}
        dead = [holder for holder in sorted({*beats, *holders} - {self.holder}) if self._is_dead(holder, beats, now_s)]
        if dead:
            lost = bill_dead(store, dead, now=self._now())
            if lost:
                _log.warning("gateway: a gateway is gone; what %d of its requests had reserved counts as spent", lost)
            for holder in dead:
                self.book.forget_process(holder)
                self._seen.pop(holder, None)
        forget_old(store, now=self._now())

    def _is_dead(self, holder: str, beats: Mapping[str, str], now_s: float) -> bool:
        """Whether it was seen to be gone, or its beats stand still: by this process's own clock, so no other has to be right."""
        if is_gone(holder):
            return True
        told = beats.get(holder, "")
        before, since_s = self._seen.get(holder, ("", inf))
        if told != before or since_s == inf:
            self._seen[holder] = (told, now_s)
            return False
        return now_s - since_s > LEASE_S

    def _work(self) -> None:
        failed = False
        while not self._ends.wait(LOOK_S):
            try:
                self.look()
                failed = False
            except (CallerError, TurnwiseBug) as error:
                if not failed:
                    _log.error("gateway: the clients' keys cannot be read: %s", error)
                failed = True

    def close(self) -> None:
        """Say that this gateway ends: it has no request under way."""
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(STALE_S)
        try:
            self._beat_last()
        except (CallerError, TurnwiseBug) as error:
            _log.error("gateway: it cannot be written that this gateway has ended: %s", error)
        self._journal.close()

    def _beat_last(self) -> None:
        used = {name: at for name, at in self._used.items() if at != self._told.get(name)}
        if used:
            self.book.note_used(used)
        self.book.forget_process(self.holder)


@contextlib.contextmanager
def open_shared(
    env: Mapping[str, str], *, clock: Clock, database: str | None = None, goes_on_s: float = 0.0
) -> Generator[SharedClients]:
    """The clients in the user's journal, or in that of a `database`, kept until the end of the block. They are known for
    `goes_on_s` longer while it cannot be reached. Raises CallerError."""
    journal = Journal(database or journal_path(env), clock=clock)
    try:
        shared = SharedClients(journal, now=clock.now, stale_s=STALE_S + goes_on_s)
    except BaseException:
        journal.close()
        raise
    shared.start()
    try:
        yield shared
    finally:
        shared.close()
