"""A login at a remote MCP server (OAuth 2.1): asked for once with a browser, kept as keys are, sent to that server alone.

The package `mcp` does the flow: metadata, registration, PKCE, `state`, the issuer of an answer. What it fetches on the way goes
through here, because others name those addresses: they are public and https, resolved once, and nothing is redirected. In a turn
no browser opens: a server that wants a login says so.
"""

import asyncio
import html
import logging
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, OAuthRegistrationError, OAuthTokenError
from mcp.client.auth.utils import is_valid_client_metadata_url
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp_types import LATEST_PROTOCOL_VERSION
from pydantic import AnyUrl, TypeAdapter, ValidationError

from turnwise._version import __version__
from turnwise.base.clock import Clock, Overdue, Watchdog
from turnwise.base.outgoing import RefusedAddress, is_loopback, judged_addresses
from turnwise.base.threads import in_thread
from turnwise.errors import CallerError
from turnwise.running.tool_output import cut_middle
from turnwise.settings.kept_keys import KeptKey, keep_key, kept_keys, kept_text, kept_text_of
from turnwise.settings.mcp_files import ServerAddress
from turnwise.tools.mcp.server_bounds import McpFailure
from turnwise.vocab.hidden_characters import visible_line
from turnwise.wire.profiles import origin_of

LOGIN_S = 300.0  # for a person in a browser, with a second factor
FETCH_S = 15.0
MAX_ANSWER = 256 * 1024  # of metadata, a registration, tokens; the largest known have 20 KB
MAX_SAID = 300
_HEAD_BYTES, _HEAD_S = 16 * 1024, 10.0
_CODE = re.compile(r"[!#-\[\]-~]{1,60}")  # of an error, and of a scope (RFC 6749)
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_URL: TypeAdapter[AnyUrl] = TypeAdapter(AnyUrl)
_PAGE = """<!doctype html><meta charset="utf-8"><title>turnwise</title>
<body style="font:1.1rem system-ui;margin:4rem"><p>{}</p></body>"""
_CAME = "turnwise has the answer and goes on in the terminal. You can close this window."
_UNREADABLE = "its answer cannot be read"
_OTHER = "This is not the answer that turnwise waits for."

# The library logs what a server answered, in which tokens may stand.
logging.getLogger("mcp.client.auth.oauth2").addFilter(lambda _: False)


class KeptLogin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of one login, as one text in the place of a key. `client`: turnwise as it is registered there."""

    url: str
    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None
    scope: str = ""
    issuer: str = ""
    token_endpoint: str = ""
    resource: str = ""
    client: str = ""

    def __repr__(self) -> str:
        return f"KeptLogin(scope={self.scope!r}, issuer={self.issuer!r})"


def kept_login(address: ServerAddress, *, env: Mapping[str, str]) -> tuple[KeptLogin, KeptKey] | None:
    """The login for this very address, and where it is kept. Raises CallerError if it cannot be read."""
    kept = kept_keys(env).get(address.login_name)
    if kept is None or kept.origin != origin_of(address.url):
        return None
    try:
        login = msgspec.json.decode(kept_text(kept, provider=address.login_name), type=KeptLogin)
    except msgspec.MsgspecError:  # its text could show a token
        return None
    return (login, kept) if login.url == address.url else None


class _Storage:
    """The library's view of what is kept. It is told the flow's `context`, of which it keeps more than the library asks for:
    without the address for tokens, a login could not be renewed in the next process."""

    def __init__(self, address: ServerAddress, *, env: Mapping[str, str], reads: bool, in_file: bool = False) -> None:
        self._address, self._env, self._reads, self._in_file = address, env, reads, in_file
        self.provider: OAuthClientProvider | None = None
        self.unusable = ""  # the token that the server took no more, and that could not be renewed
        self.kept: KeptLogin | None = None
        self.why_in_file = ""

    async def get_tokens(self) -> OAuthToken | None:
        return await self.load() if self._reads else None

    async def load(self) -> OAuthToken | None:
        """The token is what is kept now, also by another process."""
        context = self._context
        kept_text_of.cache_clear()  # another process may have renewed it
        found = await in_thread(self.read, name="turnwise-login")
        if found is None or found.access_token == self.unusable:
            return None
        if found.token_endpoint:
            context.oauth_metadata = OAuthMetadata.model_validate(
                {
                    "issuer": found.issuer,
                    "authorization_endpoint": found.issuer,
                    "token_endpoint": found.token_endpoint,
                }
            )
        if found.resource:
            servers = [found.issuer or found.resource]
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                {"resource": found.resource, "authorization_servers": servers}
            )
        context.client_info = OAuthClientInformationFull.model_validate_json(found.client) if found.client else None
        tokens = OAuthToken(
            access_token=found.access_token, refresh_token=found.refresh_token or None, scope=found.scope or None
        )
        context.current_tokens, context.token_expiry_time = tokens, found.expires_at
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        context = self._context
        metadata, resource = context.oauth_metadata, context.protected_resource_metadata
        login = self.kept = KeptLogin(
            url=self._address.url,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_at=context.token_expiry_time,
            scope=tokens.scope or "",
            issuer=str(metadata.issuer) if metadata else "",
            token_endpoint=str(metadata.token_endpoint) if metadata else "",
            resource=str(resource.resource) if resource else "",
            client=context.client_info.model_dump_json(exclude_none=True) if context.client_info else "",
        )
        failure = await in_thread(lambda: self._write(login), name="turnwise-login")
        if failure is not None:
            raise failure

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """turnwise as the entry names it. A login without that registers again: its address for the answer has another port."""
        address = self._address
        if self._reads or not address.client_id or is_valid_client_metadata_url(address.client_id):
            return self._context.client_info
        method = "client_secret_basic" if address.client_secret else "none"
        return OAuthClientInformationFull(
            client_id=address.client_id,
            client_secret=address.client_secret or None,
            token_endpoint_auth_method=method,
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Kept with the tokens."""

    @property
    def _context(self):
        assert self.provider is not None, "it was told its provider"
        return self.provider.context

    def read(self) -> KeptLogin | None:
        try:
            found = kept_login(self._address, env=self._env)
        except CallerError:
            return None
        return None if found is None else found[0]

    def _write(self, login: KeptLogin) -> CallerError | None:
        try:
            before = kept_keys(self._env).get(self._address.login_name)
            _, self.why_in_file = keep_key(
                self._address.login_name,
                msgspec.json.encode(login).decode(),
                origin=origin_of(self._address.url),
                env=self._env,
                in_file=self._in_file or (self._reads and before is not None and before.place == "file"),
                shows_end=False,
            )
        except CallerError as error:
            return error
        return None


