"""Who is let in, and which parts of a request are passed on. Also what passes between the doors and the service behind them: a
refusal, an accepted call, and the way out for its answer.

The tables say what may pass. Everything else stays outside, so a field that later turns out to carry a key does not leak.
"""

import functools
import hashlib
import ipaddress
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from turnwise.endpoints.key_hiding import HEADERS_UP, QUERY_UP
from turnwise.relay.client_request import asked_path, family_by_headers
from turnwise.vocab import Fault, FaultKind
from turnwise.vocab.json_values import is_json_object
from turnwise.wire.family import MODULES, USUAL
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import relay_facts

if TYPE_CHECKING:
    from turnwise.gateway.client_limits import LimitedClient

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


UPGRADE_REQUIRED = 426


class DoorRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request is refused. `message` quotes nothing that may be a secret."""

    reason: DoorReason
    status: int
    message: str
    code: str | None = None
    retry_after_s: int | None = None


def family_of(path: str, *, header_names: Collection[str] = ()) -> FamilyName:
    """The family whose errors the client of this path reads. If the gateway does not know the path, the headers decide; otherwise
    OpenAI's."""
    if (asked := asked_path("POST", path)) is not None:
        return asked.family
    for facts in map(relay_facts, MODULES):
        if facts.folder and path.startswith(facts.folder):
            return facts.name
    return family_by_headers(header_names) or USUAL


def encode_refusal(refusal: DoorRefusal, *, family: FamilyName) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """The headers and the body of a refusal. The status is the refusal's own, also in a body that repeats it."""
    fault = Fault(
        kind=_KINDS.get(refusal.status, FaultKind.BAD_REQUEST),
        message=refusal.message,
        status=refusal.status,
        code=refusal.code,
        retry_after_s=refusal.retry_after_s,
    )
    body = encode_own(fault, family=family)
    headers = (JSON, ("content-length", str(len(body))))
    if refusal.retry_after_s is not None:
        headers = (*headers, ("retry-after", str(refusal.retry_after_s)))
    if refusal.status == UPGRADE_REQUIRED:
        headers = (*headers, ("upgrade", "HTTP/1.1"), ("connection", "upgrade"))  # RFC 9110 section 15.5.22
    return headers, body


def encode_own(fault: Fault, *, family: FamilyName) -> bytes:
    """The body of an error of the gateway's own. Its status is the fault's own, also in a body that repeats it."""
    _, body = find_family(family).encode_fault(fault)
    is_repeated = relay_facts(family).status_in_body and fault.status is not None
    return _with_status(body, status=fault.status or 0) if is_repeated else body


def _with_status(body: bytes, *, status: int) -> bytes:
    written: object = msgspec.json.decode(body)
    assert is_json_object(written) and is_json_object(written["error"])
    return msgspec.json.encode({**written, "error": {**written["error"], "code": status}})


PassedKind = Literal["generate", "count", "embed", "passed"]


# The key of the connection's `PieceWriter` in the state of an ASGI scope.
WRITER = "turnwise.writer"


class PieceWriter:
    """Writes pieces without ASGI's `send`, whose coroutine and dict cost as much as reading a word. Only for an answer that has
    its head, in the chunked coding (RFC 9112 section 7.1). `put` writes to the client's socket; None if that would wait, or if
    nobody is there."""

    # One for each connection, stored apart: such rare writes then touch nothing else of the connection.
    __slots__ = ("put",)

    def __init__(self) -> None:
        self.put: Callable[[bytes], object] | None = None

    def write(self, data: bytes, coded: bytes = b"", /) -> bool:
        """Write `data`; return whether it was written. `coded` is the same data in the chunked coding, if it exists already.
        Never write empty data: that would be the answer's end."""
        if (put := self.put) is None:
            return False
        put(coded or b"%x\r\n%b\r\n" % (len(data), data))
        return True


