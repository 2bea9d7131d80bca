"""One HTTP request, sent exactly once. A transport never retries, never follows a redirect and never judges a status.

Beside it: who may forbid a request, and which proxy stands before an address.
"""

import contextlib
import ipaddress
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec

from turnwise.base.clock import Clock
from turnwise.rules.retries import CLOSED, Circuit, CircuitPolicy, after_response, let_through
from turnwise.vocab import Caching, Fault, Repair, Request
from turnwise.wire.family import HttpCall, SocketWire
from turnwise.wire.profiles import MARK_WAYS, Profile


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as turnwise sends it. The headers hold the key, so repr and str do not show their values. `socket`: the
    way in which it may go over a WebSocket."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    method: str = "POST"
    connect_s: float = 10.0
    socket: SocketWire | None = None

    @property
    def host(self) -> str:
        """With its port, without a user and a password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

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


# What requests have taught of an endpoint, learned once each: which to leave alone for a while, how answers end there, and which
# cache settings it refuses.


# --- which are left alone for a while: the circuits of `rules.circuit`, kept across requests and turns

Door = tuple[str, str]
"""An endpoint's address and a model behind it: one model's overload says nothing about another's."""


class Circuits:
    """One circuit a door. `ask` before a request, `saw` after it; an interrupted request says nothing."""

    def __init__(self, *, clock: Clock, policy: CircuitPolicy = CircuitPolicy()) -> None:  # noqa: B008 (frozen)
        self._clock = clock
        self._policy = policy
        self._circuits: dict[Door, Circuit] = {}

    def ask(self, door: Door) -> Fault | None:
        """None where the request may go out, else what to report in its place."""
        known = self._circuits.get(door)
        if known is None:
            return None
        found = let_through(known, policy=self._policy, now_s=self._clock.monotonic())
        if isinstance(found, Fault):
            return found
        self._circuits[door] = found
        return None

    def saw(self, door: Door, *, fault: Fault | None) -> None:
        before = self._circuits.get(door, CLOSED)
        if before is CLOSED and fault is None:
            return
        after = after_response(before, fault=fault, policy=self._policy, now_s=self._clock.monotonic())
        if after == CLOSED:
            self._circuits.pop(door, None)
        else:
            self._circuits[door] = after


UnmarkedEnd = Literal["ended", "left open"]
"""The body ended in good order, or its connection fell silent."""

MOST_DOORS = 256  # clients of a gateway may name any model
MOST_ASKED = 32  # requests at a door that may be asked again at the same time


class _Habit:
    __slots__ = ("asked", "learned", "marks")

    def __init__(self) -> None:
        self.marks = False  # an answer had its end mark
        self.asked: dict[tuple[UnmarkedEnd, Hashable], None] = {}  # requests whose answer had none
        self.learned: set[UnmarkedEnd] = set()


class EndHabits:
    """Of one process. An answer without an end mark may have lost its rest, so it is asked for again. If the same request then
    ends in the same way, and no answer from there ever had a mark, that is how answers end there."""

    def __init__(self) -> None:
        self._habits: dict[Door, _Habit] = {}

    def saw_unmarked(self, door: Door, end: UnmarkedEnd, *, request: Hashable) -> bool:
        """Whether an answer to `request` that ended so is taken as whole."""
        habit = self._at(door)
        if habit.marks or end in habit.learned:
            return not habit.marks
        if (end, request) in habit.asked:
            habit.learned.add(end)
            habit.asked.clear()
            return True
        habit.asked[end, request] = None
        if len(habit.asked) > MOST_ASKED:
            del habit.asked[next(iter(habit.asked))]
        return False

    def saw_mark(self, door: Door) -> None:
        """An answer from there had a finish reason or an end mark."""
        habit = self._at(door)
        habit.marks = True
        habit.learned.clear()
        habit.asked.clear()

    def _at(self, door: Door) -> _Habit:
        habit = self._habits.get(door)
        if habit is None:
            habit = self._habits[door] = _Habit()
            if len(self._habits) > MOST_DOORS:
                del self._habits[next(iter(self._habits))]
        return habit


# --- cache settings that are refused, for each model

