"""Where requests go: an address, a key that cannot be shown by accident, and what the profile says about both; and the hash of
what goes there."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec

from turnwise._version import __version__
from turnwise.endpoints.key_hiding import HIDDEN, forms_of, hide_forms, is_sought_in_words
from turnwise.endpoints.transport import HttpRequest
from turnwise.errors import CallerError, MissingKey
from turnwise.vocab.wording import in_ticks
from turnwise.wire.family import BETA_HEADER, USUAL, Family, HttpCall, SocketWire, path_below
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import Profile, origin_of, profile_at

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
_FORBIDDEN = re.compile(r"[^\t\x20-\x7e\x80-\xff]")  # in a field value, RFC 9110 section 5.5
_AUTH_HEADERS = {
    "bearer": ("authorization", "Bearer "),
    "x-api-key": ("x-api-key", ""),
    "api-key": ("api-key", ""),
    "x-goog-api-key": ("x-goog-api-key", ""),
}


class Secret:
    """A text that only `reveal()` shows: not repr, str, format, msgspec or pickle. One with an `origin`
    (`https://api.openai.com:443`) goes to no other scheme, host or port: `Endpoint` refuses it there."""

    __slots__ = ("_text", "origin")

    def __init__(self, text: str, *, origin: str = "") -> None:
        self._text, self.origin = text, origin

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({HIDDEN})"

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._text, self.origin) == (other._text, other.origin)

    def __hash__(self) -> int:
        return hash((Secret, self._text, self.origin))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One provider's door. Raises CallerError naming what is wrong with the address or a header; never shows the key."""

    profile: Profile
    base_url: str
    key: Secret | None = None
    headers: tuple[tuple[str, str], ...] = ()  # the user's own, on every request
    hidden: tuple[Secret, ...] = ()  # values of these that no message may show

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        if self.profile.websocket and self.family.socket is None:
            raise CallerError(f"`{self.profile.name}` speaks an API that has no WebSocket: leave `websocket` out")
        for name, value in (*self.profile.headers.items(), *self.headers):
            _check_header(name, value)
        if self.key is not None:
            _check_header("authorization", self.key.reveal())
            if self.key.origin and self.key.origin != origin_of(self.base_url):
                raise CallerError(
                    f"a key that is for `{self.key.origin}` alone was given to `{origin_of(self.base_url)}`"
                )

    @property
    def family(self) -> Family:
        return find_family(self.profile.family)

    @property
    def socket(self) -> SocketWire | None:
        """How its streams are asked for over a WebSocket, if they are."""
        return self.family.socket if self.profile.websocket else None

    @property
    def leaves_calls_in_text(self) -> bool:
        """Whether the server may leave calls in the text. Its profile says so; a Chat Completions server elsewhere may, unless
        that is the own address of another vendor, whose profile says it then."""
        profile = self.profile
        if profile.family != USUAL or _site(self.base_url) == _site(profile.base_url):
            return profile.calls_in_text
        there = profile_at(self.base_url)
        return there is None or there.calls_in_text

    @property
    def sends_key(self) -> bool:
        """A key goes with each request, as a header or (for all that is known) in the query of the address."""
        return (self.key is not None and self.profile.auth != "none") or "?" in self.base_url

    def scrub(self, text: str) -> str:
        """The text without the key and other secrets, also in base64, for messages: providers quote them back."""
        for secret in (self.key, *self.hidden):
            text = text if secret is None else hide_forms(text, forms=forms_of(secret.reveal()))
        return text

    @property
    def forms_in_words(self) -> tuple[str, ...]:
        """What is hidden in the words of a model: the forms of a key that cannot be a harmless word; else none."""
        key = "" if self.key is None else self.key.reveal()
        return forms_of(key) if is_sought_in_words(key) else ()


def find_key(
    profile: Profile,
    *,
    env: Mapping[str, str],
    api_key: str | Secret | None = None,
    api_key_env: str | None = None,
    kept: Callable[[], Secret | None] = lambda: None,
    way: str = "give `api_key=` or `api_key_env=`",
) -> Secret | None:
    """`api_key` itself, else the variable `api_key_env`, else the first of the profile's variables that is set, else what `kept`
    gives: a key that the user has stored for this address.

    None where the endpoint takes none and none is there. Raises MissingKey with the variables that were looked at, and `way`:
    what else the caller can do.
    """
    given = Secret(api_key) if isinstance(api_key, str) else api_key
    if given is not None and (text := given.reveal().strip()):
        return Secret(text, origin=given.origin)
    names = (api_key_env,) if api_key_env else profile.api_key_env
    for name in names:
        if value := env.get(name, "").strip():  # `export KEY=$(cat file)` and .env files leave spaces
            return Secret(value)
    if api_key_env:
        raise MissingKey(f"the variable `{api_key_env}` is not set: put the key for `{profile.name}` in it")
    if (key := kept()) is not None:
        return key
    if profile.key_required and profile.auth != "none":
        ways = [f"set {in_ticks(names, between=' or ')}"] if names else []
        raise MissingKey(f"`{profile.name}` wants a key: {', or '.join([*ways, way])}")
    return None


