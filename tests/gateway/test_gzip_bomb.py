"""An upstream whose small answer unpacks to a huge one: refused early, and others are served meanwhile."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import pytest

from gateway.calling import call_of
from gateway.relayed import Gathered
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import GROWTH_FROM_BYTES, PIECE_BYTES, AiohttpTransport, Unpacker
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.service import RelayService, ServiceMeans
from waits import HANG_S

MIB = 1024 * 1024
SLICES = GROWTH_FROM_BYTES // PIECE_BYTES


@cache
def bomb() -> bytes:
    """Made once it is needed: that takes a second."""
    return gzip.compress(b'{"choices":[' + b" " * (200 * MIB))


@asynccontextmanager
async def upstream(body: bytes, *, head: bytes) -> AsyncIterator[int]:
    """Answers everything with this body. Its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n%s\r\n" % (len(body), head) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def answer(body: bytes, *, head: bytes, stream: bool, bounds: Bounds) -> tuple[Gathered, int]:
    """What the client gets, and how often the event loop served others meanwhile."""
    passes, outlet = 0, Gathered()
    async with upstream(body, head=head) as port, AiohttpTransport(env={}) as transport:
        there = UpstreamAddress(url=f"http://127.0.0.1:{port}/v1", family="openai_chat", key_env="LAB_KEY")
        config = GatewayConfig(routes=(GatewayRoute(upstream=there, retry=0),), bounds=bounds)
        means = ServiceMeans(transport=transport, clock=SystemClock(), env={"LAB_KEY": "k"})
        service = RelayService(config, means=means, forward_key=False)
        serving = asyncio.ensure_future(service.answer(call_of("openai_chat", "m", stream=stream), outlet))
        async with asyncio.timeout(HANG_S):
            while not serving.done():
                passes += 1
                await asyncio.sleep(0)
        await serving
    return outlet, passes


@pytest.mark.costly
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", [b"application/json", b"text/event-stream"])
async def test_a_gzip_bomb_is_refused_early_and_others_are_served_meanwhile(kind: bytes, stream: bool) -> None:
    """Counted in passes of the event loop: at least one for each 64 KiB. The bound on the answer is 64 MiB here."""
    head = b"content-type: %s\r\ncontent-encoding: gzip\r\n" % kind
    outlet, passes = await answer(bomb(), head=head, stream=stream, bounds=Bounds())
    assert outlet.status == 502
    if kind == b"application/json":
        assert passes >= SLICES


def test_a_body_counts_as_a_bomb_once_it_has_grown_a_hundred_times() -> None:
    """Of 200 MiB no more than 4 MiB and a piece are unpacked; what an API sends is no bomb."""
    unpacker = Unpacker("gzip")
    unpacker.feed(bomb())
    given = 0
    while not unpacker.is_bomb:
        given += len(unpacker.take())
    assert given <= GROWTH_FROM_BYTES + PIECE_BYTES
    events = b"".join(
        [b'data: {"id":"c1","choices":[{"delta":{"content":"word %d"}}]}\n\n' % n for n in range(100_000)]
    )
    unpacker = Unpacker("gzip")
    unpacker.feed(gzip.compress(events))
    while unpacker.take():
        assert not unpacker.is_bomb


async def test_a_body_past_the_bound_is_refused_unread() -> None:
    """Also one that is not compressed."""
    head = b"content-type: application/json\r\n"
    outlet, _ = await answer(b'{"choices":[' + b" " * MIB, head=head, stream=False, bounds=Bounds(response_bytes=MIB))
    assert (outlet.status, b"longer than our limit" in b"".join(outlet.pieces)) == (502, True)
