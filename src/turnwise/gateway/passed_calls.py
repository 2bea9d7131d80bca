"""What the doors and the service behind them say to each other: a call that passed, and the way out for its answer."""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from turnwise.gateway.refusals import DoorReason
from turnwise.wire.profiles import FamilyName

PassedKind = Literal["generate", "count", "passed"]


# In the state of an ASGI scope: the connection's `PieceWriter`.
WRITER = "turnwise.writer"


class PieceWriter:
    """Writes pieces past ASGI's `send`, whose coroutine and dict cost as much as a word's reading. Only of an answer that has its
    head, in the chunked coding (RFC 9112 section 7.1). `put` writes to the client's socket; None while that would wait, and
    where nobody is there.
    """

    # One for each connection, and alone: what is written so seldom wakes nothing else of the connection.
    __slots__ = ("put",)

    def __init__(self) -> None:
        self.put: Callable[[bytes], object] | None = None

    def write(self, data: bytes, coded: bytes = b"", /) -> bool:
        """Whether it was written; as `coded`, where it is there in that coding already. Never of nothing: that would be the
        answer's end."""
        if (put := self.put) is None:
            return False
        put(coded or b"%x\r\n%b\r\n" % (len(data), data))
        return True


class ClientGone(Exception):
    """The client has left: there is nobody to answer."""


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client that passed the doors. Neither repr nor str shows its body or a key.

    `path` is as the client wrote it, percent-encoding included; `query` and `headers` (names in lower case) hold the listed
    fields alone, and no key. `model` and `streams` are what the path says of them (Gemini); `takes_streams` is false where the
    client's HTTP has no way to tell the end of a stream (1.0). `client` is the name of the
    client's key, empty if the gateway has no keys, and `is_only_client` false if it has keys of others; `client_key` is the key
    to send upstream, filled only with `--forward-key`. `trace` are the headers that say to which trace the request belongs.
    """

    id: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes
    family: FamilyName
    kind: PassedKind
    model: str | None = None
    streams: bool = False
    takes_streams: bool = True
    client: str = ""
    is_only_client: bool = True
    client_key: str = ""
    trace: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"ClientCall({self.id} {self.kind} {self.family} {self.path}, {len(self.body)} bytes)"

    __str__ = __repr__


class Outlet(Protocol):
    """Where the answer goes. One answer: `start` once, then `send` as often as there is something."""

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """The status and the headers. Request id and CORS headers are added. Raises ClientGone."""
        ...

    async def send(self, data: bytes) -> None:
        """Waits while the client does not read. Raises ClientGone."""
        ...

    @property
    def direct(self) -> PieceWriter | None:
        """A way that never waits; None before the head of the answer, and where it has a length."""
        ...

    async def gone(self) -> None:
        """Returns when the client has left; to be waited for beside the upstream."""
        ...


class GatewayService(Protocol):
    """What stands behind the doors."""

    async def answer(self, call: ClientCall, outlet: Outlet) -> None:
        """Write the whole answer, errors included, into the outlet. Its return ends the answer."""
        ...

    async def models(self, family: FamilyName) -> bytes:
        """The body of the family's list of models."""
        ...

    def is_ready(self) -> bool: ...

    def is_full(self) -> bool:
        """Whether the answers under way have all the room that there is for them."""
        ...

    def refused(self, reason: DoorReason, *, family: FamilyName, kind: str, status: int) -> None:
        """The doors have refused a request, which so never got here."""
        ...

    def metrics(self) -> bytes:
        """All counts in Prometheus' text format."""
        ...
