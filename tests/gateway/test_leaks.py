"""What a gateway keeps after many requests, and how much of an answer it takes for a client that does not read."""

import asyncio
import gc
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.flooding_upstream import FLOOD_BYTES, FloodingUpstream, flooding_upstream
from gateway.served_gateway import ServedGateway, served_gateway
from turnwise.gateway.serve import SEARCHES, seldom_searched
from waits import HANG_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

AT_ONCE = 16
ONCE_BYTES = 4 * 1024 * 1024  # caches that fill up: the ledger's pages, the allocator's blocks
REQUEST_BYTES = 512  # of growth for each request; a task that nobody ends, or a connection, keeps ten times that
BUFFERED_BYTES = 64 * 1024 * 1024  # four sockets' buffers of the kernel, at most 6 MB each here, and our own below 1 MB


def asked(port: int, model: str) -> bytes:
    body = msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    return f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def answer(port: int, model: str) -> bytes:
    """The whole answer; of one that stalls its first word, then the client leaves."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(asked(port, model))
        if model == "stalls":
            return await asyncio.wait_for(reader.readuntil(b"a word of the answer"), HANG_S)
        return await asyncio.wait_for(reader.read(), HANG_S)
    finally:
        writer.transport.abort()


class Process:
    """What /proc says of a gateway."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway
        self._folder = Path(f"/proc/{gateway.process.pid}")

    def descriptors(self) -> int:
        return len(list((self._folder / "fd").iterdir()))

    def kept_bytes(self, name: str = "VmRSS") -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB$", (self._folder / "status").read_text(), re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    async def settled(self, *, most: int) -> int:
        """Its open descriptors, once they are at most so many; each look follows a request that was served."""
        until_s = time.monotonic() + HANG_S
        while (found := self.descriptors()) > most and time.monotonic() < until_s:
            await asyncio.to_thread(self._gateway.get, "/healthz")
        return found


async def ask_all(port: int, models: Iterator[str]) -> None:
    async def one_after_another() -> None:
        for model in models:
            said = await answer(port, model)
            is_end = b"data: [DONE]" in said
            assert b"a word of the answer" in said and is_end == (model != "stalls"), said
            assert (b'"error"' in said) == (model == "breaks"), said

    await asyncio.gather(*[one_after_another() for _ in range(AT_ONCE)])


def mixed(requests: int, broken: int) -> Iterator[str]:
    """So many whole ones, and between them the broken ones: the client leaves, the upstream breaks off."""
    every = requests // broken
    for number in range(broken):
        yield from ["whole"] * every
        yield "stalls" if number % 2 else "breaks"
    yield from ["whole"] * (requests - every * broken)


@contextmanager
def gateway_before(folder: Path, url: str, *, bounds: str = "") -> Iterator[ServedGateway]:
    config = folder / "gateway.toml"
    config.write_text(f'{bounds}\n[[route]]\nupstream = "{url}"\nretry = 0\n')
    with served_gateway(folder, "--config", str(config), "--quiet", upstream=None) as gateway:
        yield gateway


@pytest.mark.costly
@pytest.mark.parametrize(
    ("requests", "broken"), [(300, 60), pytest.param(9_999, 2_001, marks=pytest.mark.wide)], ids=["few", "many"]
)
async def test_requests_leave_nothing_behind(tmp_path: Path, requests: int, broken: int) -> None:
    """Whole answers, clients that leave in the middle, upstreams that break off there: after the last third the process has no
    more descriptors open than the connections that it keeps for the next request, and hardly more memory than after the first."""
    async with flooding_upstream() as (upstream, url):
        with gateway_before(tmp_path, url) as gateway:
            process = Process(gateway)
            await ask_all(gateway.port, iter(["whole"]))
            idle = process.descriptors()
            kept: list[int] = []
            for _ in range(3):
                await ask_all(gateway.port, mixed(requests // 3, broken // 3))
                assert await process.settled(most=idle + AT_ONCE) <= idle + AT_ONCE
                kept.append(process.kept_bytes())
            assert len(upstream.open) <= AT_ONCE + 1
            grown = kept[-1] - kept[0]
            assert grown <= ONCE_BYTES + REQUEST_BYTES * (requests + broken) * 2 // 3, kept


def stop_reading(gateway: ServedGateway) -> socket.socket:
    """A client that has read the first word of a flood, and nothing more."""
    client = socket.create_connection(("127.0.0.1", gateway.port), timeout=HANG_S)
    client.sendall(asked(gateway.port, "flood"))
    said = b""
    while b"a word of the answer" not in said:
        said += client.recv(1_024)
    return client


async def left(upstream: FloodingUpstream) -> None:
    await asyncio.wait_for(upstream.is_left.wait(), HANG_S)


async def test_a_client_that_stops_reading_holds_its_upstream_back(tmp_path: Path) -> None:
    """An upstream that would send 512 MB gets rid of what fits into the buffers of the sockets, and the gateway's memory does not
    grow with it. When the client's time is over, the upstream is left, and the next client is served."""
    async with flooding_upstream() as (upstream, url):
        with gateway_before(tmp_path, url, bounds="[bounds]\nunread_s = 3\n") as gateway:
            process = Process(gateway)
            await answer(gateway.port, "whole")
            before = process.kept_bytes("VmHWM")
            client = await asyncio.to_thread(stop_reading, gateway)
            try:
                await left(upstream)
            finally:
                client.close()
            assert 0 < upstream.sent_bytes < BUFFERED_BYTES < FLOOD_BYTES
            assert process.kept_bytes("VmHWM") - before < BUFFERED_BYTES
            assert b"data: [DONE]" in await answer(gateway.port, "whole")


def test_a_program_that_runs_a_gateway_gets_its_garbage_collector_back() -> None:
    """Within the gateway what is loaded is not searched for garbage; behind it all is as before."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with seldom_searched():
        assert gc.get_threshold() == SEARCHES and gc.get_freeze_count() > frozen
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
