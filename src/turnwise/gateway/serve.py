"""Serves the application with uvicorn and httptools: from the configuration and the bound socket to the last open stream."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import msgspec
from uvicorn import Config, Server

from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.errors import CallerError
from turnwise.gateway.admin import AdminApi
from turnwise.gateway.app import GatewayApp
from turnwise.gateway.client_bounds import Bounds, KeyRing
from turnwise.gateway.config import GatewayConfig, check_clients
from turnwise.gateway.doors import OwnAddress, is_loopback
from turnwise.gateway.protocol import GatewaySocket, bounded_protocol
from turnwise.gateway.reloading import ConfigReading, Reloading, RenewableService, open_tls
from turnwise.gateway.shared_clients import SharedClients
from turnwise.gateway.workers import WorkerSeat

BACKLOG = 2048  # as uvicorn's
PING_S = 60.0  # between two pings of a WebSocket, and as long for the answer
SETTLE_S = 2.0  # for dropped answers to record what they cost


class GatewayEnd(msgspec.Struct, frozen=True):
    """How the server ended. `at_once`: after a second Ctrl-C, which leaves streams unfinished."""

    at_once: bool


class BoundSocket:
    """A bound socket, which accepts connections once it is served; and whether other machines can reach it."""

    def __init__(self, host: str, port: int, *, scheme: str = "http") -> None:
        """Raises CallerError."""
        self._scheme = scheme
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            # For a name with both (`localhost`), the address that every client tries.
            family, kind, protocol, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
            self.socket = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError) as error:
            raise self._failure(host, port, error) from None
        try:
            if os.name == "posix":  # on other systems another program could take the same port
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self.socket.bind(address)
        except OSError as error:
            self.socket.close()
            raise self._failure(host, port, error) from None
        self.own = OwnAddress(*self.socket.getsockname()[:2])

    def _failure(self, host: str, port: int, error: Exception) -> CallerError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return CallerError(f"cannot listen on `{host}`, port {port}: {why}")

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.own.ip)

    @property
    def url(self) -> str:
        ip = f"[{self.own.ip}]" if ":" in self.own.ip else self.own.ip
        return f"{self._scheme}://{ip}:{self.own.port}"

    def close(self) -> None:
        self.socket.close()


class _GatewayServer(Server):
    """uvicorn's server, except for signals: uvicorn would end by the signal itself, and a supervisor would read that as a
    crash."""

    def __init__(
        self, config: Config, *, ready: Callable[[], None], app: GatewayApp, drain_s: float, reloading: Reloading | None
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._app = app
        self._drain_s = drain_s
        self._reloading = reloading
        self.servers = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._hear, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _hear(self, number: int) -> None:
        if number == signal.SIGHUP and self._reloading is not None and not self._reloading.is_left:
            self._reloading.ask()
        elif not self._app.is_draining:
            self._app.is_draining = True
            if number == signal.SIGTERM and self._drain_s > 0:
                asyncio.get_running_loop().call_later(self._drain_s, self._stop)
            else:
                self._stop()
        elif not self.should_exit:
            self._stop()
        elif number == signal.SIGINT:
            self.force_exit = True
            self.drop_all()

    def _stop(self) -> None:
        self.should_exit = True
        self._app.stop_keeping()

    def drop_all(self) -> None:
        """End every connection and every answer now."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


def bind(config: GatewayConfig) -> BoundSocket:
    """Raises CallerError."""
    return BoundSocket(config.host, config.port, scheme="http" if config.tls is None else "https")


def check_reach(listening: BoundSocket, *, has_keys: bool) -> None:
    """Raises CallerError for an address that others can reach if anybody would be let in."""
    if not listening.is_loopback and not has_keys:
        raise CallerError(
            f"`{listening.own.ip}` can be reached from other machines, so clients need keys: "
            "`turnwise gateway keys add NAME`, or listen on 127.0.0.1"
        )


