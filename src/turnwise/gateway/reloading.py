"""What a running gateway reads again, at SIGHUP and when a file has changed: its configuration, and the certificate.

Requests that are under way keep what they began with. A file that cannot be used changes nothing, and the log says why.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from turnwise.errors import CallerError
from turnwise.gateway.app import GatewayApp
from turnwise.gateway.client_bounds import KeyRing
from turnwise.gateway.config import GatewayConfig, TlsFiles, check_clients, key_files_of
from turnwise.gateway.doors import GatewayService
from turnwise.gateway.protocol import GatewayProtocol

_log = logging.getLogger("turnwise")

LOOK_S = 1.0  # between two looks at the files: one that has changed is read when it stayed the same for so long

FileStamps = Mapping[Path, tuple[int, int, int] | None]


class ConfigReading(msgspec.Struct, frozen=True, kw_only=True):
    """Where the configuration is read. `read` raises CallerError."""

    read: Callable[[], GatewayConfig]
    path: Path


class RenewableService(GatewayService, Protocol):
    """A service whose configuration can be exchanged."""

    def renewed(self, config: GatewayConfig, /) -> "RenewableService":
        """The service with another configuration, and what this one has learned. Raises CallerError; then nothing has changed."""
        ...

    def reloaded(self, *, is_good: bool) -> None:
        """Whether the last configuration that was read again could be used."""
        ...


def open_tls(files: TlsFiles) -> ssl.SSLContext:
    """Raises CallerError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_tls(context, files)
    return context


def load_tls(context: ssl.SSLContext, files: TlsFiles) -> None:
    """From now on, new connections get this certificate. Raises CallerError."""
    try:
        # Without a password of ours, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(files.cert, files.key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CallerError(
            f"`tls`: the certificate `{files.cert}` with the key `{files.key}` cannot be used: {why}; give both in PEM form, the "
            "key without a password"
        ) from None


def has_terminal() -> bool:
    """Whether this process can be reached by a terminal. SIGHUP also says that it was closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class Reloading:
    """Reads the files of one running gateway again."""

    def __init__(
        self,
        app: GatewayApp,
        service: RenewableService,
        *,
        config: GatewayConfig,
        reading: ConfigReading | None,
        keys: KeyRing,
        forward_key: bool,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Without `reading` there is no file, and only the certificate is read again."""
        self._app = app
        self._service = service
        self._config = config
        self._reading = reading
        self._keys = keys
        self._forward_key = forward_key
        self._tls = tls
        self._asked = asyncio.Event()
        self._had_terminal = has_terminal()
        self.tells: Callable[[], None] = lambda: None  # after the configuration was read again

    @property
    def is_left(self) -> bool:
        """Whether the terminal in which the gateway was started is gone."""
        return self._had_terminal and not has_terminal()

    def ask(self) -> None:
        """Read everything again now."""
        self._asked.set()

    async def run(self, protocol: type[GatewayProtocol]) -> None:
        """Until it is cancelled. `protocol` reads new connections."""
        read = last = self._stamp()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
            now = self._stamp()
            if self._asked.is_set() or (now != read and now == last):
                self._asked.clear()
                await self._reload(protocol)
                read = {
                    path: now.get(path, stamp) for path, stamp in self._stamp().items()
                }  # it may name other files now
            last = now

    def _stamp(self) -> FileStamps:
        tls = self._config.tls
        paths = [
            *([] if self._reading is None else [self._reading.path]),
            *([] if tls is None else [tls.cert, tls.key]),
            *([] if self._forward_key else key_files_of(self._config.routes)),
        ]
        return {Path(path): _stamp_of(path) for path in paths}

    async def _reload(self, protocol: type[GatewayProtocol]) -> None:
        before = self._config
        try:
            config = before if self._reading is None else await asyncio.to_thread(self._reading.read)
            if not self._forward_key:
                check_clients(config.routes, keys=(self._keys.current() or {}).values())
            if self._tls is not None and config.tls is not None:
                open_tls(config.tls)
            self._service = service = self._service.renewed(config)
        except CallerError as error:
            _log.error("gateway: everything stays as it was, the new configuration cannot be used: %s", error)
            self._service.reloaded(is_good=False)
            return
        self._app.renew(service, rules=config.rules(forward_key=self._forward_key))
        protocol.bounds, protocol.origins = config.bounds, frozenset(config.origins)
        if self._tls is not None and config.tls is not None:
            load_tls(self._tls, config.tls)
        self._config = config
        service.reloaded(is_good=True)
        self.tells()
        _log.info("gateway: the configuration was read again")
        if _fixed(before) != _fixed(config):
            _log.warning(
                "gateway: `host`, `port`, `admin`, `unreachable_store` and whether there is `tls` count from the next start on"
            )


def _fixed(config: GatewayConfig) -> tuple[object, ...]:
    return config.host, config.port, config.admin, config.tls is None, config.unreachable_store


def _stamp_of(path: Path | str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
