"""A gateway whose files change while it runs: real processes, real streams, real certificates."""

import asyncio
import contextlib
import datetime
import ipaddress
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.flooding_upstream import END, HEAD, LENGTH, WORD
from gateway.served_gateway import ServedGateway, served_gateway
from turnwise.errors import CallerError
from turnwise.gateway.config import TlsFiles
from turnwise.gateway.reloading import open_tls
from waits import HANG_S

GOOD, BAD = b"turnwise_gateway_last_reload_good 1\n", b"turnwise_gateway_last_reload_good 0\n"


class HeldUpstream:
    """Each answer says a word, and goes on once it may. `keys` are those that came."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.keys: list[bytes] = []
        self.open: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(head)
                await reader.readexactly(0 if length is None else int(length[1]))
                self.keys.append(head.lower().partition(b"authorization: bearer ")[2].partition(b"\r\n")[0])
                writer.write(HEAD + WORD)
                await self.may_go_on.wait()
                writer.write(WORD + END)
        writer.transport.abort()


@contextlib.asynccontextmanager
async def held_upstream() -> AsyncIterator[tuple[HeldUpstream, str]]:
    upstream = HeldUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=512)
    try:
        yield upstream, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in upstream.open:
            writer.transport.abort()
        await asyncio.sleep(0)


class Asked(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def rest(self) -> bytes:
        try:
            return await asyncio.wait_for(self.reader.read(), HANG_S)
        finally:
            self.writer.transport.abort()


async def asking(port: int, path: str, body: object = None, *, tls: ssl.SSLContext | None = None) -> Asked:
    """A request, behind which the connection ends."""
    host = None if tls is None else "127.0.0.1"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
    method, content = ("GET", b"") if body is None else ("POST", msgspec.json.encode(body))
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\ncontent-type: application/json\r\n"
    )
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    return Asked(reader, writer)


async def get(port: int, path: str, *, tls: ssl.SSLContext | None = None) -> bytes:
    return await (await asking(port, path, tls=tls)).rest()


async def chat(port: int, model: str) -> Asked:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "Look."}]}
    return await asking(port, "/v1/chat/completions", body)


async def head_of(port: int, model: str) -> bytes:
    """The first line of an answer whose client then leaves."""
    asked = await chat(port, model)
    try:
        return await asyncio.wait_for(asked.reader.readline(), HANG_S)
    finally:
        asked.writer.transport.abort()


async def until_told(port: int, line: bytes) -> None:
    async with asyncio.timeout(HANG_S):
        while line not in await get(port, "/metrics"):
            pass


def table(model: str, url: str, key: str = "KEY_ONE") -> str:
    return f'[[route]]\nmodels = ["{model}"]\nupstream = {{ url = "{url}", key_env = "{key}" }}\n'


def served(folder: Path, config: str, *words: str) -> "contextlib.AbstractContextManager[ServedGateway]":
    (folder / "gateway.toml").write_text(config)
    env = {"KEY_ONE": "one", "KEY_TWO": "two"}
    return served_gateway(folder, "--config", str(folder / "gateway.toml"), *words, upstream=None, env=env)


@pytest.mark.parametrize("streams", [20, pytest.param(200, marks=pytest.mark.wide)])
async def test_no_open_stream_is_torn_by_a_new_configuration(tmp_path: Path, streams: int) -> None:
    """SIGHUP with a key, a removed route and a broken file: new requests see it, open ones end as they began. A broken file
    changes nothing; a mended one is found without a signal."""
    path = tmp_path / "gateway.toml"
    async with held_upstream() as (upstream, url):
        with served(tmp_path, table("a", url) + table("b", url)) as there:
            port = there.port
            opened = [await chat(port, "ab"[number % 2]) for number in range(streams)]
            for one in opened:
                await asyncio.wait_for(one.reader.readuntil(b"a word of the answer"), HANG_S)
            path.write_text(table("a", url, "KEY_TWO"))
            there.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(HANG_S):
                while b"HTTP/1.1 404" not in await head_of(port, "b"):
                    pass
            path.write_text("[[route]\n")
            there.process.send_signal(signal.SIGHUP)
            await until_told(port, BAD)
            upstream.may_go_on.set()
            ends = [await one.rest() for one in opened]
            assert all(end.endswith(b"0\r\n\r\n") and b"[DONE]" in end and b"error" not in end for end in ends)
            assert b"[DONE]" in await (await chat(port, "a")).rest()
            assert upstream.keys[0] == b"one" and upstream.keys[-1] == b"two"
            path.write_text(table("c", url))
            await until_told(port, GOOD)
            assert b"[DONE]" in await (await chat(port, "c")).rest()
            log = there.end()
    assert "gateway.toml`: Expected" in log or "gateway.toml`: " in log.partition("cannot be used: ")[2]
    assert there.process.returncode == 0


async def test_while_it_drains_it_is_not_ready_and_still_serves(tmp_path: Path) -> None:
    """Issue 47: who sends requests here learns it before the listener closes. A second SIGTERM does not wait any longer."""
    async with held_upstream() as (upstream, url):
        upstream.may_go_on.set()
        with served(tmp_path, table("a", url), "--drain", "3600") as there:
            assert b"HTTP/1.1 200" in await get(there.port, "/readyz")
            there.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(HANG_S):
                while b"HTTP/1.1 503" not in await get(there.port, "/readyz"):
                    pass
            assert b"HTTP/1.1 200" in await get(there.port, "/healthz")
            assert b"[DONE]" in await (await chat(there.port, "a")).rest()
            there.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(there.process.wait, HANG_S) == 0


def certified(folder: Path, name: str, *, password: bytes = b"") -> tuple[str, str]:
    """A certificate for 127.0.0.1 by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hidden))
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_a_certificate_is_served_and_read_anew(tmp_path: Path) -> None:
    """By Python's own client, which trusts that certificate alone. What was opened with the one before goes on."""
    cert, key = certified(tmp_path, "first")
    async with held_upstream() as (upstream, url):
        tables = f'{table("a", url)}[tls]\ncert = "{cert}"\nkey = "{key}"\n'
        with served(tmp_path, tables) as there:
            first = ssl.create_default_context(cafile=cert)
            body = {"model": "a", "stream": True, "messages": [{"role": "user", "content": "Look."}]}
            opened = await asking(there.port, "/v1/chat/completions", body, tls=first)
            await asyncio.wait_for(opened.reader.readuntil(b"a word of the answer"), HANG_S)
            certified(tmp_path, "second")
            second = ssl.create_default_context(cafile=cert)
            there.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(HANG_S):
                while True:
                    with contextlib.suppress(ssl.SSLError):
                        assert b"HTTP/1.1 200" in await get(there.port, "/healthz", tls=second)
                        break
            with pytest.raises(ssl.SSLError):
                await get(there.port, "/healthz", tls=first)
            (tmp_path / "cert.pem").write_text("no certificate")
            there.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(HANG_S):
                while BAD not in await get(there.port, "/metrics", tls=second):
                    pass
            upstream.may_go_on.set()
            assert b"[DONE]" in await opened.rest()


def test_a_key_that_cannot_be_read_is_told_before_anything_is_served(tmp_path: Path) -> None:
    """Also one with a password: nobody is asked for it."""
    cert, key = certified(tmp_path, "hidden", password=b"secret")
    with pytest.raises(CallerError, match="the key without a password"):
        open_tls(TlsFiles(cert=cert, key=key))
    Path(key).unlink()
    with pytest.raises(CallerError, match="No such file"):
        open_tls(TlsFiles(cert=cert, key=key))