class _JudgedTransport(httpx2.AsyncBaseTransport):
    """Connects to what `judged_addresses` has resolved and allowed, and to the server's own origin, which its user has named.
    TLS and `Host` have the name. No connection is kept: another name may lead to the same machine."""

    def __init__(self, url: str) -> None:
        self._own, self._loopback = origin_of(url), is_loopback(urlsplit(url).hostname or "")
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        addresses: tuple[str, ...] = (url.host,)
        if origin_of(str(url)) != self._own:
            addresses = await judged_addresses(str(url), loopback=self._loopback)
        failed: Exception = httpx2.ConnectError("no address")
        for address in addresses:
            moved = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await self._inner.handle_async_request(moved)
            except httpx2.ConnectError as error:
                failed = error
        raise failed

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Fetcher:
    """Sends what the flow wants to be sent, beside the request that needs the login. Raises McpFailure."""

    def __init__(self, client: httpx2.AsyncClient, *, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.last = ""  # what the last answer refused

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        where = visible_line(f"{request.url.scheme}://{request.url.netloc.decode()}{request.url.path}")[:MAX_SAID]
        try:
            async with Watchdog(self._clock, total_s=FETCH_S):
                response = await self._client.send(request, stream=True)
                try:
                    body = await _bounded(response)
                finally:
                    await response.aclose()
        except Overdue:
            raise McpFailure(f"{where} did not answer within {FETCH_S:g} s") from None
        except RefusedAddress as why:
            raise McpFailure(f"the address {where}, which the server names, {why}: nothing was sent there") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise McpFailure(f"{where} could not be reached (`{type(error).__name__}`)") from None
        if response.status_code >= 300:
            self.last = f"HTTP {response.status_code}{_error_code(body)} of {where}"
        headers = {
            name: value for name, value in response.headers.items() if name in ("content-type", "www-authenticate")
        }
        # without `location`: the library would follow one within an origin
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _bounded(response: httpx2.Response) -> bytes:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.StreamError("a compressed answer")
    if "event-stream" in response.headers.get("content-type", ""):
        return b""  # of the server itself; it may have no end
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > MAX_ANSWER:
            raise httpx2.StreamError(f"an answer of more than {MAX_ANSWER} bytes")
    return body


def _error_code(body: bytes) -> str:
    try:
        code = msgspec.json.decode(body, type=dict[str, object]).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f" (`{code}`)" if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _client_of(address: ServerAddress) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=_JudgedTransport(address.url), timeout=None, follow_redirects=False)


