"""Two memory streams of messages, as the package `mcp` wants its transports, over whatever carries lines."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

Deliver = Callable[[SessionMessage], Awaitable[None]]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def message_streams(
    receive: Callable[[Deliver], Awaitable[None]], *, send: Callable[[SessionMessage, bytes], Awaitable[None]]
) -> AsyncGenerator[Streams]:
    """The two streams, until the block ends; then both tasks behind them are cancelled.

    `receive` delivers what comes, and returns when nothing comes any more: the first stream ends then. A delivery that nobody
    waits for ends it, too. `send` is given each message with its line (without the line break), and raises OSError once nobody
    reads it.
    """
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with received:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                await receive(received.send)

    async def write() -> None:
        async with to_send:
            with suppress(OSError):
                async for message in to_send:
                    line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await send(message, line.encode())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            group.cancel_scope.cancel()
            for stream in (received, incoming, outgoing, to_send):
                stream.close()
