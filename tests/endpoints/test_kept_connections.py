"""Which connection serves a second request: a server may announce that it keeps one, and close it behind the stream.

llama.cpp's server does (docs/live.md): of the requests that followed a stream at once every third was lost, which cost an attempt
and half a second. The servers here write their bytes themselves.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.transport import HttpRequest
from waits import HANG_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nkeep-alive: timeout=5, max=100\r\n"
STREAM = HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
BODY = HEAD + b"content-length: 2\r\n\r\nok"


@dataclass
class Server:
    """Answers each request with `answer`. `closes`: behind each answer, in the moment in which the next request comes: on that
    connection, and then the request is lost, or on another one, and then it is served."""

    answer: bytes
    closes: bool
    url: str = ""
    connections: list[int] = field(default_factory=list[int])  # the requests that came over each
    closing: "list[asyncio.StreamWriter]" = field(default_factory=list[asyncio.StreamWriter])

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(0)
        try:
            while await self._asked(reader):
                self.connections[number] += 1
                if self.closes and self.connections[number] > 1:
                    break
                while self.closing:
                    other = self.closing.pop()
                    other.close()
                    await other.wait_closed()
                writer.write(self.answer)
                if self.closes:
                    self.closing.append(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _asked(self, reader: asyncio.StreamReader) -> bool:
        try:
            await reader.readuntil(b"\r\n\r\n{}")
        except asyncio.IncompleteReadError:
            return False
        return True


@asynccontextmanager
async def serving(answer: bytes, *, closes: bool = False) -> AsyncIterator[Server]:
    served = Server(answer=answer, closes=closes)
    server = await asyncio.start_server(served.talk, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await asyncio.wait_for(server.wait_closed(), HANG_S)


async def fetch(transport: AiohttpTransport, url: str) -> bytes:
    async with transport.send(HttpRequest(url=url, headers=(), body=b"{}")) as reply:
        return b"".join([chunk async for chunk in reply.chunks])


@pytest.mark.promise("wait:retry")
async def test_a_server_that_closes_behind_each_stream_loses_no_request() -> None:
    """Proves: each goes over a connection of its own, the second one too. Before, the second raised `disconnected`."""
    async with serving(STREAM, closes=True) as server, AiohttpTransport(env={}) as transport:
        for _ in range(5):
            assert await fetch(transport, server.url) == b"ok"
        assert server.connections == [1] * 5


@pytest.mark.promise("wait:retry")
async def test_streams_at_the_same_time_say_nothing_of_each_other() -> None:
    """Proves: a stream that was asked for before another one ended does not decide what the server does with connections."""
    async with serving(STREAM, closes=True) as server, AiohttpTransport(env={}) as transport:
        for _ in range(3):
            assert await asyncio.gather(*[fetch(transport, server.url) for _ in range(3)]) == [b"ok"] * 3
        assert max(server.connections) == 1


async def test_a_server_that_keeps_its_connections_is_asked_over_two() -> None:
    """Proves: the first stream's connection is set aside once, then both serve the rest."""
    async with serving(STREAM) as server, AiohttpTransport(env={}) as transport:
        for _ in range(6):
            assert await fetch(transport, server.url) == b"ok"
        assert len(server.connections) == 2 and sum(server.connections) == 6


async def test_a_body_with_its_length_leaves_its_connection_for_the_next_request() -> None:
    """Proves: only a stream's end is in doubt."""
    async with serving(BODY) as server, AiohttpTransport(env={}) as transport:
        for _ in range(3):
            assert await fetch(transport, server.url) == b"ok"
        assert server.connections == [3]


async def test_a_connection_that_was_set_aside_is_closed_with_the_transport() -> None:
    """Proves: nothing is left open where no second request came."""
    async with serving(STREAM) as server:
        async with AiohttpTransport(env={}) as transport:
            assert await fetch(transport, server.url) == b"ok"
        assert server.connections == [1]
