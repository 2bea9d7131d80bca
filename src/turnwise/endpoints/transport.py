"""One HTTP request, sent exactly once. A transport never retries, never follows a redirect and never judges a status.

Beside it: who may forbid a request, and which proxy stands before an address.
"""

import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from turnwise.vocab import Fault


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as turnwise sends it. The headers hold the key, so repr and str do not show their values."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = "POST"
    connect_s: float = 10.0

    def __repr__(self) -> str:
        names = ", ".join([name for name, _ in self.headers])
        return f"HttpRequest({self.method} {self.url.partition('?')[0]}, headers: {names}, {len(self.body)} bytes)"

    __str__ = __repr__


class Take(Protocol):
    """Takes one chunk. `coded` are the same bytes in HTTP's chunked coding (RFC 9112, section 7.1), where they came so and whole;
    else nothing. Returns whether the next one may come here, too."""

    def __call__(self, chunk: bytes, coded: bytes = b"", /) -> bool: ...


Pump = Callable[[Take], Awaitable[None]]
"""Calls the function with each chunk of the body in the moment in which it arrives, in the socket's own callback, until that
returns False; then, and where the body ends or breaks, it returns. The rest, and what broke it, come by the iterator."""


class HttpReply(msgspec.Struct, frozen=True, kw_only=True):
    """What comes back: `headers` with lower-case names (the last of equal ones), `chunks` the body after content decoding, as
    it arrives. Iterating raises ProviderFault when the connection breaks.

    `is_delimited`: the server marks the end of the body, by its length or by a last chunk, so that chunks that just end are
    all of it. A body that ends with its connection (HTTP/1.0) looks the same when the server died.

    `pump`: a way to the chunks that wakes no task for each, where the transport has one. Not while the iterator is asked.
    """

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    is_delimited: bool = True
    pump: Pump | None = None


class Transport(Protocol):
    """Sends requests. `send` gives the reply as soon as its head has arrived. When the context is left, the connection's
    rest is closed.

    Raises ProviderFault with a `Fault` of kind unreachable (no connection), timeout (`connect_s` passed), disconnected
    (broke off before the body was whole) or protocol (not HTTP). The other deadlines count frames, which only the runner
    sees, so the runner holds them. The lower-level exception is never chained: its text may show a header.

    What `send` gives may have a property `has_left`, a bool: False for as long as no byte of the request can have been
    written. Without one, only a fault of kind unreachable says so. What never left is not billed (docs/billing.md). It may have
    a property `proxy`: the proxy on the way, or None. The message of a failure names it.

    A transport may have `prepare(request)`: it is called before a turn's first request is written down, and does what takes its
    time and needs no connection. If the process dies behind that, the request counts as sent.

    A transport may have a property `needs_key`. If that is False, an agent is made without its provider's key.
    """

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]: ...


@runtime_checkable
class Prepares(Protocol):
    """A transport that can be made ready for a request."""

    def prepare(self, request: HttpRequest, /) -> None: ...


def make_ready(transport: Transport, request: HttpRequest) -> None:
    """Only connecting and writing are left for `send`, if the transport can do the rest before."""
    if isinstance(transport, Prepares):
        transport.prepare(request)


async def read_bounded(chunks: AsyncIterator[bytes], *, most_bytes: int) -> bytes:
    """A whole body; of a longer one not much more than `most_bytes`."""
    found = bytearray()
    async for chunk in chunks:
        found += chunk
        if len(found) > most_bytes:
            break
    return bytes(found)


# --- does anybody forbid the request? By default nobody does
#
# `AiohttpTransport` asks with the address of each request. `turnwise.testing.plugin` forbids requests while tests run.

RequestGuard = Callable[[str], None]
"""Raises for the URL of a request that must not leave."""

_guards: list[RequestGuard] = []


def check_may_leave(url: str) -> None:
    """Raises what a guard raises, before a name is looked up or a connection is opened."""
    for guard in _guards:
        guard(url)