class ClientGone(Exception):
    """The client has left: there is nobody to answer."""


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """One client's request that passed the doors. Neither repr nor str shows its body or a key.

    `path` is as the client wrote it, percent-encoding included. `query` and `headers` (names in lower case) hold only the listed
    fields, and no key. `model` and `streams` are what the path says about them (Gemini). `takes_streams` is false if the client's
    HTTP (1.0) cannot tell the end of a stream. `client` is the name of the client's key, empty if the gateway has no keys.
    `is_only_client` is false if the gateway has keys of others. `client_key` is the key to send upstream, filled only with
    `--forward-key`. `trace` are the headers that say to which trace the request belongs. `limits` are those of a key of the
    journal. `same_turn` is what else equal requests must have in common to get one answer (`same_turn_of`). `place` is the
    address by which the client reached the gateway. `upload_secret` signs what opens an upload for this client.
    """

    id: str
    method: str = "POST"
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
    limits: "LimitedClient | None" = None
    same_turn: bytes = b""
    place: str = ""
    upload_secret: str = ""

    def __repr__(self) -> str:
        return f"ClientCall({self.id} {self.kind} {self.family} {self.path}, {len(self.body)} bytes)"

    __str__ = __repr__


class Outlet(Protocol):
    """Where the answer goes. For one answer: call `start` once, then `send` as often as there is data."""

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Send the status and the headers. Request id and CORS headers are added. Raises ClientGone."""
        ...

    async def send(self, data: bytes) -> None:
        """Waits while the client does not read. Raises ClientGone."""
        ...

    @property
    def direct(self) -> PieceWriter | None:
        """A way that never waits; None before the head of the answer, and for an answer with a length."""
        ...

    async def gone(self) -> None:
        """Returns when the client has left. Wait for it while you wait for the upstream."""
        ...


class GatewayService(Protocol):
    """The service behind the doors."""

    async def answer(self, call: ClientCall, outlet: Outlet) -> None:
        """Write the whole answer, errors included, into the outlet. Its return ends the answer."""
        ...

    async def models(self, call: ClientCall) -> bytes | None:
        """The body of the family's list of models that this client may name, or of the `model` of the call; None if there is no
        such model for it."""
        ...

    def is_ready(self) -> bool: ...

    def is_full(self) -> bool:
        """Whether the running answers use all the room that they may have."""
        ...

    def stop_keeping(self) -> None:
        """No client can come again: what is kept for one that has left ends."""
        ...

    def refused(self, reason: DoorReason, *, family: FamilyName, kind: str, status: int) -> None:
        """The doors have refused a request, so it never got here."""
        ...

    def metrics(self) -> bytes:
        """All counts in Prometheus' text format."""
        ...


HeaderFields = Sequence[tuple[str, str]]  # names in lower case

KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")  # and `authorization: Bearer ...`
KEY_QUERY = "key"

EXPOSED = "turnwise-repairs, turnwise-not-carried, turnwise-estimated, turnwise-joined, x-request-id, retry-after"
IDEMPOTENCY = "idempotency-key"
# Claude Code's sub-agents are in its session, and may ask the same on purpose.
SESSION = ("x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id")
PREFLIGHT_S = "600"  # Chrome keeps no answer longer than 2 hours
LONGEST_KEY = 4096  # characters; Google's access tokens have up to 2,048

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>\d{1,5}))?", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.ASCII)
_TOKENS = re.compile(r"[A-Za-z0-9_.-]+(?:\s*,\s*[A-Za-z0-9_.-]+)*", re.ASCII)


class OwnAddress(msgspec.Struct, frozen=True):
    """The address of this machine at which the connection arrived."""

    ip: str
    port: int


