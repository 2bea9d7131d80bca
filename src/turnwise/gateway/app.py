"""The gateway as a bare ASGI application: the doors, the bounds, and the way to the service and back."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import sys
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from turnwise.base.threads import LONG_BYTES, beside_loop
from turnwise.errors import CallerError
from turnwise.gateway import doors
from turnwise.gateway.client_bounds import PREFIX, Bounds, ClientKey, KeyRing, find_client
from turnwise.gateway.doors import (
    JSON,
    WRITER,
    ClientCall,
    ClientGone,
    DoorRefusal,
    GatewayService,
    OwnAddress,
    PieceWriter,
    encode_refusal,
    family_of,
)
from turnwise.gateway.passing import (
    is_free_form,
    is_upload,
    may_pass,
    passed_headers,
    passed_query,
    passes,
    refuse_passed,
    ticket_holder,
)
from turnwise.gateway.sockets import ClientSocket, WarmContexts
from turnwise.journal.gateway_rows import without_keys
from turnwise.relay.client_request import asked_path, is_deeper
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import AskedPath, relay_facts

if TYPE_CHECKING:
    from turnwise.gateway.admin import AdminApi
    from turnwise.gateway.client_limits import LimitedClient

    AnyClient = ClientKey | LimitedClient

# --- which user's program is at the other end of a connection on this machine
#
# TCP does not tell it. Linux lists the sockets of this machine with their owners in /proc/net (proc(5)); other systems have no
# such list.

SOCKETS = Path("/proc/net")
_UID, _INODE = 7, 9  # of a row's fields


def is_own_user(client: tuple[str, int] | None, own: OwnAddress, *, sockets: Path = SOCKETS) -> bool:
    """Whether the user of this process opened the connection from `client` to `own`. False if that cannot be known."""
    uid = getattr(os, "geteuid", lambda: None)()
    return client is not None and uid is not None and owner_of(client, own, sockets=sockets) == uid


def owner_of(client: tuple[str, int], own: OwnAddress, *, sockets: Path = SOCKETS) -> int | None:
    """The id of the user who owns the socket. A socket for both versions of IP is in the table of IPv6."""
    try:
        here, there = ipaddress.ip_address(client[0]), ipaddress.ip_address(own.ip)
    except ValueError:
        return None
    forms = [("tcp" if here.version == 4 else "tcp6", here.packed, there.packed)]
    if here.version == 4:
        mapped = bytes(10) + b"\xff\xff"
        forms.append(("tcp6", mapped + here.packed, mapped + there.packed))
    for table, client_ip, own_ip in forms:
        wanted = [_written(client_ip, client[1]), _written(own_ip, own.port)]
        try:
            rows = (sockets / table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, UnicodeDecodeError):
            continue
        for row in rows:
            fields = row.split()
            # A socket that its program has closed belongs to nobody any more: its row says user 0 and inode 0.
            if fields[1:3] == wanted and fields[_INODE] != "0":
                return int(fields[_UID])
    return None


def _written(packed: bytes, port: int) -> str:
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join([f"{int.from_bytes(word, sys.byteorder):08X}" for word in words]) + f":{port:04X}"


_log = logging.getLogger("turnwise")

# ASGI's own types, as servers have them.
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Coroutine[None, None, None]]

METRICS_TYPE = ("content-type", "text/plain; version=0.0.4; charset=utf-8")  # Prometheus, "Exposition formats"
TRACE = ("traceparent", "tracestate")  # W3C, "Trace Context"
MOST_FIELDS = 64  # of a query
RETRY_AFTER_S = 1
MOST_ADMIN_BODY = 64 * 1024
LINGER_S = (
    2.0  # how long the rest of a request is read; otherwise the client's system throws the answer away (RFC 9112, 9.6)
)
PATH_CHARACTERS = 200  # of a path in a message


class DoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """Who is let in, and for which paths, by the configuration. `passes` are further paths, without query.
    `metrics` are networks whose programs read the counts without a key."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    passes: frozenset[str] = frozenset()
    metrics: tuple[str, ...] = ()
    forward_key: bool = False
    bounds: Bounds = Bounds()


