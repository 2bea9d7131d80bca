"""An upstream of plain sockets, for what no well-behaved server does a thousand times: break off, stall, and never stop."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import msgspec

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
MODEL = re.compile(rb'"model" *: *"([^"]+)"')
FLOOD_BYTES = 512 * 1024 * 1024  # more than any bound lets through, less than a hang
LONG_PIECE = "x" * 16_384


def _event(delta: object, finish: str | None = None) -> bytes:
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    event = b"data: " + msgspec.json.encode({**chunk, "choices": [choice]}) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


WORD = _event({"role": "assistant", "content": "a word of the answer"})
LONG = _event({"content": LONG_PIECE})
DONE = b"data: [DONE]\n\n"
END = _event({}, "stop") + b"%x\r\n%s\r\n" % (len(DONE), DONE) + b"0\r\n\r\n"


class FloodingUpstream:
    """`open`: connections that stand. `sent_bytes`: what was taken off a flood's hands. A request's model says what is played."""

    def __init__(self) -> None:
        self.open: set[asyncio.StreamWriter] = set()
        self.sent_bytes = 0
        self.is_left = asyncio.Event()  # the other side of a flood has closed its connection

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection serves another request."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(head)
        body = await reader.readexactly(0 if length is None else int(length[1]))
        model = MODEL.search(body)
        match b"" if model is None else model[1]:
            case b"whole":
                writer.write(HEAD + WORD + WORD + END)
            case b"breaks":
                writer.write(HEAD + WORD)
                await writer.drain()
                return False
            case b"flood":
                await self._flood(writer)
                return False
            case _:  # it stalls, until the other side leaves
                writer.write(HEAD + WORD)
                await reader.read()
                return False
        return True

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(HEAD + WORD)
            while self.sent_bytes < FLOOD_BYTES:
                writer.write(LONG)
                await writer.drain()
                self.sent_bytes += len(LONG)
        finally:
            self.is_left.set()


@contextlib.asynccontextmanager
async def flooding_upstream() -> AsyncIterator[tuple[FloodingUpstream, str]]:
    """The upstream, and its base URL."""
    upstream = FloodingUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, backlog=256)
    try:
        yield upstream, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in list(upstream.open):
            writer.transport.abort()
