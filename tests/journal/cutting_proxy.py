"""A way to a server, most often a PostgreSQL, that is cut at a chosen message, as a network or a restart would."""

import contextlib
import select
import socket
import threading
from pathlib import Path
from typing import Literal

from waits import HANG_S

Cut = Literal["before", "after", "unsent", "mute"]
"""`before` the server has the message, or `after` it has done it, both ends are told. Or nobody is told: the message goes nowhere
(`unsent`), or its answer does (`mute`)."""


class CuttingProxy:
    """Listens on loopback and forwards to the server's Unix socket, or to its HOST:PORT. Close it at the end."""

    def __init__(self, server: Path | str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._cut: Cut | None = None
        self._messages = 0  # until the cut
        self._sockets: list[socket.socket] = [self._listener]
        self._is_still = threading.Event()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def dsn(self) -> str:
        return f"postgresql://tester@{self.address}/postgres?sslmode=disable"

    def cut_at(self, message: int, cut: Cut) -> None:
        """Once, at the client's message of that number from now on."""
        self._messages, self._cut = message, cut

    def stop_forwarding(self) -> None:
        """From now on nothing passes, and neither end is told."""
        self._is_still.set()

    def close(self) -> None:
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX if isinstance(self._server, Path) else socket.AF_INET)
            self._sockets += [client, server]
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            if isinstance(self._server, Path):
                server.connect(str(self._server))
            else:
                host, _, port = self._server.partition(":")
                server.connect((host, int(port)))
            while self._passes(client, server):
                pass
        except (OSError, ValueError):
            pass  # closed under us
        finally:
            client.close()
            server.close()

    def _passes(self, client: socket.socket, server: socket.socket) -> bool:
        """Forward what has come; False where the connection is over."""
        poll = select.poll()  # `select` fails at descriptor 1,024
        for one in (client, server):
            poll.register(one, select.POLLIN)
        numbers = {number for number, _ in poll.poll(HANG_S * 1000)}
        ready = [one for one in (client, server) if one.fileno() in numbers]
        if self._is_still.is_set():
            while client.recv(1 << 16):  # until the client gives up
                pass
            return False
        if server in ready:
            answer = server.recv(1 << 16)
            client.sendall(answer)
            if not answer:
                return False
        if client in ready:
            message = client.recv(1 << 16)
            if not message:
                return False
            self._messages -= 1
            if self._cut is None or self._messages > 0:
                server.sendall(message)
                return True
            return self._carry_out(message, client=client, server=server)
        return bool(ready)

    def _carry_out(self, message: bytes, *, client: socket.socket, server: socket.socket) -> bool:
        cut, self._cut = self._cut, None
        self.cuts += 1
        if cut in ("after", "mute"):
            server.sendall(message)
            server.recv(1 << 16)
        if cut in ("unsent", "mute"):
            client.recv(1)  # until the client gives up
        return False
