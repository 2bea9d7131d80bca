"""What the doors and the service behind them say to each other: a call that passed, and the way out for its answer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeGuard

import msgspec

from turnwise.relay.client_request import asked_path, family_by_headers
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import FamilyName
from turnwise.wire.registry import family as find_family

# A refusal in the client's own family: the status, and the error as that API words it.


JSON = ("content-type", "application/json")

_KINDS: Mapping[int, FaultKind] = {
    401: FaultKind.AUTH,
    403: FaultKind.AUTH,
    404: FaultKind.NOT_FOUND,
    500: FaultKind.SERVER,
    503: FaultKind.OVERLOADED,
}


DoorReason = Literal[
    "host", "origin", "key", "admin_key", "content", "length", "body", "head", "http", "path", "late", "busy", "bug"
]
"""Why the doors refuse a request, for counts: few words, whatever a client sends."""


class DoorRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request goes no further. `message` quotes nothing that may be a secret."""

    reason: DoorReason
    status: int
    message: str
    code: str | None = None
    retry_after_s: int | None = None


def family_of(path: str, *, header_names: Collection[str] = ()) -> FamilyName:
    """Whose errors the client of this path reads: by its headers where the gateway does not know the path, else OpenAI's."""
    if (asked := asked_path("POST", path)) is not None:
        return asked.family
    if path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/v1/messages"):
        return "anthropic_messages"
    return family_by_headers(header_names) or "openai_chat"


def encode_refusal(refusal: DoorRefusal, *, family: FamilyName) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """The headers and the body. The status is the refusal's own, in the body as well (Gemini repeats it there)."""
    fault = Fault(
        kind=_KINDS.get(refusal.status, FaultKind.BAD_REQUEST),
        message=refusal.message,
        status=refusal.status,
        code=refusal.code,
        retry_after_s=refusal.retry_after_s,
    )
    _, body = find_family(family).encode_fault(fault)
    if family == "gemini":
        body = _with_status(body, status=refusal.status)
    headers = (JSON, ("content-length", str(len(body))))
    if refusal.retry_after_s is not None:
        headers = (*headers, ("retry-after", str(refusal.retry_after_s)))
    return headers, body


def _with_status(body: bytes, *, status: int) -> bytes:
    written: object = msgspec.json.decode(body)
    assert _is_object(written) and _is_object(written["error"])
    return msgspec.json.encode({**written, "error": {**written["error"], "code": status}})


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


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
