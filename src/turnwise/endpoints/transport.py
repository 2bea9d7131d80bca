"""One HTTP request, sent exactly once. A transport never retries, never follows a redirect and never judges a status."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec


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
