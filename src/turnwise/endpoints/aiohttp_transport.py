"""The transport on aiohttp, and the content codings that it undoes. `aiohttp` is imported with the first request, not with
turnwise."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import socket
import ssl
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesIOPayload, BytesPayload, Payload

from turnwise.endpoints.transport import HttpReply, HttpRequest, Take, check_may_leave, proxy_for, shown_proxy
from turnwise.errors import CallerError, ProviderFault
from turnwise.vocab import Fault, FaultKind

if TYPE_CHECKING:
    import aiohttp

    from turnwise.endpoints.sockets import Socket, Sockets, SocketSending
    from turnwise.wire.family import SocketWire

# --- compressed bodies -> their bytes, piece by piece
#
# aiohttp (3.14) takes a gzip stream that breaks off for one that has ended. So turnwise asks servers for plain bodies, and undoes
# itself what a server compresses all the same.

PIECE_BYTES = 64 * 1024
"""What is given at once, and so all that a body of zeros takes at a time."""

STEP_BYTES = 4 * 1024
"""What is read at once. An empty gzip member has 20 bytes, and what stands behind a member is copied with each."""

MOST_GROWTH, GROWTH_FROM_BYTES = 100, 4 * 1024 * 1024
"""What grows by more is a bomb, unless it is short. JSON and events shrink to a fifth or a fiftieth; zlib's most is 1,032."""

_RAW, _ZLIB, _GZIP = -zlib.MAX_WBITS, zlib.MAX_WBITS, 16 + zlib.MAX_WBITS
_DEFLATE_METHOD = 8  # in the low half of zlib's first byte (RFC 1950)
_GZIPS = frozenset(("gzip", "x-gzip"))  # RFC 9110, section 8.4.1.3


