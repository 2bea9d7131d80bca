"""Serves the page beside a gateway, or alone for one's own machine."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Generator

from msgspec.structs import replace
from uvicorn import Config, Server

from turnwise.base.clock import Clock
from turnwise.errors import CallerError
from turnwise.gateway.admin import AdminApi
from turnwise.gateway.app import GatewayApp
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.config import GatewayConfig, admin_address
from turnwise.gateway.doors import DoorRefusal
from turnwise.gateway.page import PageApp
from turnwise.gateway.page_access import KeyAccess
from turnwise.gateway.page_tail import live_tail
from turnwise.gateway.page_views import PageViews
from turnwise.gateway.protocol import bounded_protocol
from turnwise.gateway.serve import BoundSocket
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.journal import Journal
from turnwise.wire.profiles import FamilyName

_log = logging.getLogger("turnwise")

MOST_CONNECTIONS = 200
UNREAD_S = 10.0  # what the page gets is small
SETTLE_S = 2.0  # for answers under way at the end; a tail has no end of its own


class _PageServer(Server):
    """uvicorn's server without signals: who starts it ends it."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.servers = []
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    def drop_all(self) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


@contextlib.asynccontextmanager
async def served(
    app: PageApp, listening: BoundSocket, *, bounds: Bounds, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[None]:
    """Until the end of the block connections are accepted."""
    few = replace(
        bounds,
        connections=min(bounds.connections, MOST_CONNECTIONS),
        unread_s=min(bounds.unread_s, UNREAD_S),
    )
    config = Config(
        app,
        http=bounded_protocol(few, origins=(), refused=_note, makes_room=True),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=round(bounds.idle_s) or 1,
        ssl_context_factory=None if tls is None else lambda config, usual: tls,
    )
    server = _PageServer(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening.socket]))
    up = asyncio.ensure_future(server.is_up.wait())
    try:
        await asyncio.wait([serving, up], return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        up.cancel()
        server.should_exit = True
        server.drop_all()
        if tasks := list(server.server_state.tasks):
            await asyncio.wait(tasks, timeout=SETTLE_S)
        await asyncio.gather(serving, up, return_exceptions=True)
        listening.close()


def _note(refusal: DoorRefusal, *, path: str, id: str, family: FamilyName) -> None:
    _log.warning("gateway: page: %d for a request that cannot be read [%s]", refusal.status, id)


def bind_page(config: GatewayConfig) -> BoundSocket:
    """The socket of the page, whose address the configuration names, bound. Raises CallerError."""
    host, port = admin_address(config.admin)
    if port == config.port != 0:
        raise CallerError(f"`admin` has the clients' port {port}: give the page a port of its own")
    return BoundSocket(host, port, scheme="http" if config.tls is None else "https")


@contextlib.asynccontextmanager
async def page_beside(
    app: GatewayApp,
    tls: ssl.SSLContext | None,
    *,
    listening: BoundSocket,
    shared: SharedClients,
    opens: Callable[[], Journal],
    clock: Clock,
) -> AsyncGenerator[None]:
    """Until the end of the block the page of this gateway is served. `opens` the journal once more: what the page sums up must
    not hold up the look at the clients' keys. Raises CallerError."""
    bounds = app.bounds
    if tls is None and not listening.is_loopback:
        _log.warning(
            "gateway: the page on %s can be reached from other machines without TLS: whoever is between reads its key",
            listening.url,
        )
    with contextlib.closing(opens()) as journal, live_tail() as tail:
        book = journal.gateway
        page = PageApp(
            PageViews(book.store, now=clock.now, book=book, counts=app.metrics),
            access=KeyAccess(shared, store=book.store, now=clock.now),
            hosts=lambda: app.hosts,
            admin=AdminApi(shared),
            tail=tail,
            is_tls=tls is not None,
            bounds=bounds,
        )
        async with served(page, listening, bounds=bounds, tls=tls):
            yield
