"""The transport on real loopback sockets: what it sends, what it gives, and every way in which the other side can fail."""

import asyncio
import datetime
import gzip
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint, Secret
from turnwise.endpoints.transport import HttpRequest
from turnwise.errors import CallerError, ProviderFault
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.turn.config import Deadlines, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Fault, FaultKind, Message, StopReason, Text
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "sk-secret-0123456789"


@asynccontextmanager
async def served(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A loopback server that answers everything with `handler`; gives its base URL."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """A loopback server below HTTP."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def request(url: str, *, body: bytes = b"{}", connect_s: float = 5.0) -> HttpRequest:
    return HttpRequest(url=url, headers=(("authorization", f"Bearer {KEY}"),), body=body, connect_s=connect_s)


async def fetch(transport: AiohttpTransport, sent: HttpRequest) -> tuple[int, bytes]:
    async with transport.send(sent) as reply:
        return reply.status, b"".join([chunk async for chunk in reply.chunks])


async def fault_of(transport: AiohttpTransport, sent: HttpRequest) -> Fault:
    with pytest.raises(ProviderFault) as caught:
        await fetch(transport, sent)
    assert KEY not in repr(caught.value) and caught.value.__cause__ is None
    return caught.value.fault


async def turn(url: str, *, deadlines: Deadlines = Deadlines(), stream: bool = True) -> TurnResult:  # noqa: B008
    config = TurnConfig(session_id="s", turn_id="t", model="m", stream=stream, deadlines=deadlines)
    endpoint = Endpoint(profile=builtin_profiles()["openai_chat"], base_url=url, key=Secret(KEY))
    async with AiohttpTransport(env={}) as transport:
        runner = Runner(RunnerMeans(endpoint=endpoint, transport=transport))
        return await asyncio.wait_for(
            runner.run(TurnStarted(config=config, input=(Message("user", (Text("hi"),)),))), HANG_S
        )


async def test_request_goes_out_as_given_and_the_connection_is_kept() -> None:
    """Method, path, query, header and body arrive; a second request uses the same connection."""
    seen: list[tuple[str, str, str, bytes, object]] = []

    async def answer(got: web.Request) -> web.StreamResponse:
        assert got.transport is not None
        peer = got.transport.get_extra_info("peername")
        seen.append((got.method, got.path_qs, got.headers["authorization"], await got.read(), peer))
        return web.Response(text="ok")

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        assert await fetch(transport, request(f"{url}/v1/x?a=b", body=b"\xff")) == (200, b"ok")
        assert await fetch(transport, request(f"{url}/v1/x?a=b", body=b"\xff")) == (200, b"ok")
    assert seen[0][:4] == ("POST", "/v1/x?a=b", f"Bearer {KEY}", b"\xff")
    assert seen[0] == seen[1]


@pytest.mark.parametrize("size", [1024 * 1024, 1024 * 1024 + 1, 8 * 1024 * 1024, 10_000_000])
async def test_large_body_goes_out_with_its_length(size: int) -> None:
    """aiohttp warns of large bodies as bytes (an error here); not chunked, because some servers refuse that."""
    seen: list[tuple[str | None, str | None, str, int]] = []

    async def answer(got: web.Request) -> web.StreamResponse:
        size = 0
        async for chunk in got.content.iter_any():
            size += len(chunk)
        headers = got.headers
        seen.append((headers.get("content-length"), headers.get("transfer-encoding"), headers["content-type"], size))
        return web.Response(text="ok")

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        sent = HttpRequest(url=url, headers=(("content-type", "application/json"),), body=bytes(size))
        for _ in range(2):
            assert await fetch(transport, sent) == (200, b"ok")
    assert seen == [(str(size), None, "application/json", size)] * 2


async def test_an_answer_before_the_body_was_taken_leaves_no_writer() -> None:
    """Proves: once a request is left, nothing of it is under way, though the server never read its 20 MB."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await left.wait()
        writer.close()

    left = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, AiohttpTransport(env={}) as transport:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        before = asyncio.all_tasks()
        async with transport.send(HttpRequest(url=url, headers=(), body=b"x" * 20_000_000)) as reply:
            assert (reply.status, b"".join([chunk async for chunk in reply.chunks])) == (413, b"big")
        ours = [task for task in asyncio.all_tasks() - before if "answer" not in repr(task.get_coro())]
        left.set()
        assert ours == []


async def test_chunks_come_as_they_are_sent_and_gzip_is_undone() -> None:
    """The first chunk is there while the server waits for us before it sends the second."""
    go_on = asyncio.Event()

    async def answer(got: web.Request) -> web.StreamResponse:
        if got.path == "/gzip":
            return web.Response(body=gzip.compress(b"plain"), headers={"content-encoding": "gzip"})
        response = web.StreamResponse()
        await response.prepare(got)
        await response.write(b"one")
        await go_on.wait()
        await response.write(b"two")
        return response

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        async with transport.send(request(f"{url}/")) as reply:
            chunks = aiter(reply.chunks)
            assert await anext(chunks) == b"one"
            go_on.set()
            assert await anext(chunks) == b"two"
        assert await fetch(transport, request(f"{url}/gzip")) == (200, b"plain")


async def test_status_and_redirect_are_not_judged_here() -> None:
    """A redirect is given back, not followed: nobody else gets the key."""
    paths: list[str] = []

    async def answer(got: web.Request) -> web.StreamResponse:
        paths.append(got.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with (
        served(answer) as url,
        AiohttpTransport(env={}) as transport,
        transport.send(request(f"{url}/here")) as reply,
    ):
        assert (reply.status, reply.headers["location"]) == (307, "/elsewhere")
    assert paths == ["/here"]


async def test_refused_and_unresolvable_are_unreachable() -> None:
    """No connection: one clear line, with the host and without the key."""
    async with raw(lambda _r, _w: asyncio.sleep(0)) as url:
        pass  # the port is free again, so nobody answers there
    async with AiohttpTransport(env={}) as transport:
        refused = await fault_of(transport, request(url))
        unknown = await fault_of(transport, request("http://nowhere.invalid/v1"))
    assert refused.kind is FaultKind.UNREACHABLE and "127.0.0.1" in refused.message
    assert unknown.kind is FaultKind.UNREACHABLE and "`nowhere.invalid`" in unknown.message


async def test_tls_failure_is_unreachable() -> None:
    """An https address where plain HTTP is spoken."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response()

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        fault = await fault_of(transport, request(url.replace("http:", "https:")))
    assert fault.kind is FaultKind.UNREACHABLE


async def test_server_that_hangs_up_before_the_head_is_a_disconnect() -> None:
    """Sent once: the server counts one request."""
    count = 0

    async def answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        await reader.readuntil(b"\r\n\r\n")

    async with raw(answer) as url, AiohttpTransport(env={}) as transport:
        fault = await fault_of(transport, request(url))
    assert (fault.kind, count) == (FaultKind.DISCONNECTED, 1)


async def test_reset_in_mid_stream_is_a_disconnect_after_what_came() -> None:
    """The chunks that arrived are given before the fault."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()

    async with raw(answer) as url, AiohttpTransport(env={}) as transport:
        got: list[bytes] = []
        with pytest.raises(ProviderFault) as caught:
            async with transport.send(request(url)) as reply:
                async for chunk in reply.chunks:
                    got.append(chunk)
    assert (caught.value.fault.kind, b"".join(got)) == (FaultKind.DISCONNECTED, b"abc")


async def test_answer_that_is_no_http_is_a_protocol_fault() -> None:
    """An SSH server, say."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        await writer.drain()

    async with raw(answer) as url, AiohttpTransport(env={}) as transport:
        assert (await fault_of(transport, request(url))).kind is FaultKind.PROTOCOL


async def test_broken_gzip_is_a_broken_connection() -> None:
    """The body does not match its content encoding, or its end is missing: another attempt may be sound."""

    async def answer(got: web.Request) -> web.StreamResponse:
        body = b"no gzip at all" if got.path == "/none" else gzip.compress(b"plain")[:-4]
        return web.Response(body=body, headers={"content-encoding": "gzip"})

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        for path in ("/none", "/cut"):
            assert (await fault_of(transport, request(f"{url}{path}"))).kind is FaultKind.DISCONNECTED


async def test_bodies_are_asked_for_plain_and_other_codings_are_refused() -> None:
    """What turnwise cannot undo is named; it will not be otherwise a second later."""
    asked: list[str] = []

    async def answer(got: web.Request) -> web.StreamResponse:
        asked.append(got.headers["accept-encoding"])
        return web.Response(body=b"x", headers={"content-encoding": "br"})

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        fault = await fault_of(transport, request(url))
    assert (fault.kind, asked) == (FaultKind.PROTOCOL, ["identity"])
    assert "content encoding `br`" in fault.message


@pytest.mark.parametrize("scheme", ["http", "proxy"])
async def test_a_connection_that_is_there_wins_over_a_deadline_that_has_passed(scheme: str) -> None:
    """The kernel connects while a busy event loop does something else; both are found at once. Told by a deadline that has
    passed before anything could run."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async with served(answer) as url:
        env = {} if scheme == "http" else {"HTTP_PROXY": url}
        target = url if scheme == "http" else "http://provider.example/v1"
        for _ in range(10):
            async with AiohttpTransport(env=env) as transport:
                assert await fetch(transport, request(target, connect_s=1e-9)) == (200, b"ok")


async def test_connect_has_its_deadline() -> None:
    """A server that never answers the TLS handshake: connect_s ends it."""
    never = asyncio.Event()

    async def answer(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await never.wait()

    async with raw(answer) as url, AiohttpTransport(env={}) as transport:
        fault = await fault_of(transport, request(url.replace("http:", "https:"), connect_s=0.05))
        never.set()
    assert fault.kind is FaultKind.TIMEOUT and "within 0.05 s" in fault.message


async def test_proxy_and_its_exceptions_come_from_the_environment() -> None:
    """HTTP_PROXY gets the request in absolute form; NO_PROXY goes directly."""
    lines: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines.append(head.split(b"\r\n")[0].decode())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
        await writer.drain()

    async with raw(answer) as proxy:
        async with AiohttpTransport(env={"HTTP_PROXY": proxy}) as transport:
            assert await fetch(transport, request("http://provider.example/v1")) == (200, b"ok")
        async with AiohttpTransport(env={"http_proxy": proxy, "NO_PROXY": "localhost, 127.0.0.0/8"}) as transport:
            assert await fetch(transport, request(f"{proxy}/direct")) == (200, b"ok")
    assert lines == ["POST http://provider.example/v1 HTTP/1.1", "POST /direct HTTP/1.1"]
    async with AiohttpTransport(env={"HTTP_PROXY": "http://me:pass@proxy.example:3128"}) as transport:
        sending = [transport.send(request(f"{scheme}://provider.example/v1")) for scheme in ("http", "https")]
        assert [one.proxy for one in sending] == ["proxy.example:3128", None]


async def test_ca_bundle_that_cannot_be_read_is_the_callers_mistake() -> None:
    """It is named, instead of every certificate being refused."""
    async with AiohttpTransport(env={"REQUESTS_CA_BUNDLE": "/no/such.pem"}) as transport:
        with pytest.raises(CallerError, match=r"`REQUESTS_CA_BUNDLE` names `/no/such.pem`"):
            await fetch(transport, request("https://127.0.0.1:1/"))


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
async def test_own_certificate_authority_is_taken_from_the_environment(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused without the variable, by a clear text; accepted with it. Nothing is left open either way."""
    certificate, key = _self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async with served(answer, tls=context) as url:
        async with AiohttpTransport(env={}) as transport:
            fault = await fault_of(transport, request(url))
        assert fault.kind is FaultKind.UNREACHABLE and "self-signed certificate" in fault.message
        monkeypatch.setenv(variable, str(certificate))
        async with AiohttpTransport() as transport:
            assert await fetch(transport, request(url)) == (200, b"ok")


async def test_over_tls_a_stream_leaves_its_connection_for_the_next_request(tmp_path: Path) -> None:
    """A handshake costs two round trips: there the first connection is taken again (see test_kept_connections.py)."""
    certificate, key = _self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    peers: list[object] = []

    async def answer(got: web.Request) -> web.StreamResponse:
        assert got.transport is not None
        peers.append(got.transport.get_extra_info("peername"))
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(got)
        await response.write(b"ok")
        return response

    async with (
        served(answer, tls=context) as url,
        AiohttpTransport(env={"REQUESTS_CA_BUNDLE": str(certificate)}) as transport,
    ):
        for _ in range(3):
            assert await fetch(transport, request(url)) == (200, b"ok")
    assert len(peers) == 3 and len(set(peers)) == 1


async def test_transport_belongs_to_its_loop() -> None:
    """Using it in a second loop is told, not left to hang."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async with served(answer) as url, AiohttpTransport(env={}) as transport:
        await fetch(transport, request(url))
        with pytest.raises(CallerError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(fetch(transport, request(url))))


def test_key_is_in_no_text_of_a_request() -> None:
    """repr and str show names of headers only."""
    sent = request("http://x/y?key=in-the-address")
    assert KEY not in f"{sent} {sent!r}" and "in-the-address" not in f"{sent}"


async def test_401_ends_the_turn_as_auth_without_the_key() -> None:
    """Providers quote the key back; it is struck out."""

    async def answer(_: web.Request) -> web.StreamResponse:
        error = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
        return web.json_response(error, status=401)

    async with served(answer) as url:
        result = await turn(url)
    assert result.stop_reason is StopReason.PROVIDER_FAILED and result.fault is not None
    assert (result.fault.kind, result.fault.status) == (FaultKind.AUTH, 401)
    assert "Incorrect API key provided: ***" in result.fault.message
    assert KEY not in repr(result)


@pytest.mark.parametrize("stream", [True, False])
async def test_html_in_place_of_an_answer_is_a_protocol_fault(stream: bool) -> None:
    """A login page with status 200."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text="<!doctype html><title>Log in</title>", content_type="text/html")

    async with served(answer) as url:
        result = await turn(url, stream=stream)
    assert result.fault is not None and result.fault.kind is FaultKind.PROTOCOL
    assert "html" in result.fault.message.lower()


async def test_slow_first_event_meets_its_deadline_on_a_real_clock() -> None:
    """The server sends keep-alives only; the client ends the request and the server sees it go."""
    gone = asyncio.Event()

    async def answer(got: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(got)
        await response.write(b": wait\n\n")
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return response

    async with served(answer) as url:
        result = await turn(url, deadlines=Deadlines(first_event_s=0.05))
        await asyncio.wait_for(gone.wait(), HANG_S)
    assert result.fault is not None and result.fault.kind is FaultKind.TIMEOUT


async def test_endless_line_is_bounded() -> None:
    """10 MB without an end of line: too large, and the connection is closed instead of read on."""

    async def answer(got: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(got)
        await response.write(b'data: {"choices":[{"delta":{"content":"')
        for _ in range(160):
            await response.write(b"a" * 65536)
        await response.write_eof()
        return response

    async with served(answer) as url:
        result = await turn(url)
    assert result.fault is not None and result.fault.kind is FaultKind.TOO_LARGE