class _Inflater(Protocol):
    """What `zlib.decompressobj` gives."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...
    def copy(self) -> _Inflater: ...


class UnknownCoding(ValueError):
    """A content coding that turnwise does not undo."""


class Unpacker:
    """Feed a body's bytes; `take` gives what they hold, in pieces of a bounded size, until there is no more of it.

    `is_broken`: what follows can no longer be read, or is junk behind the end. All that came before it has been given, however
    the bytes were cut. `is_bomb`: it has grown by more than a body does.
    `has_ended`: the compressed stream said so, or nothing has come.
    """

    def __init__(self, coding: str) -> None:
        if coding not in _GZIPS and coding != "deflate":
            raise UnknownCoding(coding)
        self._is_gzip = coding in _GZIPS
        self._inflater: _Inflater | None = None  # None: a stream may begin here
        self._begun = False
        self._coming = b""
        self._step = STEP_BYTES
        self._fed_bytes = self._given_bytes = 0
        self.is_broken = False

    @property
    def has_ended(self) -> bool:
        return self._inflater is None and not self._coming and not self.is_broken

    def feed(self, chunk: bytes) -> None:
        if not self.is_broken:
            self._coming += chunk
            self._fed_bytes += len(chunk)

    @property
    def is_bomb(self) -> bool:
        read_bytes = self._fed_bytes - len(self._coming)
        return self._given_bytes > max(GROWTH_FROM_BYTES, MOST_GROWTH * read_bytes)

    def take(self) -> bytes:
        """The next piece; nothing once all that was fed has been taken."""
        found: list[bytes] = []
        room = PIECE_BYTES
        while room > 0 and not self.is_broken:
            if self._inflater is None:
                if not self._coming:
                    break
                self._begin()
                continue
            if not (piece := self._inflate(self._inflater, room)) and not self._coming:
                break
            found.append(piece)
            room -= len(piece)
        self._given_bytes += PIECE_BYTES - room
        return b"".join(found)

    def _begin(self) -> None:
        """A stream. Only gzip may have several (RFC 1952, section 2.2)."""
        if self._begun and not self._is_gzip:
            self._break()
            return
        self._begun = True
        is_bare = self._coming[0] & 0xF != _DEFLATE_METHOD  # some servers leave zlib's head out
        self._inflater = zlib.decompressobj(_GZIP if self._is_gzip else _RAW if is_bare else _ZLIB)

    def _inflate(self, inflater: _Inflater, room: int) -> bytes:
        """Read one step of what has come."""
        step, rest = self._coming[: self._step], self._coming[self._step :]
        before = inflater.copy() if len(step) > 1 else inflater
        try:
            piece = inflater.decompress(step, room)
        except zlib.error:
            if len(step) <= 1:
                self._break()
            else:  # byte by byte, so that what stands before the fault is not lost with it
                self._inflater, self._step = before, 1
            return b""
        self._coming = (inflater.unused_data if inflater.eof else inflater.unconsumed_tail) + rest
        if inflater.eof:
            self._inflater = None
        return piece

    def _break(self) -> None:
        self.is_broken = True
        self._coming = b""


def unpacker_for(codings: str) -> Unpacker | None:
    """For a `content-encoding` header; None if the body is plain. Raises UnknownCoding."""
    named = [name for one in codings.lower().split(",") if (name := one.strip()) not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1:
        raise UnknownCoding(", ".join(named))
    return Unpacker(named[0])


# --- the body of a request, as aiohttp hands it over: at once, or piece by piece

JSON = "application/json"


class WholeBody(BytesPayload):
    """Bytes without aiohttp's search for what they are, and without its warning above 1 MB, which fears for the event loop: to
    copy one megabyte takes it 0.1 ms, and to write it in 64 KB pieces, as it wants, twice as long in all.

    `has_begun`: aiohttp (3.14) holds the head of a request back until it writes the body, and asks the body to write itself
    then. So before that no byte of the request has been written, whatever has become of the connection.
    """

    def __init__(self, value: bytes) -> None:
        Payload.__init__(self, value, content_type=JSON)
        self._size = len(value)
        self.has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.has_begun = True
        await super().write_with_length(writer, content_length)


class LongBody(BytesIOPayload):
    """A very large body, written piece by piece; `has_begun` as above."""

    def __init__(self, value: bytes) -> None:
        super().__init__(io.BytesIO(value), content_type=JSON)
        self.has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self.has_begun = True
        await super().write_with_length(writer, content_length)


# aiohttp closes idle connections after 15 s; a step's tools often take longer, and a new TLS handshake costs two round
# trips. Servers close theirs after 60 s (nginx) and more, so 50 s seldom meets a connection that is about to go.
KEEPALIVE_S = 50.0
# aiohttp's 8190 is too small for the headers of some gateways (long `set-cookie` and policy headers).
HEADER_BYTES = 64 * 1024
CA_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
LARGE_BYTES = 8 * 1024 * 1024  # what is written at once: two million tokens of text, less than some pictures
# What aiohttp holds of a body before it stops reading (twice this). Below it, it looks for more to parse with every chunk of
# the transfer encoding that is taken out: 1.4 us a chunk with its own 256 KiB, 1.0 with this (20,000 chunks, measured).
READ_BYTES = 32 * 1024
PLAIN = (("accept-encoding", "identity"),)  # see `content_coding`


class AiohttpTransport:
    """Sends requests over connections that are kept for the next one. Use `async with`, or call `close()`.

    Honours the usual variables: HTTPS_PROXY, HTTP_PROXY, NO_PROXY; SSL_CERT_FILE, SSL_CERT_DIR (by OpenSSL itself),
    REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE. Not `~/.netrc`: aiohttp refuses a request that has both its entry and a key.
    They are read once for an address that is used again and again. Belongs to the event loop that first used it.
    """

    def __init__(self, *, env: Mapping[str, str] | None = None) -> None:
        self._env = os.environ if env is None else env
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls: ssl.SSLContext | None = None
        self._way: _Way | None = None  # of the last request
        self._sockets: Sockets | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. The transport may be used again afterwards."""
        session, self._session, self._loop, self._way = self._session, None, None, None
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            await sockets.close()
        if session is not None:
            await session.close()

    def send(self, request: HttpRequest, /) -> _Sending | SocketSending:
        wire = request.socket
        asked = None if wire is None else wire.read(request.body)
        if wire is None or asked is None:
            return _Sending(request, transport=self)
        from turnwise.endpoints.sockets import Sockets, SocketSending

        self._open_session()
        sockets = self._sockets = self._sockets or Sockets(self._open_socket)
        return SocketSending(request, asked=asked, wire=wire, sockets=sockets, proxy=self.proxy_of(request))

    def prepare(self, request: HttpRequest, /) -> None:
        """aiohttp is imported, the session is open and certificates are read. Belongs to an event loop, as `send` does."""
        _payload(b"")
        self._open_session()
        self._way = self._find_way(request)

    async def open(self, request: HttpRequest, *, body: WholeBody | LongBody) -> aiohttp.ClientResponse:
        """The response, once its head has come. Raises what aiohttp raises, and what a guard raises; for `send`."""
        check_may_leave(request.url)
        session = self._open_session()
        way = self._way_of(request)
        return await session.request(
            request.method,
            request.url,
            data=body,
            headers=(*PLAIN, *request.headers),
            allow_redirects=False,  # a redirect would carry the key to a stranger
            proxy=way.proxy,
            ssl=way.tls,
            timeout=way.timeout,
        )

    async def _open_socket(self, request: HttpRequest, wire: SocketWire) -> Socket:
        """As `sockets.Connect` has it."""
        import aiohttp

        from turnwise.endpoints.sockets import FRAME_BYTES, HEARTBEAT_S, forbid_redirect

        check_may_leave(request.url)
        way = self._way_of(request)
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(forbid_redirect)
        shared = self._open_session().connector
        opening = aiohttp.ClientSession(
            connector=shared, connector_owner=False, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[trace]
        )
        try:
            async with asyncio.timeout(request.connect_s), opening:
                return await opening.ws_connect(
                    request.url,
                    headers=(*wire.headers, *[one for one in request.headers if one[0] != "content-type"]),
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=FRAME_BYTES,
                    decode_text=False,
                    proxy=way.proxy,
                    ssl=way.tls,
                )
        except aiohttp.WSServerHandshakeError:
            raise
        except TimeoutError:
            said = f"no connection to `{request.host}` within {request.connect_s:g} s"
            raise ProviderFault(Fault(kind=FaultKind.TIMEOUT, message=said)) from None
        except _network_errors() as error:
            error.__traceback__ = None
            raise ProviderFault(_fault_of(error, request, before_head=True)) from None

    def proxy_of(self, request: HttpRequest) -> str | None:
        """The proxy on the way, without a user and a password."""
        proxy = self._way_of(request).proxy
        return None if proxy is None else shown_proxy(proxy)

    def _way_of(self, request: HttpRequest) -> _Way:
        way = self._way
        if way is None or way.url != request.url or way.connect_s != request.connect_s:
            way = self._way = self._find_way(request)
        return way

    def _find_way(self, request: HttpRequest) -> _Way:
        import aiohttp

        return _Way(
            url=request.url,
            connect_s=request.connect_s,
            proxy=proxy_for(request.url, env=self._env),
            tls=self._tls_context() if request.url.startswith("https:") else True,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=request.connect_s),
        )

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None:
            from turnwise.endpoints.bounded_connector import BoundedConnector

            _keep_blocks()
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=BoundedConnector(keepalive_s=KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=READ_BYTES,
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            )
        elif self._loop is not loop:
            raise CallerError("this transport is open in another event loop: close it there, or make one for each loop")
        return self._session

    def _tls_context(self) -> ssl.SSLContext | bool:
        """A context where certificates are named, made once. Without, aiohttp's own (True): it reads the system's certificates
        when it is imported, and another 20 ms of CPU for the same ones would be spent before the first request."""
        named = any(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))  # OpenSSL looks at no others
        if not named and not any(self._env.get(name) for name in CA_BUNDLES):
            return True
        if self._tls is None:
            context = ssl.create_default_context()  # reads SSL_CERT_FILE and SSL_CERT_DIR
            for name in CA_BUNDLES:
                if bundle := self._env.get(name):
                    try:
                        if os.path.isdir(bundle):  # noqa: PTH112 (a string is what OpenSSL takes)
                            context.load_verify_locations(capath=bundle)
                        else:
                            context.load_verify_locations(cafile=bundle)
                    except (OSError, ssl.SSLError):
                        raise CallerError(f"`{name}` names `{bundle}`, which is no readable CA bundle") from None
            self._tls = context
        return self._tls


