"""Messages of a client over two pipes, a line each: bounded, and answered here where they are none."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import cast

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from turnwise.drivers.own_pipes import MAX_LINE_BYTES, LinePipe, LongLine

MAX_OPEN_REQUESTS = 64  # a client has a handful of calls
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
# Where libraries write it: before the arguments, or at the very end.
_ID = rb'"id"\s*:\s*("[^"\\]{1,100}"|-?\d{1,18})'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[^"]*"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def message_streams(pipe: LinePipe) -> AsyncGenerator[Streams]:
    """Streams of messages over the pipe, for the protocol's library. The first one ends with the pipe."""
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    doors = _Doors(pipe)

    async def read() -> None:
        async with received:
            while (line := await pipe.read_line()) is not None:
                message = await doors.checked(line)
                if message is not None:
                    with suppress(anyio.BrokenResourceError):  # nobody serves any more
                        await received.send(message)

    async def write() -> None:
        async with to_send:
            async for message in to_send:
                doors.answered(message)
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await pipe.write_line(line.encode())
                except ConnectionError:
                    pipe.end()
                    return

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            pipe.end()
            group.cancel_scope.cancel()
            for stream in (received, incoming, outgoing, to_send):
                stream.close()


class _Doors:
    """What may go in. The requests that are open are counted: the library begins each at once, however many there are."""

    def __init__(self, pipe: LinePipe) -> None:
        self._pipe = pipe
        self._open: set[object] = set()

    async def checked(self, line: bytes | LongLine) -> SessionMessage | None:
        """The message; None where it was answered with an error."""
        if isinstance(line, LongLine):
            await self._refuse(INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes", id=_id_in(line))
            return None
        if not line.strip():
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            await self._refuse(PARSE_ERROR, "the line is no message of JSON-RPC 2.0", id=None)
            return None
        match message:
            case JSONRPCRequest(id=id):
                if id in self._open or len(self._open) >= MAX_OPEN_REQUESTS:
                    why = "this id is open" if id in self._open else f"{MAX_OPEN_REQUESTS} requests are open"
                    await self._refuse(INVALID_REQUEST, f"{why}: wait for an answer", id=id)
                    return None
                self._open.add(id)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                if isinstance(id := (params or {}).get("requestId"), int | str):  # anything else names no request
                    self._open.discard(id)  # it is not answered any more
            case _:
                pass
        return SessionMessage(message)

    def answered(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._open.discard(message.message.id)

    async def _refuse(self, code: int, why: str, *, id: int | str | None) -> None:
        with suppress(ConnectionError):
            answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}
            await self._pipe.write_line(msgspec.json.encode(answer))


def _id_in(line: LongLine) -> int | str | None:
    """The id of a request that was not read whole, where its library writes it at one of the ends."""
    found = _ID_FIRST.match(line.head) or _ID_LAST.search(line.tail)
    return None if found is None else cast("int | str", msgspec.json.decode(found[1]))
