"""`/admin`: keys, users, teams, the audit log and usage over HTTP, for clients whose key has the right.

| request | does |
|---|---|
| `GET /admin/keys`, `/admin/users`, `/admin/teams` | lists them |
| `POST /admin/keys` | makes a key: `name`, and any field of `OwnerChange`; the answer has the key, this once |
| `GET`, `PATCH /admin/keys/NAME`, and of users and teams | shows one; changes what the body names |
| `DELETE /admin/keys/NAME` | revokes it |
| `POST /admin/keys/NAME/rotate` | a new key with the same terms |
| `GET /admin/audit` | the latest thousand rows |
| `GET /admin/usage?by=team&since=0` | sums of the ledger by key, user, team, model or day |
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from turnwise.errors import CallerError, JournalFailed
from turnwise.gateway.client_bounds import ClientKey
from turnwise.gateway.client_limits import LimitedClient
from turnwise.gateway.doors import DoorRefusal
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.gateway_rows import (
    Actor,
    GatewayOwner,
    OwnerChange,
    OwnerKind,
    OwnerShown,
    by_owner,
    shown_owner,
    without_keys,
)
from turnwise.journal.ledger_queries import LedgerSpan, Total

FOLDER = "/admin"
MINUTE_S = 60.0
MOST_TRIES = 10
IN_AUDIT = "bad_request"  # the code of what the book refused, which it has written down itself
KINDS: dict[str, OwnerKind] = {"keys": "key", "users": "user", "teams": "team"}


class AdminCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request below `/admin`. `place` is the address that it came from."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    client: LimitedClient
    place: str


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of the ledger. `usd` is that of the requests whose price is known; `unknown` counts the others."""

    name: str
    requests: int
    usd: Decimal
    unknown: int
    input_tokens: int
    output_tokens: int


AdminAnswer = tuple[int, bytes]


