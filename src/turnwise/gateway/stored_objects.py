"""Whose what is stored at a provider is. All clients of a gateway share the provider's key, so the gateway remembers each id that
an answer gave to a client, before the client sees it: it belongs to the team of the client's key, or to the key if that has none.
For everybody else it does not exist.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

from turnwise.base.clock import Clock
from turnwise.errors import JournalFailed
from turnwise.gateway.doors import ClientCall, ClientGone, Outlet, PieceWriter
from turnwise.gateway.upstreams import OpenUpstream
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.stored_rows import (
    DAY_S,
    StoredOwner,
    StoredRow,
    forget,
    forget_ended,
    owners_of,
    remember,
)
from turnwise.journal.stores import JournalStore
from turnwise.relay.client_request import ClientRequest, RequestRefused
from turnwise.relay.stored_ids import LONGEST_ID, UPLOAD_PARTS, UPLOADS, StoredId, ids_in_event, may_make
from turnwise.wire.profiles import FamilyName

T = TypeVar("T")

KEPT_S = 400 * DAY_S  # since an id was used last
# Of kinds that providers delete by themselves after some days.
_SHORTLY_KEPT = ("responses", "completions", "interactions", "containers", "uploads", UPLOADS, UPLOAD_PARTS)
SHORTLY_KEPT_S = 60 * DAY_S
LOOK_S = 3600.0  # how often rows that have ended are looked for


def owner_of(call: ClientCall) -> str:
    """The team of the client's key, or the key itself."""
    team = "" if call.limits is None else call.limits.team
    return f"team/{team}" if team else f"key/{call.client}"


class StoredObjects:
    """The owners of objects, in the journal that all gateways of a company share. Every method raises RequestRefused where that
    cannot be asked: then nothing is told."""

    def __init__(self, ledger: LedgerThread | None, *, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._look_s = 0.0

    def now(self) -> float:
        return self._clock.now()

    async def owned(self, ids: Iterable[StoredId], *, owner: str, at: Collection[OpenUpstream]) -> dict[StoredId, str]:
        """Those of the owner, each with its door. Nobody else's, and none that has no owner."""
        accounts = {opened.account for opened in at}
        names = {
            f"{account}/{one.kind}/{one.id}": one
            for one in ids
            if one.id.isprintable() and 0 < len(one.id) <= LONGEST_ID
            for account in accounts
        }
        if not names:
            return {}
        kept = {name: _kept_s(one) for name, one in names.items()}
        found = await self._does(partial(owners_of, names=kept, now=self._clock.now()))
        return {names[name]: row.door for name, row in found.items() if row.owner == owner}

    async def check(self, ids: Collection[StoredId], *, owner: str, at: Collection[OpenUpstream]) -> str:
        """The door of the first of them; "" if there are none. Raises RequestRefused, with the words for an id that never was,
        unless all are the owner's."""
        if not ids:
            return ""
        found = await self.owned(ids, owner=owner, at=at)
        for one in ids:
            if one not in found:
                shown = one.id if one.id.isprintable() and len(one.id) <= LONGEST_ID else "(an id that cannot be shown)"
                raise RequestRefused(f"no object `{shown}` was found ({one.kind})", status=404)
        return next(iter(found.values()))

    async def remember(self, ids: Iterable[StoredId], *, owner: str, opened: OpenUpstream) -> None:
        """On return the ids belong to the owner, unless they are another's already."""
        row_owner, account, now = StoredOwner(owner, opened.door), opened.account, self._clock.now()
        rows = [
            StoredRow(f"{account}/{one.kind}/{one.id}", row_owner, _kept_s(one))
            for one in ids
            if one.id.isprintable() and 0 < len(one.id) <= LONGEST_ID
        ]
        if rows:
            await self._does(partial(remember, rows=rows, now=now))
        if now >= self._look_s:
            self._look_s = now + LOOK_S
            await self._does(partial(forget_ended, now=now))

    async def forget(self, one: StoredId, *, opened: OpenUpstream) -> None:
        """It was deleted."""
        await self._does(partial(forget, name=f"{opened.account}/{one.kind}/{one.id}"))

    async def _does(self, work: Callable[[JournalStore], T]) -> T:
        if self._ledger is None:
            raise RequestRefused("this gateway has no journal to tell whose an object is", status=503)
        try:
            return await self._ledger.does(work)
        except JournalFailed:
            raise RequestRefused("the gateway cannot look up now whose an object is: try again", status=503) from None


def _kept_s(one: StoredId) -> float:
    return SHORTLY_KEPT_S if one.kind in _SHORTLY_KEPT else KEPT_S


MOST_HELD = 4 * 1024 * 1024  # of one event


class OwningOutlet:
    """The way out for an answer that a provider stores: each id in it is remembered before the client gets it. So every event is
    read once more, whole, and none takes the short way past this. `opened` is who answers."""

    def __init__(self, outlet: Outlet, *, stored: StoredObjects, owner: str, family: FamilyName, streams: bool) -> None:
        self._outlet, self._stored, self._owner, self._streams = outlet, stored, owner, streams
        self._family: FamilyName = family
        self.opened: OpenUpstream | None = None
        self._head: tuple[int, Sequence[tuple[str, str]]] | None = None
        self._has_begun = False
        self._held = b""
        self._known: set[StoredId] = set()
        self.gone = outlet.gone

    @property
    def direct(self) -> PieceWriter | None:
        return None

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self._head = (status, headers)

    async def send(self, data: bytes) -> None:
        """What is not a whole event yet waits for its end. Raises RequestRefused before the status is told, and ClientGone behind
        that, if an id cannot be remembered."""
        held = self._held + data
        ends = [held.rfind(mark) + len(mark) for mark in (b"\n\n", b"\n\r\n") if mark in held]
        at = max(ends, default=0) if self._streams else len(held)
        if at == 0 and len(held) > MOST_HELD:
            at = len(held)
        self._held = held[at:]
        if at > 0:
            await self._tell(held[:at])

    async def flush(self) -> None:
        """The answer is over."""
        if self._held:
            held, self._held = self._held, b""
            await self._tell(held)

    async def _tell(self, ready: bytes) -> None:
        found = self._ids_in(ready) - self._known
        if found and self.opened is not None:
            try:
                await self._stored.remember(found, owner=self._owner, opened=self.opened)
            except RequestRefused:
                if self._has_begun:
                    raise ClientGone from None
                raise
            self._known |= found
        if self._head is not None:
            (status, headers), self._head = self._head, None
            self._has_begun = True
            await self._outlet.start(status, headers)
        await self._outlet.send(ready)

    def _ids_in(self, ready: bytes) -> set[StoredId]:
        if not self._streams:
            return ids_in_event(self._family, ready)
        lines = [line[5:].strip() for line in ready.splitlines() if line.startswith(b"data:")]
        return {one for line in lines if _may_name(line) for one in ids_in_event(self._family, line)}


def _may_name(line: bytes) -> bool:
    """Deltas of text name nothing: the events that do are few."""
    return b'"response"' in line or b'"chat.completion' in line or b"container" in line or b"file_id" in line


def owning_outlet(
    outlet: Outlet, call: ClientCall, asked: ClientRequest, *, stored: StoredObjects
) -> OwningOutlet | None:
    """None for a request after which nothing is stored."""
    is_stored = any(bytes(asked.fields.get(name, b"false")) == b"true" for name in ("store", "background"))
    if not is_stored and not may_make(call.family, call.body):
        return None
    return OwningOutlet(outlet, stored=stored, owner=owner_of(call), family=call.family, streams=asked.streams)
