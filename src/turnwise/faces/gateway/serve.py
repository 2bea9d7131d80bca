"""Serving the application with uvicorn and httptools, from the bound socket to the last open stream."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Generator

import msgspec
from uvicorn import Config, Server

from turnwise.errors import CallerError
from turnwise.faces.gateway.app import GatewayApp
from turnwise.faces.gateway.bounds import Bounds
from turnwise.faces.gateway.doors import OwnAddress, is_loopback
from turnwise.faces.gateway.protocol import bounded_protocol

BACKLOG = 2048  # as uvicorn's


class Ending(msgspec.Struct, frozen=True):
    """How the server ended. `at_once` after a second Ctrl-C, which leaves streams unfinished."""

    at_once: bool


class Listening:
    """A bound socket, and whether it can be reached from this machine alone."""

    def __init__(self, host: str, port: int) -> None:
        """Raises CallerError."""
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            self.socket = socket.create_server(address[:2], family=family, backlog=BACKLOG)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CallerError(f"cannot listen on `{host}`, port {port}: {why}") from None
        self.own = OwnAddress(*self.socket.getsockname()[:2])

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.own.ip)

    @property
    def url(self) -> str:
        ip = f"[{self.own.ip}]" if ":" in self.own.ip else self.own.ip
        return f"http://{ip}:{self.own.port}"

    def close(self) -> None:
        self.socket.close()


class _GatewayServer(Server):
    """uvicorn's, but for signals: it would end by the signal itself, and a supervisor would read that as a crash."""

    def __init__(self, config: Config, *, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self.servers = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._hear, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _hear(self, number: int) -> None:
        if not self.should_exit:
            self.should_exit = True
        elif number == signal.SIGINT:
            self.force_exit = True
            self.drop_all()

    def drop_all(self) -> None:
        """End every connection and every answer now."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


def check_reach(listening: Listening, *, has_keys: bool) -> None:
    """Raises CallerError for an address that others can reach while anybody would be let in."""
    if not listening.is_loopback and not has_keys:
        raise CallerError(
            f"`{listening.own.ip}` can be reached from other machines, so clients need keys: "
            "`turnwise gateway keys add NAME`, or listen on 127.0.0.1"
        )


async def serve(
    app: GatewayApp, listening: Listening, *, bounds: Bounds, grace_s: float, ready: Callable[[], None]
) -> Ending:
    """Serve until SIGTERM or Ctrl-C; then no new request is taken, and open streams have `grace_s` to end. `ready` is called
    once connections are taken."""
    config = Config(
        app,
        http=bounded_protocol(bounds),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=round(bounds.idle_s) or 1,
        timeout_graceful_shutdown=round(grace_s),
    )
    server = _GatewayServer(config, ready=ready)
    try:
        await server.serve(sockets=[listening.socket])
    except asyncio.CancelledError:
        server.drop_all()
        raise
    finally:
        listening.close()
    return Ending(at_once=server.force_exit)