Refused = Literal["hour", "top", "all"]
"""The longer time, the field at the top of the body (marks on blocks do the same), or all that is asked for."""

STATUSES = frozenset({400, 403, 422})
HINT = 'if this model or gateway takes no cache marks or keys, `cache="off"` (`--cache off`) sends none'
_NOT_TAKEN = (
    r"(extra (inputs|fields)|not (permitted|allowed|supported)|does(n't| not) support|unsupported|unrecognized|unknown"
    r"|unexpected|no longer|invalid parameter)"
)
# Bedrock: "tools.0.custom.cache_control.ephemeral.ttl: Extra inputs are not permitted"; OpenAI: "Unsupported parameter:
# 'prompt_cache_retention'"
_OF_HOUR = re.compile(
    rf"(\bttl\b|prompt_cache_retention).*{_NOT_TAKEN}|{_NOT_TAKEN}.*(\bttl\b|prompt_cache_retention)",
    re.IGNORECASE | re.DOTALL,
)
# Bedrock and Vertex AI: "cache_control: Extra inputs are not permitted" (inspect_ai#3851)
_OF_TOP = re.compile(rf"(?<![.\w])cache_control\W+{_NOT_TAKEN}", re.IGNORECASE)
# Bedrock: "You invoked an unsupported model or your request did not allow prompt caching"; strict servers: "Unknown parameter:
# 'prompt_cache_key'", "messages.0.content.0.cache_control: Extra inputs are not permitted"
_OF_ALL = re.compile(
    rf"did not allow prompt caching|(cache_control|prompt_cache_key|cachePoint|prompt caching).*{_NOT_TAKEN}"
    rf"|{_NOT_TAKEN}.*(cache_control|prompt_cache_key|cachePoint|prompt caching)",
    re.IGNORECASE | re.DOTALL,
)
SAID: dict[Refused, str] = {
    "hour": "does not keep prompts for longer on request: sent again without that, they are kept for the usual time",
    "top": "does not take a cache mark at the top of the body: sent again with marks on blocks alone",
    "all": "takes no cache marks or keys: sent again without them",
}


class CacheRefusals:
    """Of one process. `narrowed` before a request, `saw` after it was refused."""

    def __init__(self) -> None:
        self._known: dict[Door, tuple[Refused, ...]] = {}

    def narrowed(self, request: Request, profile: Profile, *, door: Door) -> tuple[Request, Profile]:
        """Both without what was refused there."""
        return narrowed_by(self._known.get(door, ()), request=request, profile=profile)

    def saw(self, fault: Fault, *, request: Request, profile: Profile, call: HttpCall, door: Door) -> Repair | None:
        """What was learned, if the fault says that something turnwise asked for is not taken."""
        refused = refused_by(fault, request=request, profile=profile, call=call)
        known = self._known.get(door, ())
        if refused is None or refused in known:
            return None
        self._known[door] = (*known, refused)
        return Repair("cache_not_taken", f"`{request.model}`", SAID[refused])


def narrowed_by(refused: tuple[Refused, ...], *, request: Request, profile: Profile) -> tuple[Request, Profile]:
    """Both without that."""
    if not refused or request.cache is None:
        return request, profile
    cache: Caching | None = request.cache
    if "all" in refused:
        cache = None
    elif "hour" in refused:
        cache = msgspec.structs.replace(cache, hour=False)
    if "top" in refused and profile.cache == "top":
        profile = msgspec.structs.replace(profile, cache="blocks")
    return msgspec.structs.replace(request, cache=cache), profile


def refused_by(fault: Fault, *, request: Request, profile: Profile, call: HttpCall) -> Refused | None:
    """What of our own asking the fault refuses; the user's own marks and key are the user's."""
    way = profile.cache_way(request.model)
    asks = bool(call.marks) if way in MARK_WAYS else way == "key"
    if request.cache is None or not asks or fault.status not in STATUSES:
        return None
    said = fault.message
    if request.cache.hour and _OF_HOUR.search(said):
        return "hour"
    if way == "top" and _OF_TOP.search(said):
        return "top"
    return "all" if _OF_ALL.search(said) and not _OF_HOUR.search(said) else None