class Visit:
    """One request at the door: its head, and the part of it that was read so far."""

    def __init__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        self.receive = receive
        self._send = send
        self.http_version: str = scope["http_version"]
        self.method: str = scope["method"]
        self.scheme: str = scope.get("scheme", "http")
        self.path: str = scope["raw_path"].decode("latin-1")
        self.raw_query: bytes = scope["query_string"]
        self.is_socket: bool = scope["type"] == "websocket"
        self.headers = tuple([(key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"]])
        self.own = doors.OwnAddress(*scope["server"])
        self.client: tuple[str, int] | None = scope.get("client")
        self.query: tuple[tuple[str, str], ...] = ()
        self.family: FamilyName = family_of(self.path, header_names={key for key, _ in self.headers})
        self.id = doors.request_id(self.headers)
        self.origin: str | None = None  # once it is found in the list
        self.is_unread = doors.has_body(self.headers)
        self.has_started = False
        self.kind = ""  # of the request, as the counts name it
        self.is_served = False  # the service has it and counts it
        self.upload_secret = ""  # for an upload: the digest of the client's key
        self.is_only_client = True  # the only client with a key
        self.left = asyncio.Event()  # set once the client has gone
        self.direct: PieceWriter | None = None
        self._writer: PieceWriter | None = scope.get("state", {}).get(WRITER)

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Raises ClientGone."""
        if self.left.is_set():
            raise ClientGone
        every = (*headers, ("x-request-id", self.id), *doors.cors_headers(self.origin))
        if self.is_unread:
            every = (*every, ("connection", "close"))
        encoded = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in every]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
        self.has_started = True
        is_measured = any(key.lower() in ("content-length", "transfer-encoding") for key, _ in headers)
        if not is_measured and self.http_version == "1.1" and self.method == "POST" and status == 200:
            self.direct = self._writer

    async def send(self, data: bytes) -> None:
        """Raises ClientGone."""
        if self.left.is_set():
            raise ClientGone
        for at in range(0, len(data), LONG_BYTES):
            piece = data if len(data) <= LONG_BYTES else data[at : at + LONG_BYTES]
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def accept(self) -> None:
        """Open the WebSocket."""
        await self.receive()  # that it wants to be opened
        told = [(b"x-request-id", self.id.encode("latin-1"))]
        await self._send({"type": "websocket.accept", "headers": told})
        self.has_started = True

    async def send_message(self, message: AsgiMessage) -> None:
        await self._send(message)

    async def gone(self) -> None:
        await self.left.wait()

    async def finish(self) -> None:
        """The answer is whole."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def reply(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send a whole answer. If the body is still arriving, it is read for a moment and thrown away."""
        await self.start(status, headers)
        await self.send(body)
        if self.is_unread:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while (await self.receive()).get("more_body"):
                        pass
        await self.finish()

    async def refuse(self, refusal: DoorRefusal) -> None:
        place = f"{self.method} {_shown(self.path)}"
        _log.warning("gateway: %d for %s [%s]: %s", refusal.status, place, self.id, refusal.message)
        headers, body = encode_refusal(refusal, family=self.family)
        await self.reply(refusal.status, headers, body)

    async def watch(self) -> None:
        """Wait until the client has gone. Call it after the body has been read."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.left.set()


class GatewayApp:
    """`await app(scope, receive, send)` answers one request of any kind."""

    def __init__(
        self, service: GatewayService, *, rules: DoorRules, keys: KeyRing, admin: "AdminApi | None" = None
    ) -> None:
        self._admin = admin
        self._service = service
        self._rules = rules
        self._keys = keys
        self._open = 0
        self._contexts = WarmContexts()
        self._sockets = set[ClientSocket]()
        self._is_ending = False
        self.is_draining = False  # it ends soon: nobody should send anything new

    async def __call__(self, scope: Mapping[str, Any], receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] == "websocket":
            scope, send = {**scope, "method": "GET"}, _answering_handshake(send)
        elif scope["type"] != "http":
            return
        visit = Visit(scope, receive, send)
        try:
            if (refusal := await self._receive_visit(visit)) is not None:
                await self._refuse(visit, refusal)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 (one request's bug must not end the others)
            # The text may hold what the client sent, so the log gets only the place. The answer that was begun stays without its
            # end: the server closes the connection, and no client takes the answer for whole.
            _log.error("gateway: bug at [%s]: %s", visit.id, _place_of(error))
            if not visit.has_started:
                with contextlib.suppress(ClientGone):
                    await self._refuse(
                        visit,
                        DoorRefusal(reason="bug", status=500, message="the gateway failed; its log names the place"),
                    )

    async def _refuse(self, visit: Visit, refusal: DoorRefusal) -> None:
        if not visit.is_served:
            self._service.refused(refusal.reason, family=visit.family, kind=visit.kind, status=refusal.status)
        await visit.refuse(refusal)

    def renew(self, service: GatewayService, *, rules: DoorRules) -> None:
        """From now on, new requests have these. Others keep what they began with."""
        self._service, self._rules = service, rules

    def stop_keeping(self) -> None:
        self._is_ending = True
        self._service.stop_keeping()
        for socket in self._sockets:
            socket.drain()

    @property
    def origins(self) -> frozenset[str]:
        return self._rules.origins

    @property
    def hosts(self) -> frozenset[str]:
        return self._rules.hosts

    @property
    def bounds(self) -> Bounds:
        return self._rules.bounds

    def metrics(self) -> bytes:
        """All counts, as `/metrics` tells them."""
        return self._service.metrics()

    def refused_early(self, refusal: DoorRefusal, *, path: str, id: str, family: FamilyName) -> None:
        """The connection was refused before a request could get here."""
        shown = _shown(path) if path.startswith("/") else "a request without a path"  # an address may contain a key
        _log.warning("gateway: %d for %s [%s]: %s", refusal.status, shown, id, refusal.message)
        self._service.refused(refusal.reason, family=family, kind="", status=refusal.status)

    async def _receive_visit(self, visit: Visit) -> DoorRefusal | None:
        """Answer it, unless it is refused."""
        asked = asked_path(visit.method, visit.path, header_names={key for key, _ in visit.headers})
        if asked is not None:
            visit.family, visit.kind = asked.family, asked.kind
            if may_pass(asked) and passes(self._rules.passes, "POST", visit.path):
                asked = None  # the file says that this path goes on as it is
        if visit.method in ("GET", "HEAD") and visit.path in ("/healthz", "/readyz"):
            # A probe may come by any name or address. The answer says nothing that a page should not read.
            is_good = visit.path == "/healthz" or (self._service.is_ready() and not self.is_draining)
            status, said = (200, b'{"status":"ok"}') if is_good else (503, b'{"status":"not ready"}')
            await visit.reply(status, _sized(JSON, said), said)
            return None
        if (refusal := self._refuse_head(visit)) is not None:
            return refusal
        if visit.is_socket:
            return await self._open_socket(visit)
        if visit.method == "OPTIONS" and visit.origin is not None:
            await visit.reply(204, doors.preflight_headers(visit.headers), b"")
        elif (visit.method, visit.path) == ("HEAD", "/"):  # Claude Code asks so whether anybody is there
            await visit.reply(200, _sized(JSON, b""), b"")
        elif self._is_scrape(visit):
            await self._tell_counts(visit)
        elif isinstance(client := self._let_in(visit), DoorRefusal):
            if self._admin is not None and visit.path.startswith("/admin/"):
                await self._admin.note_stranger(visit.method, visit.path, place=_place(visit))
            return client
        else:
            return await self._serve(visit, asked, client=client)
        return None

    def _refuse_head(self, visit: Visit) -> DoorRefusal | None:
        """Check the sender, the origin, and whether the query can be read."""
        rules = self._rules
        found = doors.refuse_host(doors.values_of(visit.headers, "host"), own=visit.own, listed=rules.hosts)
        if found is not None:
            return found
        origins = doors.values_of(visit.headers, "origin")
        if (found := doors.refuse_origin(origins, listed=rules.origins)) is not None:
            return found
        visit.origin = origins[0] if origins else None
        if len(visit.raw_query) > rules.bounds.query_bytes:
            return DoorRefusal(
                reason="head",
                status=414,
                message=f"the query has more than {rules.bounds.query_bytes:,} bytes",
                code="uri_too_long",
            )
        try:
            query = urllib.parse.parse_qsl(
                visit.raw_query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
            )
        except ValueError:
            return DoorRefusal(
                reason="head", status=400, message="the query of the URL cannot be read", code="bad_query"
            )
        visit.query = tuple(query)
        return None if visit.is_socket else doors.refuse_upgrade(visit.method, visit.headers)

    def _let_in(self, visit: Visit) -> "AnyClient | DoorRefusal | None":
        """The client whose key this is; None if the gateway asks for no keys."""
        try:
            keys = self._keys.current()
        except CallerError as error:
            _log.error("gateway: nobody is let in: %s", error)
            return DoorRefusal(reason="key", status=503, message="the gateway cannot read its keys; its log says why")
        if keys is None:
            return None
        visit.is_only_client = len(keys) == 1
        found = find_client(doors.keys_in(visit.headers, visit.query), keys=keys)
        if is_upload(visit.path):
            found = found or ticket_holder(visit.query, keys, now=time.time())
            visit.upload_secret = next((digest for digest, client in keys.items() if client is found), "")
        if found is not None and self._keys.holds(found):
            return found
        return DoorRefusal(
            reason="key",
            status=401,
            message="this key has expired"
            if found is not None
            else "this gateway asks for a key of its own, and the request has none that is known here; a header with a key "
            "must not be there twice",
        )

    async def _serve(self, visit: Visit, asked: AskedPath | None, *, client: "AnyClient | None") -> DoorRefusal | None:
        if visit.path.startswith("/admin/"):
            return await self._administer(visit, client)
        if (visit.method, visit.path) == ("GET", "/metrics"):
            if (why := await _why_no_metrics(visit, client)) is not None:
                return DoorRefusal(reason="admin_key", status=403, message=why, code="admin_key_required")
            await self._tell_counts(visit)
        elif asked is None and not passes(self._rules.passes, visit.method, visit.path):
            return _nothing_there(visit)
        elif asked is not None and asked.kind == "models":
            body = await self._service.models(self._call_of(visit, asked, body=b"", client=client))
            if body is None:
                message = "no route of this gateway serves a model of this name"
                return DoorRefusal(reason="path", status=404, message=message, code="model_not_found")
            await visit.reply(200, _sized(JSON, body), body)
        else:
            return await self._generate(visit, asked, client=client)
        return None

    def _is_scrape(self, visit: Visit) -> bool:
        """Whether the counts are asked for from a network of the configuration: the peer's own address counts, not the name that
        it sends."""
        networks = self._rules.metrics
        if not networks or (visit.method, visit.path) != ("GET", "/metrics") or visit.client is None:
            return False
        return doors.is_in(visit.client[0], networks)

    async def _tell_counts(self, visit: Visit) -> None:
        body = self._service.metrics()
        await visit.reply(200, _sized(METRICS_TYPE, body), body)

    async def _administer(self, visit: Visit, client: "AnyClient | None") -> DoorRefusal | None:
        """Answer a request for keys, teams and users: from a key of the journal alone. Where a page is served, it has them."""
        if self._admin is None:
            return _nothing_there(visit)
        if client is None:
            return DoorRefusal(
                reason="admin_key", status=403, message="`/admin` asks for an admin key", code="admin_key_required"
            )
        body = b""
        if visit.is_unread:
            if (refusal := doors.refuse_content(visit.headers)) is not None:
                return refusal
            bounds = msgspec.structs.replace(self._rules.bounds, body_bytes=MOST_ADMIN_BODY)
            read = await read_visit_body(visit, bounds=bounds)
            if isinstance(read, DoorRefusal):
                return read
            body = read
        call = self._admin.call(
            visit.method, visit.path, query=visit.query, body=body, client=client, place=_place(visit)
        )
        found = await self._admin.answer(call)
        if isinstance(found, DoorRefusal):
            return found
        status, answer = found
        await visit.reply(status, (*_sized(JSON, answer), ("cache-control", "no-store")), answer)
        return None

    async def _generate(
        self, visit: Visit, asked: AskedPath | None, *, client: "AnyClient | None"
    ) -> DoorRefusal | None:
        bounds = self._rules.bounds
        if asked is None:
            refusal = refuse_passed(visit.method, visit.path, visit.headers, has_body=visit.is_unread)
        else:
            refusal = doors.refuse_content(visit.headers)
        refusal = refusal or doors.refuse_length(visit.headers, most=bounds.body_bytes)
        if refusal is not None:
            return refusal
        if (refusal := self._refuse_busy()) is not None:
            return refusal
        self._open += 1
        try:
            body = await read_visit_body(
                visit, bounds=bounds, is_json=asked is not None or not is_free_form(visit.headers)
            )
            if isinstance(body, DoorRefusal):
                await self._refuse(visit, body)
            else:
                await self._answer(visit, self._call_of(visit, asked, body=body, client=client))
        finally:
            self._open -= 1
        return None

    def _refuse_busy(self) -> DoorRefusal | None:
        bounds, busy = self._rules.bounds, ""
        if self._open >= bounds.streams:
            busy = f"the gateway serves {bounds.streams:,} requests already"
        elif self._service.is_full():
            busy = f"the answers under way have {bounds.answers_bytes:,} bytes, as many as the gateway holds"
        return _busy(busy) if busy else None

    async def _open_socket(self, visit: Visit) -> DoorRefusal | None:
        """Serve a WebSocket until it ends, unless it is refused."""
        if any(key == doors.KEY_QUERY for key, _ in visit.query):
            return DoorRefusal(
                reason="key", status=401, message="a key stands in a header here, never in the query of the URL"
            )
        if isinstance(client := self._let_in(visit), DoorRefusal):
            return client
        asked = asked_path("POST", visit.path)
        if asked is None or asked.kind != "generate" or (form := relay_facts(asked.family).socket) is None:
            return doors.no_socket()
        if self._is_ending or 2 * len(self._sockets) >= self._rules.bounds.connections:
            return _busy("the gateway has as many WebSockets as it may")
        await visit.accept()
        door = _SocketDoor(self, visit, asked, beta=form.beta)
        socket = ClientSocket(
            door,
            asked=asked.family,
            form=form,
            receive=visit.receive,
            send=visit.send_message,
            contexts=self._contexts,
        )
        self._sockets.add(socket)
        try:
            await socket.run()
        finally:
            self._sockets.discard(socket)
        return None

    def judge_again(self, visit: Visit, asked: AskedPath, *, body: bytes) -> ClientCall | DoorRefusal:
        """A request over a WebSocket that was let in before."""
        client = self._refuse_head(visit) or self._let_in(visit)
        if isinstance(client, DoorRefusal):
            return client
        return self._call_of(visit, asked, body=body, client=client)

    async def answer_frame(self, call: ClientCall, outlet: doors.Outlet) -> DoorRefusal | None:
        if (refusal := self._refuse_busy()) is not None:
            return refusal
        self._open += 1
        try:
            await self._service.answer(call, outlet)
        finally:
            self._open -= 1
        return None

    def _call_of(self, visit: Visit, asked: AskedPath | None, *, body: bytes, client: "AnyClient | None") -> ClientCall:
        query, headers = doors.listed_query(visit.query), doors.listed_headers(visit.headers)
        if asked is None:
            query = (*query, *passed_query(visit.query))
            headers = (*headers, *passed_headers(visit.path, visit.headers))
        return ClientCall(
            id=visit.id,
            method=visit.method,
            path=visit.path,
            query=query,
            headers=headers,
            body=body,
            family=visit.family,
            kind="passed" if asked is None or asked.kind == "models" else asked.kind,
            model=asked and asked.model,
            streams=asked is not None and asked.streams,
            takes_streams=visit.http_version != "1.0",
            client="" if client is None else client.name,
            is_only_client=visit.is_only_client,
            client_key=_key_to_forward(visit) if self._rules.forward_key else "",
            trace=tuple([pair for pair in visit.headers if pair[0] in TRACE]),
            limits=None if isinstance(client, ClientKey) else client,
            same_turn=doors.same_turn_of(visit.headers, visit.query),
            upload_secret=visit.upload_secret,
            place=f"{'https' if _is_https(visit) else 'http'}://{doors.values_of(visit.headers, 'host')[0]}",
        )

    async def _answer(self, visit: Visit, call: ClientCall) -> None:
        watching = asyncio.create_task(visit.watch())
        visit.is_served = True
        try:
            await self._service.answer(call, visit)
            if not visit.has_started:
                raise RuntimeError("the service gave no answer")
            await visit.finish()
        finally:
            watching.cancel()


class _SocketDoor:
    """See `SocketDoor`."""

    def __init__(self, app: GatewayApp, visit: Visit, asked: AskedPath, *, beta: str) -> None:
        self._app, self._visit, self._asked, self._beta = app, visit, asked, beta

    @property
    def bounds(self) -> Bounds:
        return self._app.bounds

    def call_of(self, body: bytes, *, id: str) -> ClientCall | DoorRefusal:
        call = self._app.judge_again(self._visit, self._asked, body=body)
        if isinstance(call, DoorRefusal):
            return call
        headers = tuple([pair for pair in call.headers if not pair[1].startswith(self._beta)])
        return msgspec.structs.replace(call, id=id, method="POST", headers=headers, same_turn=b"")

    async def answer(self, call: ClientCall, outlet: doors.Outlet, /) -> DoorRefusal | None:
        return await self._app.answer_frame(call, outlet)

    def refused(self, refusal: DoorRefusal, /, *, id: str) -> None:
        self._app.refused_early(refusal, path=self._visit.path, id=id, family=self._asked.family)


def _busy(why: str) -> DoorRefusal:
    return DoorRefusal(reason="busy", status=503, message=f"{why}; try again", retry_after_s=RETRY_AFTER_S)


def _answering_handshake(send: AsgiSend) -> AsgiSend:
    """An answer in HTTP's messages refuses a WebSocket (ASGI, "Websocket Denial Response")."""

    def to_handshake(message: AsgiMessage) -> Coroutine[None, None, None]:
        kind: str = message["type"]
        return send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

    return to_handshake


async def _why_no_metrics(visit: Visit, client: "AnyClient | None") -> str | None:
    """Why this client may not see the counts: they name models and providers, and tell how much somebody works."""
    if client is not None:
        return None if client.admin else "`/metrics` asks for a key with `--metrics` or `--admin`"
    if await asyncio.to_thread(is_own_user, visit.client, visit.own):
        return None
    return (
        "without keys `/metrics` is for programs of the user who started the gateway, which this connection is not known to be "
        "from: make an admin key, `turnwise gateway keys add --admin NAME`"
    )


async def read_visit_body(visit: Visit, *, bounds: Bounds, is_json: bool = True) -> bytes | DoorRefusal:
    """Raises ClientGone."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(bounds.body_s):
            while True:
                message = await visit.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                pieces.append(message["body"])
                size += len(message["body"])
                if size > bounds.body_bytes:
                    return doors.too_long(bounds.body_bytes)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        return DoorRefusal(
            reason="late",
            status=408,
            message=f"the body did not arrive within {bounds.body_s:g} s",
            code="request_timeout",
        )
    visit.is_unread = False
    body = b"".join(pieces)
    if is_json and await beside_loop(lambda: is_deeper(body, most=bounds.depth), size=size):
        return DoorRefusal(
            reason="body",
            status=400,
            message=f"the body is nested more than {bounds.depth} levels deep",
            code="too_deep",
        )
    return body


def _place(visit: Visit) -> str:
    return visit.client[0] if visit.client else "unknown"


def _is_https(visit: Visit) -> bool:
    """As the client sees it: a proxy says so. A client that says so itself misleads nobody else."""
    return visit.scheme == "https" or "https" in doors.values_of(visit.headers, "x-forwarded-proto")


def _shown(path: str) -> str:
    return without_keys(path)[:PATH_CHARACTERS] if path.isprintable() else "(a path that cannot be shown)"


def _key_to_forward(visit: Visit) -> str:
    """The first key that was not made for a gateway. A gateway's own key stays here, even if it is revoked by now."""
    shown = doors.keys_in(visit.headers, visit.query)
    return next((key for key in shown if not key.startswith(PREFIX)), "")


def _nothing_there(visit: Visit) -> DoorRefusal:
    other = [method for method in ("GET", "POST") if asked_path(method, visit.path) is not None]
    if other:  # and none of them is the visit's own
        return DoorRefusal(
            reason="path", status=405, message=f"this path takes {' or '.join(other)}", code="method_not_allowed"
        )
    return DoorRefusal(
        reason="path",
        status=404,
        message="the gateway has no such path. It serves `/v1/chat/completions`, `/v1/responses`, `/v1/messages`, "
        "`/v1/messages/count_tokens`, `/v1/models` and Gemini's `/v1beta/models`. To pass another path on as it is, list it in "
        "`pass` of its route in gateway.toml",
        code="unknown_path",
    )


def _sized(kind: tuple[str, str], body: bytes) -> tuple[tuple[str, str], ...]:
    return (kind, ("content-length", str(len(body))))


def _place_of(error: Exception) -> str:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_qualname}:{place.tb_lineno}"
    return type(error).__name__ + where