class _Way(NamedTuple):
    """How to reach an address."""

    url: str
    connect_s: float
    proxy: str | None
    tls: ssl.SSLContext | bool
    timeout: aiohttp.ClientTimeout


class _Sending:
    """One request: entered, it is its reply; iterated, the chunks of that. A class, because two generators in its place cost
    as much as a small response's decoding."""

    def __init__(self, request: HttpRequest, *, transport: AiohttpTransport) -> None:
        self._request = request
        self._transport = transport
        self._response: aiohttp.ClientResponse | None = None
        self._unpacker: Unpacker | None = None
        self._body: WholeBody | LongBody | None = None

    @property
    def has_left(self) -> bool:
        """Whether a byte of the request may have been written to a socket: name, connection, TLS and proxy came before."""
        return self._body is not None and self._body.has_begun

    @property
    def proxy(self) -> str | None:
        """As `Transport` has it."""
        return self._transport.proxy_of(self._request)

    async def __aenter__(self) -> HttpReply:
        try:
            body = self._body = _payload(self._request.body)
            response = self._response = await self._transport.open(self._request, body=body)
        except _network_errors() as error:
            error.__traceback__ = None  # the connection holds the error, and with its frames the whole request
            raise ProviderFault(_fault_of(error, self._request, before_head=True)) from None
        headers = {name.lower(): value for name, value in response.headers.items()}
        if "content-encoding" in headers:
            try:
                self._unpacker = unpacker_for(", ".join(response.headers.getall("content-encoding")))
            except UnknownCoding as coding:
                self._response = None
                response.close()
                message = (
                    f"`{self._request.host}` sent a body in the content encoding `{coding}`, which was not asked for"
                )
                raise ProviderFault(Fault(kind=FaultKind.PROTOCOL, message=message)) from None
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        is_delimited = chunked or "content-length" in headers
        return HttpReply(
            status=response.status,
            headers=headers,
            chunks=self,
            is_delimited=is_delimited,
            pump=self._pump if self._unpacker is None else None,
        )

    async def __aexit__(self, *_: object) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.release()
            await response.wait_for_close()  # of the body's writer, too: an answer may come before all was sent

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._response is None:
            raise StopAsyncIteration
        chunk = await (
            self._read(self._response) if self._unpacker is None else self._unpack(self._response, self._unpacker)
        )
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def _pump(self, take: Take) -> None:
        """As `HttpReply.pump` says. A future, a task and a further turn of the event loop for each chunk cost more than a short
        one's decoding."""
        from turnwise.endpoints.bounded_connector import BoundedHandler

        response = self._response
        handler = None if response is None or response.connection is None else response.connection.protocol
        if response is None or not isinstance(handler, BoundedHandler):
            return  # the whole body is there
        await handler.pump(take, body=response.content)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """What comes next, as it was sent; nothing once the body has ended. What came before a fault is given before it."""
        content = response.content
        try:
            chunk = await content.readany()
            if not chunk and (failed := content.exception()) is not None:
                raise failed
            return chunk
        except _network_errors() as error:
            error.__traceback__ = None  # the body holds the error, and with its frames the whole request
            from turnwise.endpoints.bounded_connector import held_bytes

            if held := held_bytes(content):
                return held
            raise ProviderFault(_fault_of(error, self._request, before_head=False)) from None

    async def _unpack(self, response: aiohttp.ClientResponse, unpacker: Unpacker) -> bytes:
        while not (piece := unpacker.take()):
            chunk = b"" if unpacker.is_broken else await self._read(response)
            if not chunk and not unpacker.has_ended:
                message = f"the compressed body from `{self._request.host}` is broken or did not arrive whole"
                raise ProviderFault(Fault(kind=FaultKind.DISCONNECTED, message=message))
            if not chunk:
                return b""
            unpacker.feed(chunk)
        if unpacker.is_bomb:
            message = f"the compressed body from `{self._request.host}` grew to more than {MOST_GROWTH} times its size"
            raise ProviderFault(Fault(kind=FaultKind.TOO_LARGE, message=message))
        await asyncio.sleep(0)  # one read may hold a thousand times its size: the deadlines get their turn
        return piece


