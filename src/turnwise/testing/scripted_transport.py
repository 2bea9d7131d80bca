"""A transport that says what a script tells it, byte by byte, and keeps what it was asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType

import msgspec

from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import ProviderFault
from turnwise.vocab import Fault

STREAM: Mapping[str, str] = MappingProxyType({"content-type": "text/event-stream"})


class Stall(msgspec.Struct, frozen=True):
    """A silence. It ends when `until` is set; without `until` it never ends."""

    until: asyncio.Event | None = None


Piece = bytes | Stall | Fault
"""Of a body: bytes as one chunk, a silence, or the connection breaking off with that fault."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer of a `ScriptedTransport`.

    `pieces` are the parts of its body: bytes, a silence (`Stall`), or a `Fault` that breaks the connection. `before` is
    a silence or a fault before the head.
    """

    pieces: tuple[Piece, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = STREAM
    before: Stall | Fault | None = None


ReplyMaker = Callable[[HttpRequest], Reply]


class ScriptedTransport:
    """A transport that answers each request with the next reply. A reply may be a function that makes it from the request.

    It implements `turnwise.endpoints.transport.Transport`. `requests` are the requests that were sent; `open`
    counts replies that are not closed yet. A request without a reply raises AssertionError.
    """

    def __init__(self, replies: Iterable[Reply | ReplyMaker]) -> None:
        self.requests: list[HttpRequest] = []
        self.open = 0
        self._replies = iter(replies)

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        """Give the next reply. Raises AssertionError if there is none."""
        self.requests.append(request)
        reply = next(self._replies, None)
        if reply is None:
            raise AssertionError(f"the script has no reply to request {len(self.requests)}")
        if not isinstance(reply, Reply):
            reply = reply(request)
        self.open += 1
        try:
            if reply.before is not None:
                await _come(reply.before)
            async with aclosing(_chunks(reply)) as chunks:
                yield HttpReply(status=reply.status, headers=reply.headers, chunks=chunks)
        finally:
            self.open -= 1


async def _chunks(reply: Reply) -> AsyncGenerator[bytes]:
    for piece in reply.pieces:
        if isinstance(piece, bytes):
            yield piece
        else:
            await _come(piece)


async def _come(piece: Stall | Fault) -> None:
    if isinstance(piece, Fault):
        raise ProviderFault(piece)
    await (piece.until or asyncio.Event()).wait()
