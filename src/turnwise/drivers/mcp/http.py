"""The messages of a server elsewhere, over streamable HTTP. Bodies have a size, and nothing is unpacked."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from turnwise.drivers.mcp.bounds import MAX_MESSAGE_BYTES
from turnwise.drivers.mcp.entries import ServerAddress

_CONNECT_S = 10.0


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


@asynccontextmanager
async def http_streams(address: ServerAddress) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over HTTP. What waits for an answer has a deadline of its own, so reading has none here."""
    async with (
        httpx2.AsyncClient(
            headers={**address.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_S, read=None),
            event_hooks={"response": [_bound]},
        ) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


async def _bound(response: httpx2.Response) -> None:
    """Events have a size of their own, and their stream has no end."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.StreamError("it compressed its answer, though it was asked not to")
    body = response.stream
    if isinstance(body, httpx2.AsyncByteStream) and "event-stream" not in response.headers.get("content-type", ""):
        response.stream = _BoundedBody(body)
