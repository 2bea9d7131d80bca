"""Messages of a client over two pipes, a line each: bounded, and answered here where they are none."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import cast

import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from turnwise.drivers.mcp.message_streams import Deliver, Streams, message_streams
from turnwise.drivers.own_pipes import MAX_LINE_BYTES, LinePipe, LongLine
from turnwise.wire.json_fields import UNREADABLE

MAX_OPEN_REQUESTS = 64  # a client has a handful of calls
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
# Where libraries write it: before the arguments, or at the very end.
_ID = rb'"id"\s*:\s*("[^"\\]{1,100}"|-?\d{1,18})'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[^"]*"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb"\s*\}\s*$")


@asynccontextmanager
async def client_streams(pipe: LinePipe) -> AsyncGenerator[Streams]:
    """Streams of messages over the pipe, for the protocol's library. The first one ends with the pipe."""
    doors = _Doors(pipe)

    async def receive(deliver: Deliver) -> None:
        while (line := await pipe.read_line()) is not None:
            message = await doors.checked(line)
            if message is not None:
                await deliver(message)

    async def send(message: SessionMessage, line: bytes) -> None:
        doors.answered(message)
        try:
            await pipe.write_line(line)
        except ConnectionError:
            pipe.end()
            raise

    async with message_streams(receive, send=send) as streams:
        try:
            yield streams
        finally:
            pipe.end()


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
            await self._refuse_unread(line)
            return None
        match message:
            case JSONRPCNotification() if _outline(line).id is not msgspec.UNSET:  # a request whose id is none
                await self._refuse(INVALID_REQUEST, "`id` must be a text or a whole number", id=None)
                return None
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

    async def _refuse_unread(self, line: bytes) -> None:
        """With its id, if it is a request that has one: whoever sent it would else wait."""
        try:
            outline = _outline(line)
        except msgspec.ValidationError:
            await self._refuse(
                INVALID_REQUEST, "the message is no JSON object; one message a line, no batches", id=None
            )
        except UNREADABLE:
            await self._refuse(PARSE_ERROR, "the line is no JSON", id=None)
        else:
            is_request = outline.method is not msgspec.UNSET and type(outline.id) in (int, str)
            id = cast("int | str", outline.id) if is_request else None
            await self._refuse(INVALID_REQUEST, "the line is no message of JSON-RPC 2.0", id=id)

    async def _refuse(self, code: int, why: str, *, id: int | str | None) -> None:
        with suppress(ConnectionError):
            answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}
            await self._pipe.write_line(msgspec.json.encode(answer))


class _Outline(msgspec.Struct, frozen=True):
    """What says whether a message is a request, whatever else is wrong with it."""

    id: object = msgspec.UNSET
    method: object = msgspec.UNSET


def _outline(line: bytes) -> _Outline:
    """Raises one of UNREADABLE."""
    return msgspec.json.decode(line, type=_Outline)


def _id_in(line: LongLine) -> int | str | None:
    """The id of a request that was not read whole, where its library writes it at one of the ends."""
    found = _ID_FIRST.match(line.head) or _ID_LAST.search(line.tail)
    return None if found is None else cast("int | str", msgspec.json.decode(found[1]))