async def serve(
    app: GatewayApp,
    listening: BoundSocket,
    *,
    bounds: Bounds,
    grace_s: float,
    ready: Callable[[], None],
    drain_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
    reloading: Reloading | None = None,
) -> GatewayEnd:
    """Serve until SIGTERM or Ctrl-C. After SIGTERM connections are still accepted for `drain_s`, while the gateway says that it
    is not ready. Then no new request is accepted, and open streams have `grace_s` to end. `ready` is called once connections are
    accepted."""
    protocol = bounded_protocol(bounds, origins=app.origins, refused=app.refused_early)
    config = Config(
        app,
        http=protocol,
        ws=GatewaySocket,
        ws_per_message_deflate=False,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        backlog=BACKLOG,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=round(bounds.idle_s) or 1,
        timeout_graceful_shutdown=round(grace_s),
        ssl_context_factory=None if tls is None else _giving(tls),
    )
    server = _GatewayServer(config, ready=ready, app=app, drain_s=drain_s, reloading=reloading)
    looking = None if reloading is None else asyncio.ensure_future(reloading.run(protocol))
    try:
        await server.serve(sockets=[listening.socket])
    finally:
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        server.drop_all()
        listening.close()
        # Dropped answers may have something to record, and the service is closed after this.
        if tasks := list(server.server_state.tasks):
            await asyncio.wait(tasks, timeout=SETTLE_S)
    return GatewayEnd(at_once=server.force_exit)


def _giving(tls: ssl.SSLContext) -> Callable[[Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    def give(config: Config, usual: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        del config, usual
        return tls

    return give


# How many new objects come between two searches for garbage in cycles, and how many searches before older objects are searched,
# too. With Python's own values (700, 10, 10), each full search stops hundreds of streams for 50 ms and pushes them out of the
# processor's caches.

SEARCHES = (10_000, 20, 50)


ServedPage = Callable[[GatewayApp, ssl.SSLContext | None], AbstractAsyncContextManager[None]]


class GatewayMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is made of. `opens` makes the service behind the doors, which is closed after the last answer. `tells` gets
    the socket once connections are accepted. `page` serves the page and `/admin` at another address. `reading`: where the
    configuration is read again, if it came from a file. `listening` is the socket, if it is bound already; `seat`, where this
    process is one of several workers."""

    config: GatewayConfig
    opens: Callable[[GatewayConfig], AbstractAsyncContextManager[RenewableService]]
    tells: Callable[[BoundSocket], None]
    keys: Path
    shared: SharedClients | None = None
    page: ServedPage | None = None
    forward_key: bool = False
    grace_s: float = 30.0
    drain_s: float = 0.0
    reading: ConfigReading | None = None
    listening: BoundSocket | None = None
    seat: WorkerSeat | None = None


def run_gateway(means: GatewayMeans) -> GatewayEnd:
    """Serve until SIGTERM or Ctrl-C. Raises CallerError for problems before the first connection."""
    with seldom_searched():
        return run_to_end(_run(means), new_loop=quickest_loop)


@contextmanager
def seldom_searched() -> Generator[None]:
    """Inside this block, Python searches for garbage in cycles seldom, and never among the objects that are loaded already."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SEARCHES)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _end_alone(leash: int) -> None:
    """The parent of this worker is gone, so nobody would end it."""
    asyncio.get_running_loop().remove_reader(leash)
    os.kill(os.getpid(), signal.SIGTERM)


async def _run(means: GatewayMeans) -> GatewayEnd:
    config, ring = means.config, KeyRing(means.keys, shared=means.shared)
    tls = None if config.tls is None else open_tls(config.tls)
    listening = means.listening or bind(config)
    try:
        check_reach(listening, has_keys=bool(ring.current()))
        if not means.forward_key:  # with `--forward-key`, each client's own key opens its own store
            check_clients(config.routes, keys=(ring.current() or {}).values())
        async with means.opens(config) as service, contextlib.AsyncExitStack() as beside:
            admin = None if means.shared is None or means.page is not None else AdminApi(means.shared)
            app = GatewayApp(service, rules=config.rules(forward_key=means.forward_key), keys=ring, admin=admin)
            if means.page is not None:
                await beside.enter_async_context(means.page(app, tls))
            reloading = Reloading(
                app, service, config=config, reading=means.reading, keys=ring, forward_key=means.forward_key, tls=tls
            )
            if means.seat is not None:
                reloading.tells = means.seat.ready
                asyncio.get_running_loop().add_reader(means.seat.leash, _end_alone, means.seat.leash)
            return await serve(
                app,
                listening,
                bounds=config.bounds,
                grace_s=means.grace_s,
                drain_s=means.drain_s,
                ready=lambda: means.tells(listening),
                tls=tls,
                reloading=reloading,
            )
    finally:
        listening.close()