def _provider_of(
    address: ServerAddress,
    *,
    storage: _Storage,
    redirect_uri: str = "http://127.0.0.1/callback",
    show: Callable[[str], Awaitable[None]] | None = None,
    answer: Callable[[], Awaitable[AuthorizationCodeResult]] | None = None,
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata(
        client_name="turnwise", software_version=__version__, redirect_uris=[_URL.validate_python(redirect_uri)]
    )
    document = address.client_id if is_valid_client_metadata_url(address.client_id) else None
    provider = OAuthClientProvider(address.url, metadata, storage, show, answer, document)
    storage.provider = provider
    return provider


class TurnLogin(httpx2.Auth):
    """The kept login goes with each request to its server, and is renewed. It asks nobody."""

    def __init__(self, address: ServerAddress, *, clock: Clock, env: Mapping[str, str]) -> None:
        self._address, self._clock = address, clock
        self._storage = _Storage(address, env=env, reads=True)
        self._provider = _provider_of(address, storage=self._storage)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        if origin_of(str(request.url)) != origin_of(self._address.url):
            yield request
            return
        await self._authorize(request)
        response = yield request
        if response.status_code == 401 and await self._renews(request.headers.get("authorization", "")):
            await self._authorize(request)
            yield request

    async def _authorize(self, request: httpx2.Request) -> None:
        """The request has a token that is valid by the clock, as far as there is one. The library's flow ends before the request:
        it would let no other begin before the answer."""
        request.headers.pop("authorization", None)
        context = self._provider.context
        if context.current_tokens is not None and not context.is_token_valid():
            await self._storage.load()
        flow = self._provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                async with _client_of(self._address) as client:
                    response = await _Fetcher(client, clock=self._clock).send(outgoing)
                if 400 <= response.status_code < 500 and context.current_tokens is not None:
                    self._storage.unusable = context.current_tokens.access_token
                outgoing = await flow.asend(response)
        except McpFailure as why:
            raise httpx2.ConnectError(str(why)) from None
        finally:
            await flow.aclose()

    async def _renews(self, sent: str) -> bool:
        """Whether another token than the refused one may be there."""
        context = self._provider.context
        if context.current_tokens is None or f"Bearer {context.current_tokens.access_token}" != sent:
            return context.current_tokens is not None
        self._storage.unusable = context.current_tokens.access_token
        if await self._storage.load() is None:  # no other process has renewed it
            context.token_expiry_time = 1.0
        return context.is_token_valid() or context.can_refresh_token()


def login_hint(response: httpx2.Response, *, name: str) -> str:
    """What a person does about a refusal: log in, or ask for more rights; empty for any other refusal."""
    said = response.headers.get("www-authenticate", "")
    if response.status_code == 401:
        return f"it wants a login: `turnwise mcp login {name}`"
    if response.status_code != 403 or "insufficient_scope" not in said:
        return ""
    found = re.search(r'scope="([^"]{1,500})"', said)
    words = [word for word in (found[1].split() if found else []) if _CODE.fullmatch(word)]
    more = f" --scope {shlex.quote(' '.join(words))}" if words else ""
    return f"its login may not do that: `turnwise mcp login {name}{more}` asks for more rights"


class _Callback:
    """A server on the loopback address that waits for one answer of a browser: the one with the `state` that was sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult | str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self.port = 0

    @asynccontextmanager
    async def opened(self, port: int) -> AsyncGenerator["_Callback"]:
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=_HEAD_BYTES)
        except OSError as error:
            raise McpFailure(f"port {port} of 127.0.0.1 cannot be opened: {error.strerror}") from None
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.close()

    async def answer(self, within_s: float) -> AuthorizationCodeResult:
        try:
            async with Watchdog(self._clock, total_s=within_s):
                found = await self._answer
        except Overdue:
            raise McpFailure(f"no answer came from the browser within {within_s:g} s") from None
        if isinstance(found, str):
            raise McpFailure(f"the authorization server refused it{found}")
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with Watchdog(self._clock, total_s=_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                is_right = self._take(head)
                page = _PAGE.format(html.escape(_CAME if is_right else _OTHER)).encode()
                writer.write(
                    f"HTTP/1.1 {'200 OK' if is_right else '400 Bad Request'}\r\ncontent-type: text/html; charset=utf-8\r\n"
                    f"content-length: {len(page)}\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
                    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'\r\nconnection: close\r\n\r\n".encode()
                    + page
                )
                await writer.drain()
        except (Overdue, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _take(self, head: bytes) -> bool:
        """Whether it is the answer. The server is closed then, so no second one comes."""
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        parts = urlsplit(words[1]) if len(words) == 3 else urlsplit("")
        given = parse_qs(parts.query, max_num_fields=50)
        one = {name: values[0] for name, values in given.items() if len(values) == 1}
        is_get = words[0] == "GET" and parts.path == "/callback" and bool(self.state) and not self._answer.done()
        if not is_get or not compare_digest(one.get("state", "").encode(), self.state.encode()):
            return False
        error = given.get("error", [""])[0]
        if "code" in one:
            self._answer.set_result(
                AuthorizationCodeResult(code=one["code"], state=one["state"], iss=given.get("iss", [None])[0])
            )
        else:
            self._answer.set_result(f" (`{error}`)" if _CODE.fullmatch(error) else "")
        if self._server is not None:
            self._server.close()
        return True


async def log_in(
    address: ServerAddress,
    *,
    clock: Clock,
    env: Mapping[str, str],
    show: Callable[[str], object],
    scope: str = "",
    port: int = 0,
    in_file: bool = False,
    within_s: float = LOGIN_S,
) -> tuple[KeptLogin, str]:
    """A login is kept for the server; `show` is given the address that a person opens. With it comes why it is in the file, if no
    keyring answers. Raises McpFailure, CallerError."""
    loopback = is_loopback(urlsplit(address.url).hostname or "")
    if not (loopback or address.url.startswith("https://")):
        raise McpFailure("its address has no https, so everybody on the way could read the login")
    storage = _Storage(address, env=env, reads=False, in_file=in_file)
    before = await in_thread(storage.read, name="turnwise-login")
    if scope and before is not None:
        scope = " ".join(dict.fromkeys([*before.scope.split(), *scope.split()]))
    async with _client_of(address) as client, _Callback(clock).opened(port) as callback:
        fetcher = _Fetcher(client, clock=clock)

        async def sent_there(url: str) -> None:
            metadata = provider.context.oauth_metadata
            if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
                raise McpFailure("its authorization server does not protect the answer (PKCE with S256)")
            _choose_method(provider)
            try:
                await judged_addresses(url, loopback=loopback)
            except RefusedAddress as why:
                raise McpFailure(f"the address for your browser, which the server names, {why}") from None
            except OSError:
                raise McpFailure("the address for your browser, which the server names, is not known") from None
            callback.state = parse_qs(urlsplit(url).query)["state"][-1]
            show(url)

        provider = _provider_of(
            address,
            storage=storage,
            redirect_uri=f"http://127.0.0.1:{callback.port}/callback",
            show=sent_there,
            answer=lambda: callback.answer(within_s),
        )
        probe = httpx2.Request(
            "POST",
            address.url,
            headers={
                **address.headers,
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": LATEST_PROTOCOL_VERSION,
            },
            json=_PING,
        )
        try:
            await _flow(provider, probe, fetcher=fetcher, scope=scope)
        except OAuthRegistrationError:  # the library's own text is not shown: a token may stand in it
            last = fetcher.last or _UNREADABLE
            raise McpFailure(
                f"its authorization server does not register turnwise ({last}): give `client_id` in the server's entry"
            ) from None
        except (OAuthTokenError, ValidationError):
            raise McpFailure(f"its authorization server gave no login: {fetcher.last or _UNREADABLE}") from None
        except OAuthFlowError as error:
            raise McpFailure(cut_middle(visible_line(str(error)), limit=MAX_SAID)) from None
    assert storage.kept is not None, "the flow has ended with tokens"
    return storage.kept, storage.why_in_file


async def _flow(provider: OAuthClientProvider, probe: httpx2.Request, *, fetcher: _Fetcher, scope: str) -> None:
    """The login, from a refused request on. A server that refuses none yet is taken to want a login all the same."""
    refused = await fetcher.send(probe)
    challenge = refused.headers.get("www-authenticate", "Bearer")
    if scope:
        challenge = f'Bearer scope="{scope}", {challenge}'
    flow = provider.async_auth_flow(probe)
    try:
        await anext(flow)  # the request itself, which is answered already
        answer = httpx2.Response(401, headers={"www-authenticate": challenge}, request=probe)
        while (outgoing := await flow.asend(answer)) is not probe:
            answer = await fetcher.send(outgoing)
    finally:
        await flow.aclose()
    if (await fetcher.send(probe)).status_code in (401, 403):
        raise McpFailure(f"the server does not take the login that it asked for: {fetcher.last}")


def _choose_method(provider: OAuthClientProvider) -> None:
    """A secret of the entry goes as the authorization server wants it."""
    client, metadata = provider.context.client_info, provider.context.oauth_metadata
    known = metadata.token_endpoint_auth_methods_supported if metadata else None
    basic = "client_secret_basic"
    if client is not None and client.token_endpoint_auth_method == basic and basic not in (known or [basic]):
        client.token_endpoint_auth_method = "client_secret_post"