def values_of(headers: HeaderFields, name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def is_host(text: str) -> bool:
    """Whether `hosts` of the configuration may contain it: a name or an address, `*.name` for all names below it, each with a
    port or for any port; or a network of addresses. Nothing that stands for everybody."""
    return is_network(text) or _HOST.fullmatch(text.lower().removeprefix("*.")) is not None


def is_network(text: str) -> bool:
    """Whether it is a network (`10.0.0.0/8`), and not all of the internet."""
    try:
        return "/" in text and _network(text).prefixlen > 0
    except ValueError:
        return False


@functools.cache
def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(text)


def is_in(ip: str, networks: Iterable[str]) -> bool:
    try:
        address = _plain(ip)
    except ValueError:
        return False  # a name
    return any(address in _network(one) for one in networks)


def is_origin(text: str) -> bool:
    """Whether `origins` of the configuration may contain it. Neither `*` nor `null` is allowed: any web page can be that."""
    return _ORIGIN.fullmatch(text) is not None


def is_loopback(ip: str) -> bool:
    try:
        return _plain(ip).is_loopback
    except ValueError:
        return False


def _plain(ip: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The plain IPv4 address, if it arrived at a socket for both versions inside an IPv6 address."""
    address = ipaddress.ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def refuse_host(given: Sequence[str], *, own: OwnAddress, listed: Collection[str]) -> DoorRefusal | None:
    """Refuse a page whose name leads to this machine (DNS rebinding): it sends its own name as `Host`."""
    if len(given) != 1:
        return DoorRefusal(
            reason="host",
            status=400,
            message=f"a request has one `Host` header; this one has {len(given)}",
            code="bad_host",
        )
    found = _HOST.fullmatch(given[0].lower())
    if found is not None:
        name, port = found["six"] or found["name"], found["port"]
        shown = f"[{name}]" if found["six"] else name
        if _is_listed(shown, listed) or _is_listed(f"{shown}:{port}", listed):
            return None
        if is_in(name, [one for one in listed if "/" in one]):
            return None
        if _is_own(name, own=own) and int(port or 80) == own.port:
            return None
    return DoorRefusal(
        reason="host",
        status=403,
        message="the `Host` of this request is not an address of this gateway: list its name in `hosts` of gateway.toml",
        code="host_refused",
    )


def _is_listed(shown: str, listed: Collection[str]) -> bool:
    return shown in listed or any(one.startswith("*.") and shown.endswith(one[1:]) for one in listed)


def _is_own(name: str, *, own: OwnAddress) -> bool:
    if name in _LOOPBACK_NAMES:
        return is_loopback(own.ip)
    try:
        return _plain(name) == _plain(own.ip)
    except ValueError:
        return False


def refuse_origin(given: Sequence[str], *, listed: Collection[str]) -> DoorRefusal | None:
    """A browser sends `Origin` with each request of a page from another site; programs send none."""
    if not given or (len(given) == 1 and given[0] in listed):
        return None
    return DoorRefusal(
        reason="origin",
        status=403,
        message="this gateway does not serve pages of this `Origin`: list it in `origins` of gateway.toml",
        code="origin_refused",
    )


def refuse_upgrade(method: str, headers: HeaderFields) -> DoorRefusal | None:
    """A client that asks for a WebSocket waits for one, and some fall back on HTTP at this status alone: Codex does."""
    if method != "GET" or not any("websocket" in value.lower() for value in values_of(headers, "upgrade")):
        return None
    return no_socket()


def no_socket() -> DoorRefusal:
    message = "this gateway has no WebSocket here: send the request by POST"
    return DoorRefusal(reason="http", status=UPGRADE_REQUIRED, message=message, code="no_websockets")


def refuse_content(headers: HeaderFields) -> DoorRefusal | None:
    """Accept only JSON, and no compression. A page of any site may send other types without asking the browser's leave, and a
    compressed body may be a thousand times as long as it says."""
    types = values_of(headers, "content-type")
    kind, _, parameter = (types[0] if len(types) == 1 else "").lower().partition(";")
    charset = parameter.strip().replace('"', "")
    if kind.strip() != "application/json" or charset not in ("", "charset=utf-8", "charset=utf8"):
        return DoorRefusal(
            reason="content",
            status=415,
            message="the `Content-Type` must be `application/json`, in UTF-8",
            code="unsupported_media_type",
        )
    if any(value.strip().lower() not in ("", "identity") for value in values_of(headers, "content-encoding")):
        return DoorRefusal(
            reason="content",
            status=415,
            message="the body must not have a `Content-Encoding`",
            code="unsupported_content_encoding",
        )
    return None


def refuse_length(headers: HeaderFields, *, most: int) -> DoorRefusal | None:
    """A body that declares itself too long is not read."""
    return next((too_long(most) for value in values_of(headers, "content-length") if int(value) > most), None)


def too_long(most: int) -> DoorRefusal:
    return DoorRefusal(
        reason="length",
        status=413,
        message=f"the body has more than {most:,} bytes, the bound of this gateway",
        code="request_too_large",
    )


def keys_in(headers: HeaderFields, query: HeaderFields) -> tuple[str, ...]:
    """Every key that the client shows, one for each place that a client of the four families uses. A place that occurs twice
    holds none: no client sends that, and one request would be as many guesses."""
    shown = [(key, value) for key, value in headers if key in KEY_HEADERS or key == "authorization"]
    bearers = [value.strip().partition(" ") for value in values_of(shown, "authorization")]
    places = (
        *[[value.strip() for value in values_of(shown, name)] for name in KEY_HEADERS],
        [key.strip() for scheme, _, key in bearers if scheme.lower() == "bearer"],
        [value.strip() for value in values_of(query, KEY_QUERY)],
    )
    once = dict.fromkeys([place[0] for place in places if len(place) == 1])
    return tuple([key for key in once if 0 < len(key) <= LONGEST_KEY])


def same_turn_of(headers: HeaderFields, query: HeaderFields) -> bytes:
    """A digest of what says that equal requests are one turn: the idempotency key, or else the session and its agent; and of the
    keys that the client shows. Empty if the request does not say it, or says it twice."""
    named = [(key, value) for key, value in headers if value and key == IDEMPOTENCY]
    named = named or [(key, value) for key, value in headers if value and key in SESSION]
    if not any(key in (IDEMPOTENCY, SESSION[0]) for key, _ in named) or len(dict(named)) < len(named):
        return b""
    told = [*sorted(named), *[("", key) for key in keys_in(headers, query)]]
    return hashlib.blake2b(msgspec.json.encode(told), digest_size=16).digest()


def listed_headers(headers: HeaderFields) -> tuple[tuple[str, str], ...]:
    return tuple([(key, value) for key, value in headers if key in HEADERS_UP])


def listed_query(query: HeaderFields) -> tuple[tuple[str, str], ...]:
    return tuple([(key, value) for key, value in query if key in QUERY_UP])


def harmless_id(given: Sequence[str]) -> str | None:
    """The client's request id, if it is safe in a header, a log and a table."""
    return given[0] if len(given) == 1 and _ID.fullmatch(given[0]) else None


def request_id(headers: HeaderFields) -> str:
    """The client's own request id, or a new one."""
    return harmless_id(values_of(headers, "x-request-id")) or f"tw-{secrets.token_hex(12)}"


def cors_headers(origin: str | None) -> tuple[tuple[str, str], ...]:
    """The headers on each answer for a listed origin."""
    if origin is None:
        return ()
    return (("access-control-allow-origin", origin), ("access-control-expose-headers", EXPOSED), ("vary", "origin"))


def preflight_headers(headers: HeaderFields) -> tuple[tuple[str, str], ...]:
    """The answer to a browser that asks before a page of a listed origin may send. The clients' SDKs send many headers of their
    own (`x-stainless-*`): all requested headers are allowed, and are not passed on."""
    asked = next((value for value in values_of(headers, "access-control-request-headers")), "")
    names = asked if _TOKENS.fullmatch(asked) else "content-type"
    found = [
        ("access-control-allow-methods", "GET, POST"),
        ("access-control-allow-headers", names),
        ("access-control-max-age", PREFLIGHT_S),
    ]
    if "true" in values_of(headers, "access-control-request-private-network"):
        found.append(("access-control-allow-private-network", "true"))
    return tuple(found)


def has_body(headers: Iterable[tuple[str, str]]) -> bool:
    """Whether a body follows the headers (RFC 9112 section 6.3)."""
    return any(key == "transfer-encoding" or (key == "content-length" and value != "0") for key, value in headers)