@functools.cache  # the second time it would be memory that is kept, and written to
def _keep_blocks() -> None:
    """glibc maps no block of up to this size for itself any more (mallopt(3), M_MMAP_THRESHOLD: the largest that was freed).

    asyncio reads into a new block of 256 KB each time, which then shrinks to what came; a body is copied on its way to the
    socket, a longer one in every step. Mapping, filling with zeros and unmapping cost 12 us a read and 0.4 ms a megabyte sent.
    """
    bytes(2 * LARGE_BYTES)


def _payload(body: bytes) -> WholeBody | LongBody:
    """Bytes are copied and written at once, but for a very large body: that is written piece by piece."""

    return LongBody(body) if len(body) > LARGE_BYTES else WholeBody(body)


def _network_errors() -> tuple[type[Exception], ...]:
    """Looked up when one was raised: aiohttp is imported by then."""
    import aiohttp

    return aiohttp.ClientError, OSError


def _fault_of(error: Exception, request: HttpRequest, *, before_head: bool) -> Fault:
    """The exception as data. Its own text is used only where it cannot show a header: OS errors and TLS verdicts."""
    import aiohttp

    from turnwise.endpoints.bounded_connector import MAX_HEADS, TooManyHeads

    host = request.host
    match error:
        case aiohttp.ServerTimeoutError():
            kind, text = FaultKind.TIMEOUT, f"no connection to `{host}` within {request.connect_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            kind, text = FaultKind.UNREACHABLE, f"the name `{host}` could not be resolved: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorCertificateError():
            verdict = getattr(error.certificate_error, "verify_message", "") or type(error.certificate_error).__name__
            kind, text = FaultKind.UNREACHABLE, f"the certificate of `{host}` was not accepted: {verdict}"
        case aiohttp.ClientHttpProxyError():
            kind, text = FaultKind.UNREACHABLE, f"the proxy refused the way to `{host}` (HTTP {error.status})"
        case aiohttp.ClientProxyConnectionError():
            kind, text = FaultKind.UNREACHABLE, f"no connection to the proxy: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            kind, text = FaultKind.UNREACHABLE, f"no connection to `{host}`: {_reason(error.os_error)}"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            kind, text = FaultKind.UNREACHABLE, f"`{host}` is no address that a request can be sent to"
        case aiohttp.ClientResponseError() if isinstance(error.__cause__, TooManyHeads):
            kind, text = FaultKind.PROTOCOL, f"`{host}` sent more than {MAX_HEADS} interim responses and no answer"
        case aiohttp.ClientResponseError():
            kind, text = FaultKind.PROTOCOL, f"`{host}` did not answer in HTTP"
        case _:
            when = "before it answered" if before_head else "before the response was whole"
            kind, text = FaultKind.DISCONNECTED, f"the connection to `{host}` broke {when}"
    # What is wrong with an address or a certificate is wrong a second later, too.
    lasting = isinstance(
        error, aiohttp.ClientConnectorCertificateError | aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError
    )
    return Fault(kind=kind, message=text, should_retry=False if lasting else None)


def _reason(error: OSError) -> str:
    """The system's own words: asyncio puts "Connect call failed ('127.0.0.1', 1)" in their place."""
    if error.errno and not isinstance(error, socket.gaierror | ssl.SSLError):  # theirs are other numbers
        return os.strerror(error.errno)
    return error.strerror or type(error).__name__