def build_http_request(endpoint: Endpoint, call: HttpCall, *, connect_s: float) -> HttpRequest:
    """Address and headers for one encoded call. Of equal header names the last wins: ours, the profile's, the call's, the
    user's, the key. Betas are joined."""
    headers = {"content-type": "application/json", "user-agent": f"turnwise/{__version__}"}
    for name, value in (*endpoint.profile.headers.items(), *call.headers, *endpoint.headers):
        _check_header(name, value)
        before = headers.get(BETA_HEADER) if name.lower() == BETA_HEADER else None
        headers[name.lower()] = value if before is None else f"{before},{value}"
    if endpoint.key is not None and endpoint.profile.auth != "none":
        name, prefix = _AUTH_HEADERS[endpoint.profile.auth]
        headers[name] = prefix + endpoint.key.reveal()
    return HttpRequest(
        url=_join(endpoint.base_url, path_below(endpoint.base_url, call.path, family=endpoint.family)),
        headers=tuple(headers.items()),
        body=call.body,
        method=call.method,
        connect_s=connect_s,
        socket=endpoint.socket,
    )


class Addressing:
    """Builds the requests of one turn. Address and headers are put together, and checked, where they are others than those of
    the request before."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._made_of: tuple[str, tuple[tuple[str, str], ...]] | None = None
        self._url = ""
        self._headers: tuple[tuple[str, str], ...] = ()
        self.shown_url = ""  # of the last request, without what may be secret in it

    def build(self, call: HttpCall, *, connect_s: float) -> HttpRequest:
        made_of = call.path, call.headers
        if made_of != self._made_of:
            first = build_http_request(self._endpoint, call, connect_s=connect_s)
            self._made_of, self._url, self._headers = made_of, first.url, first.headers
            self.shown_url = self._endpoint.scrub(first.url.partition("?")[0])
        return HttpRequest(
            url=self._url,
            headers=self._headers,
            body=call.body,
            method=call.method,
            connect_s=connect_s,
            socket=self._endpoint.socket,
        )


def _join(base_url: str, path: str) -> str:
    """`path` may bring a query, and so may the base (Azure's `api-version`)."""
    base, _, base_query = base_url.partition("?")
    path, _, query = path.partition("?")
    joined = base.rstrip("/") + ("/" + path.lstrip("/") if path else "")
    both = "&".join([part for part in (base_query, query) if part])
    return f"{joined}?{both}" if both else joined


def _site(url: str | None) -> str:
    """The last two labels of the host, which a vendor's addresses for other regions share. An address may be a template."""
    host = urlsplit(url or "").hostname or ""
    return ".".join(host.rsplit(".", 2)[-2:])


def _check_url(text: str) -> None:
    try:
        parts = urlsplit(text)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        raise CallerError(f"`{_without_userinfo(text)}` is no URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good:
        raise CallerError(
            f"`{_without_userinfo(text)}` is no base URL: it must begin with http:// or https:// and a host"
        )
    if parts.username is not None or parts.password is not None:
        raise CallerError("a base URL must not hold a user or password: give the key by its environment variable")
    if parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise CallerError(f"`{text.partition('#')[0]}` is no base URL: it has a fragment or white space")


def _without_userinfo(url: str) -> str:
    return re.sub(r"//[^/]*@", "//", url)


def _check_header(name: str, value: str) -> None:
    """The value is never shown: it may be a key."""
    if not _TOKEN.fullmatch(name):
        raise CallerError(f"`{name}` is no name of an HTTP header")
    if _FORBIDDEN.search(value) or value != value.strip():
        raise CallerError(
            f"the value for the HTTP header `{name}` has a line break or another character not allowed there"
        )


class BodyHash:
    """Hashes the bodies of one turn, in the order in which they were encoded with one history. The marks for the provider's
    cache are left out: they move on with each request, and what the model reads is the same without them."""

    def __init__(self) -> None:
        self._read = hashlib.sha256()
        self._read_bytes = 0  # so many at the beginning are those of the body before, and of the next one

    def sha256_of(self, call: HttpCall) -> str:
        if call.same_bytes < self._read_bytes:
            self._read, self._read_bytes = hashlib.sha256(), 0
        for piece in _pieces(call, begin=self._read_bytes, end=call.same_bytes):
            self._read.update(piece)
        self._read_bytes = call.same_bytes
        whole = self._read.copy()
        for piece in _pieces(call, begin=call.same_bytes, end=len(call.body)):
            whole.update(piece)
        return whole.hexdigest()


def _pieces(call: HttpCall, *, begin: int, end: int) -> Sequence[memoryview]:
    """The body from one byte to another, both counted without the marks."""
    body = memoryview(call.body)
    return [*_between_marks(call, body=body, begin=begin, end=end)] if call.marks else (body[begin:end],)


def _between_marks(call: HttpCall, *, body: memoryview, begin: int, end: int) -> Iterator[memoryview]:
    at = longer = 0  # `longer`: by the marks before
    for start, behind in (*call.marks, (len(body), len(body))):
        first, last = max(at, begin + longer), min(start, end + longer)
        if first < last:
            yield body[first:last]
        at, longer = behind, longer + behind - start
