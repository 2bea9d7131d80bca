"""Messages of a client over two pipes, a line each: bounded, and answered here where they are none."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from turnwise.base.own_pipes import (
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    LinePipe,
    LongLine,
    RequestDoor,
)
from turnwise.tools.mcp.protocol_repair import Deliver, Streams, message_streams
from turnwise.wire.json_fields import UNREADABLE

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
        self._door = RequestDoor(pipe)

    async def checked(self, line: bytes | LongLine) -> SessionMessage | None:
        """The message; None where it was answered with an error."""
        if isinstance(line, LongLine):
            await self._door.refuse(
                INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes", id=_id_in(line)
            )
            return None
        if not line.strip():
            return None
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            await self._refuse_unread(line)
            return None
        match message:
            case JSONRPCNotification() if _has_id(line):  # a request whose id is none
                await self._door.refuse(INVALID_REQUEST, "`id` must be a text or a whole number")
                return None
            case JSONRPCRequest(id=id):
                if not await self._door.lets_in(id):
                    return None
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                if isinstance(id := (params or {}).get("requestId"), int | str):  # anything else names no request
                    self._door.leaves(id)  # it is not answered any more
            case _:
                pass
        return SessionMessage(message)

    def answered(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._door.leaves(message.message.id)

    async def _refuse_unread(self, line: bytes) -> None:
        """With its id, if it is a request that has one: whoever sent it would else wait."""
        try:
            outline = _outline(line)
        except msgspec.ValidationError:
            await self._door.refuse(INVALID_REQUEST, "the message is no JSON object; one message a line, no batches")
        except UNREADABLE:
            await self._door.refuse(PARSE_ERROR, "the line is no JSON")
        else:
            is_request = outline.method is not msgspec.UNSET and type(outline.id) in (int, str)
            id = cast("int | str", outline.id) if is_request else None
            await self._door.refuse(INVALID_REQUEST, "the line is no message of JSON-RPC 2.0", id=id)


class _Outline(msgspec.Struct, frozen=True):
    """What says whether a message is a request, whatever else is wrong with it."""

    id: object = msgspec.UNSET
    method: object = msgspec.UNSET


def _has_id(line: bytes) -> bool:
    try:
        return _outline(line).id is not msgspec.UNSET
    except UNREADABLE:  # the protocol's library reads more than JSON, as `NaN`
        return False


def _outline(line: bytes) -> _Outline:
    """Raises one of UNREADABLE."""
    return msgspec.json.decode(line, type=_Outline)


def _id_in(line: LongLine) -> int | str | None:
    """The id of a request that was not read whole, where its library writes it at one of the ends."""
    found = _ID_FIRST.match(line.head) or _ID_LAST.search(line.tail)
    return None if found is None else cast("int | str", msgspec.json.decode(found[1]))
