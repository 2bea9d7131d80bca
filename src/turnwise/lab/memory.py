"""The lab without a network: a transport that hands each request to the provider and its pieces back."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import ProviderFault
from turnwise.lab.faults import Outgoing
from turnwise.lab.provider import Provider
from turnwise.lab.received_requests import Received
from turnwise.lab.routes import route
from turnwise.vocab import Fault, FaultKind

# As much as a socket gives at a time: a stream's small pieces arrive together, and a test is not spent on them.
CHUNK_BYTES = 16 * 1024


class MemoryTransport:
    """Implements `turnwise.endpoints.transport.Transport`. `requests` grows as those of a running lab do.

    A path that the lab has no endpoint for gets a 404. A reset is a disconnect, a stall lasts until it is cancelled.
    """

    def __init__(self, provider: Provider, *, requests: list[Received]) -> None:
        self._provider = provider
        self._requests = requests

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        address = urlsplit(request.url)
        found = route(address.path)
        if found is None:
            async with aclosing(_chunks(Outgoing(status=404, content_type="text/plain", pieces=()))) as chunks:
                yield HttpReply(status=404, headers={"content-type": "text/plain"}, chunks=chunks)
            return
        target = f"{address.path}?{address.query}" if address.query else address.path
        number = len(self._requests) + 1
        betas = next((value for name, value in request.headers if name == "anthropic-beta"), "")
        outgoing, kept = self._provider.answer(found, target=target, body=request.body, number=number, betas=betas)
        self._requests.append(kept)
        await asyncio.sleep(0)  # requests that were sent together are all there before the first response begins
        if not outgoing.pieces:
            await _end(outgoing)
        self._provider.began(number, status=outgoing.status)
        headers = {**dict(outgoing.headers), "content-type": outgoing.content_type}
        async with aclosing(_chunks(outgoing)) as chunks:
            yield HttpReply(status=outgoing.status, headers=headers, chunks=chunks)


async def _chunks(outgoing: Outgoing) -> AsyncGenerator[bytes]:
    for chunk in _gathered(outgoing.pieces):
        yield chunk
    while outgoing.ending == "pings":
        yield outgoing.ping
        await asyncio.sleep(0)
    await _end(outgoing)


def _gathered(pieces: Sequence[bytes]) -> list[bytes]:
    chunks: list[bytes] = []
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            chunks.append(b"".join(waiting))
            waiting, size = [], 0
    return [*chunks, b"".join(waiting)] if waiting else chunks


async def _end(outgoing: Outgoing) -> None:
    match outgoing.ending:
        case "close":
            return
        case "stall" | "pings":
            await asyncio.Event().wait()
        case "reset":
            raise ProviderFault(Fault(kind=FaultKind.DISCONNECTED, message="the connection was reset"))