class AdminApi:
    """`answer` one request: the status and a JSON body, or why it is refused."""

    def __init__(self, shared: SharedClients, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._shared, self._monotonic = shared, monotonic
        self._tries: dict[str, list[float]] = {}  # of clients without the right: when, in the last minute

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]],
        body: bytes,
        client: LimitedClient | ClientKey,
        place: str,
    ) -> AdminCall:
        """A key of the older file has no right to anything here."""
        if isinstance(client, ClientKey):
            client = LimitedClient(name=client.name)
        return AdminCall(method=method, path=path, query=dict(query), body=body, client=client, place=place)

    async def note_stranger(self, method: str, path: str, *, place: str) -> None:
        """A try without a known key."""
        await self.answer(self.call(method, path, query=(), body=b"", client=LimitedClient(name=""), place=place))

    async def answer(self, call: AdminCall) -> AdminAnswer | DoorRefusal:
        """Beside the event loop: the journal may have to be waited for."""
        return await asyncio.to_thread(self._answered, call)

    def _answered(self, call: AdminCall) -> AdminAnswer | DoorRefusal:
        parts = call.path.removeprefix(FOLDER).strip("/").split("/")
        try:
            if call.client.rights != "admin":
                return self._refuse_client(call, parts)
            found = self._tried(call, parts)
            if isinstance(found, DoorRefusal) and call.method != "GET" and found.code != IN_AUDIT:
                self._note(call, parts, why=found.message)
            return found
        except JournalFailed as error:
            return DoorRefusal(
                reason="busy", status=503, message=f"the journal cannot be used: {error}", retry_after_s=5
            )

    def _tried(self, call: AdminCall, parts: list[str]) -> AdminAnswer | DoorRefusal:
        try:
            return self._done(call, parts)
        except JournalFailed:
            raise
        except CallerError as error:
            return DoorRefusal(reason="body", status=400, message=str(error), code=IN_AUDIT)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return DoorRefusal(reason="body", status=400, message=f"the body cannot be read: {error}", code="bad_body")

    def _note(self, call: AdminCall, parts: list[str], *, why: str) -> None:
        kind, name = (*parts, "")[:2]
        action = f"{call.method} {FOLDER}/{kind}"[:40]
        of = KINDS.get(kind, "key")
        self._shared.book.note_refused(action, kind=of, name=without_keys(name)[:64], why=why, by=_actor(call))

    def _refuse_client(self, call: AdminCall, parts: list[str]) -> DoorRefusal:
        """Each try is a row that stays, so only so many of a client are written in a minute, and as many of all strangers."""
        now_s = self._monotonic()
        tries = [at for at in self._tries.get(call.client.name, ()) if now_s - at < MINUTE_S]
        if len(tries) >= MOST_TRIES:
            message = "`/admin` asks for an admin key; too many tries"
            return DoorRefusal(reason="admin_key", status=429, message=message, retry_after_s=int(MINUTE_S))
        self._tries[call.client.name] = [*tries, now_s]
        self._note(call, parts, why="the key has no right to it")
        return DoorRefusal(
            reason="admin_key", status=403, message="`/admin` asks for an admin key", code="admin_key_required"
        )

    def _done(self, call: AdminCall, parts: list[str]) -> AdminAnswer | DoorRefusal:
        match [call.method, *parts]:
            case ["GET", "audit"]:
                return _json(200, {"rows": self._shared.book.audit()})
            case ["GET", "usage"]:
                return _json(200, {"rows": self._usage(call.query)})
            case ["GET", group] if group in KINDS:
                return _json(200, {group: list(self._shown(KINDS[group]).values())})
            case ["POST", "keys"]:
                return self._add(call)
            case [_, group, name] if group in KINDS:
                return self._one(call, KINDS[group], name)
            case ["POST", "keys", name, "rotate"]:
                return self._known(
                    name, lambda: self._keyed(200, name, self._shared.book.rotate_key(name, by=_actor(call)))
                )
            case _:
                return _nothing(call)

    def _one(self, call: AdminCall, kind: OwnerKind, name: str) -> AdminAnswer | DoorRefusal:
        match call.method, kind:
            case "GET", _:
                found = self._shown(kind).get(name)
                return _no_such(kind, name) if found is None else _json(200, found)
            case "PATCH", "key":
                change = msgspec.json.decode(call.body, type=OwnerChange)
                return self._known(name, lambda: self._changed(kind, name, change, call))
            case "PATCH", _:
                return self._changed(kind, name, msgspec.json.decode(call.body, type=OwnerChange), call)
            case "DELETE", "key":
                return self._known(name, lambda: self._revoked(name, call))
            case _:
                return _nothing(call)

    def _add(self, call: AdminCall) -> AdminAnswer | DoorRefusal:
        fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
        name = msgspec.json.decode(fields.pop("name", msgspec.Raw(b'""')), type=str)
        change = msgspec.json.decode(msgspec.json.encode(fields), type=OwnerChange)
        if name in self._shared.book.owners().keys:
            why = f"there is a key `{name}` already, or was"
            return DoorRefusal(reason="body", status=409, message=why, code="key_exists")
        key = self._shared.book.add_key(GatewayOwner(name=name), by=_actor(call), change=change.over)
        return self._keyed(201, name, key)

    def _keyed(self, status: int, name: str, key: str) -> AdminAnswer:
        self._shared.look()
        return _json(status, {"name": name, "key": key})

    def _changed(self, kind: OwnerKind, name: str, change: OwnerChange, call: AdminCall) -> AdminAnswer:
        owner = self._shared.book.set_owner(kind, name, change.over, by=_actor(call))
        self._shared.look()
        return _json(200, shown_owner(owner))

    def _revoked(self, name: str, call: AdminCall) -> AdminAnswer:
        self._shared.book.revoke_key(name, by=_actor(call))
        self._shared.look()
        return _json(200, self._shown("key")[name])

    def _known(self, name: str, work: Callable[[], AdminAnswer]) -> AdminAnswer | DoorRefusal:
        return work() if name in self._shared.book.owners().keys else _no_such("key", name)

    def _shown(self, kind: OwnerKind) -> dict[str, OwnerShown]:
        used = self._shared.book.last_used() if kind == "key" else {}
        owners = self._shared.book.owners().of(kind)
        return {name: shown_owner(one, last_used=used.get(name)) for name, one in owners.items()}

    def _usage(self, query: Mapping[str, str]) -> list[UsageRow]:
        by, since = query.get("by", "key"), query.get("since", "0")
        try:
            span = LedgerSpan(since=float(since), gateway=True)
        except ValueError:
            raise CallerError("`since` is seconds since 1970") from None
        ledger = self._shared.ledger
        match by:
            case "day" | "model":
                return list(map(usage_row, ledger.totals(span, by=by)))
            case "key" | "user" | "team":
                totals = ledger.totals(span, by="session")
                return list(map(usage_row, by_owner(totals, self._shared.book.owners(), kind=by)))
            case _:
                raise CallerError("`by` is key, user, team, model or day")


def usage_row(total: Total) -> UsageRow:
    return UsageRow(
        name=total.key,
        requests=total.cost.requests,
        usd=total.cost.usd,
        unknown=total.cost.unknown,
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
    )


def _actor(call: AdminCall) -> Actor:
    return Actor(who=f"key {call.client.name}" if call.client.name else "no known key", place=call.place)


def _json(status: int, value: Any) -> AdminAnswer:
    return status, msgspec.json.encode(value)


def _no_such(kind: str, name: str) -> DoorRefusal:
    shown = name if name.isprintable() else "(a name that cannot be shown)"
    return DoorRefusal(reason="path", status=404, message=f"there is no {kind} `{shown[:64]}`", code="not_found")


def _nothing(call: AdminCall) -> DoorRefusal:
    return DoorRefusal(
        reason="path", status=404, message=f"`{FOLDER}` has no such path for {call.method}", code="unknown_path"
    )
