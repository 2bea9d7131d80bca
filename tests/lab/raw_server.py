"""A server on loopback that writes its bytes as a test says: heads, chunks and the end of the connection included."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from waits import HANG_S

Ending = Literal["last chunk", "length", "close", "missing chunk", "short", "reset", "open", "bad chunk"]
"""How a body ends: as HTTP/1.1 marks it (the first two); with the connection alone (HTTP/1.0); with its mark missing, by a close
(`missing chunk`, `short`), a reset, or a line where the size of a chunk belongs; or not at all."""
NO_SIZE = b"upstream error\r\n"


class Body(msgspec.Struct, frozen=True, kw_only=True):
    pieces: tuple[bytes, ...]
    ending: Ending = "last chunk"
    content_type: str = "text/event-stream"
    headers: str = ""  # more of them, each with its line end
    version: str = ""  # HTTP/1.1, or what the ending needs
    at_once: bool = False  # head, body and end in one write
    before_end: asyncio.Event | None = None  # the end comes once it is set


class Served(msgspec.Struct, kw_only=True):
    """The address, and how many requests have come."""

    url: str
    requests: int = 0


@asynccontextmanager
async def serving(bodies: Sequence[Body] | Callable[[bytes], Body]) -> AsyncIterator[Served]:
    """Each request gets the next body, then the last one again; or what `bodies` makes of the request's own."""
    served = Served(url="")
    over = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while (asked := await _read_request(reader)) is not None:
                served.requests += 1
                body = bodies(asked) if callable(bodies) else bodies[min(served.requests, len(bodies)) - 1]
                if not await _write(writer, body=body, over=over):
                    return
        except ConnectionError:
            pass
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    served.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        over.set()
        server.close()
        if tasks:
            await asyncio.wait(list(tasks), timeout=HANG_S)


async def _read_request(reader: asyncio.StreamReader) -> bytes | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    length = next(
        int(line.partition(b":")[2]) for line in head.lower().splitlines() if line.startswith(b"content-length")
    )
    return await reader.readexactly(length)


async def _write(writer: asyncio.StreamWriter, *, body: Body, over: asyncio.Event) -> bool:
    """Whether the connection is kept for the next request."""
    size = sum(map(len, body.pieces))
    is_chunked = body.ending in ("last chunk", "missing chunk", "reset", "open", "bad chunk")
    version = body.version or ("HTTP/1.0" if body.ending == "close" else "HTTP/1.1")
    lengths = {"length": f"content-length: {size}\r\n", "short": f"content-length: {size + 1}\r\n"}
    framing = "transfer-encoding: chunked\r\n" if is_chunked else lengths.get(body.ending, "")
    head = f"{version} 200 OK\r\ncontent-type: {body.content_type}\r\n{framing}{body.headers}\r\n".encode()
    written = [head, *[b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece for piece in body.pieces]]
    if body.at_once:
        end = {"last chunk": b"0\r\n\r\n", "bad chunk": NO_SIZE}.get(body.ending, b"")
        writer.write(b"".join(written) + end)
        await writer.drain()
        return body.ending in ("last chunk", "length")
    for piece in written:
        writer.write(piece)
        await writer.drain()
    if body.before_end is not None:
        await body.before_end.wait()
    match body.ending:
        case "last chunk":
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        case "length":
            pass
        case "bad chunk":
            writer.write(NO_SIZE)
            await writer.drain()
        case "reset":
            writer.transport.abort()
        case "open":
            await over.wait()
        case "close" | "missing chunk" | "short":
            pass
    return body.ending in ("last chunk", "length")