@contextlib.contextmanager
def guarding(guard: RequestGuard) -> Generator[None]:
    """While the context is open, the guard is asked before each request of this process, in every thread."""
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)


# --- which proxy stands before an address, by the usual variables
#
# Sources: curl(1), "ENVIRONMENT" and `--noproxy` (names, networks); the documentation of Go's golang.org/x/net/http/httpproxy,
# `Config.NoProxy` (ports).

_SEPARATOR = re.compile(r"[,\s]+")
_ENTRY = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<name>[^:]*))(?::(?P<port>.*))?")
_PORTS = {"http": 80, "https": 443}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_for(url: str, *, env: Mapping[str, str]) -> str | None:
    """The URL of the proxy; None if the address is reached directly."""
    parts = urlsplit(url)
    proxy = _variable(env, f"{parts.scheme}_proxy") or _variable(env, "all_proxy")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return None  # no request can be sent to such an address
    if not proxy or goes_directly(parts.hostname or "", port=port, no_proxy=_variable(env, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def shown_proxy(proxy: str) -> str:
    """Its host and port, without a user and a password."""
    return urlsplit(proxy).netloc.rpartition("@")[2]


def naming_proxy(fault: Fault, sending: object, *, url: str) -> Fault:
    """The fault of a request to `url`, with the proxy on its way (see `Transport`). A status that comes through TLS is the
    server's own."""
    proxy: object = getattr(sending, "proxy", None)
    if not isinstance(proxy, str) or (fault.status is not None and url.startswith("https:")):
        return fault
    return msgspec.structs.replace(fault, message=f"{fault.message} (through the proxy `{proxy}`)".lstrip())


def goes_directly(host: str, *, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY has the host: by `*`, by its name or that of a domain above it, with a leading dot or without, or by its
    address or a network (`10.0.0.0/8`). An entry with a port (`host:8080`) is for that port alone."""
    host = host.lower().rstrip(".")
    address = _address(host)
    entries = _SEPARATOR.split(no_proxy.lower())
    return any(_has(entry, host=host, address=address, port=port) for entry in entries if entry)


def _has(entry: str, *, host: str, address: _Address | None, port: int) -> bool:
    if entry == "*":
        return True
    name, own_port = entry, ""
    if entry.count(":") == 1 or entry.startswith("["):  # else an IPv6 address, or no port
        if (found := _ENTRY.fullmatch(entry)) is None:
            return False
        name, own_port = found["six"] or found["name"] or "", found["port"] or ""
    if own_port and own_port != str(port):
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False  # the end of an address is no domain
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _variable(env: Mapping[str, str], name: str) -> str:
    """The lower-case name wins, as in curl."""
    return env.get(name) or env.get(name.upper()) or ""


# --- transports around another one


class WithFirstReply:
    """A transport that calls `then` when the head of its first reply has come: the request has left for sure by then, and its
    answer takes longer to be generated than what is begun here takes."""

    def __init__(self, transport: Transport, *, then: Callable[[], object]) -> None:
        self._transport = transport
        self._then: Callable[[], object] | None = then

    def prepare(self, request: HttpRequest, /) -> None:
        make_ready(self._transport, request)

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        sending = self._transport.send(request)
        return sending if self._then is None else ChangedReply(sending, change=self._came)

    def _came(self, reply: HttpReply) -> HttpReply:
        then, self._then = self._then, None
        if then is not None:
            then()
        return reply


class ChangedReply:
    """A request as its own transport sends it, whose reply is what `change` makes of it. Whatever else the transport tells of the
    request can be asked here, too."""

    def __init__(
        self, sending: AbstractAsyncContextManager[HttpReply], *, change: Callable[[HttpReply], HttpReply]
    ) -> None:
        self._sending = sending
        self._change = change

    def __getattr__(self, name: str) -> object:
        return getattr(self._sending, name)

    async def __aenter__(self) -> HttpReply:
        return self._change(await self._sending.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._sending.__aexit__(kind, error, trace)
