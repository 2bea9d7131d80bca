"""The messages of a server elsewhere, over streamable HTTP. Bodies have a size, and nothing is unpacked."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from turnwise.drivers.clock import Clock
from turnwise.drivers.mcp.bounds import MAX_MESSAGE_BYTES, McpFailure, UnaskedMeter
from turnwise.drivers.mcp.entries import ServerAddress

_CONNECT_S = 10.0
_LINES = 10  # of an event, at most, as far as the bound on messages goes


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


class _MeteredBody(httpx2.AsyncByteStream):
    """A stream of events has no end. What it carries in a while is bounded, comments too."""

    def __init__(self, body: httpx2.AsyncByteStream, *, meter: UnaskedMeter, gone: Callable[[str], object]) -> None:
        self._body, self._meter, self._gone = body, meter, gone

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            try:
                self._meter.count(len(piece), messages=_messages_in(piece))
            except McpFailure as flood:
                self._gone(str(flood))
                raise httpx2.StreamError(str(flood)) from None
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def _messages_in(piece: bytes) -> int:
    """How many messages may have ended in it. A line ends with a line feed, a carriage return or both."""
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return max(piece.count(b"\n\n"), piece.count(b"\n") // _LINES)


@asynccontextmanager
async def http_streams(
    address: ServerAddress, *, clock: Clock, gone: Callable[[str], object], refused: Callable[[int], object]
) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over HTTP. What waits for an answer has a deadline of its own, so reading has none here.

    `gone` is told why nothing comes any more, `refused` the status of each answer that is none. No redirect is followed: the
    headers are for this address.
    """
    meter = UnaskedMeter(clock)

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            gone("it compressed its answer, though it was asked not to")
            raise httpx2.StreamError("a compressed answer")
        if response.status_code >= 300:
            refused(response.status_code)
        body = response.stream
        if not isinstance(body, httpx2.AsyncByteStream):
            return
        if "event-stream" in response.headers.get("content-type", ""):
            response.stream = _MeteredBody(body, meter=meter, gone=gone)
        else:
            response.stream = _BoundedBody(body)

    async with (
        httpx2.AsyncClient(
            headers={**address.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_S, read=None),
            event_hooks={"response": [bound]},
            follow_redirects=False,
        ) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
