"""Messages of JSON-RPC over the editor's two pipes, a line each: bounded, and checked before the protocol's library sees them."""

import asyncio
import json
from typing import Any, cast

import msgspec

from turnwise.base.clock import Clock
from turnwise.base.own_pipes import (
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    PARSE_ERROR,
    LinePipe,
    LongLine,
    RequestDoor,
    own_streams,
)
from turnwise.wire.json_fields import UNREADABLE

MAX_ERROR_CHARACTERS = 4000  # an error of the library repeats what was wrong, however long it is

EditorMessage = dict[str, Any]


class EditorPipe:
    """A `Transport` of the protocol's library. What is no message is answered with an error and goes no further.

    `receive` gives None once the editor is gone.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock) -> None:
        self._lines = LinePipe(reader, writer, clock=clock, whose="the editor")
        self._door = RequestDoor(self._lines)

    @property
    def is_open(self) -> bool:
        return self._lines.is_open

    def end(self) -> None:
        """Nothing is read or written any more."""
        self._lines.end()

    async def receive(self) -> EditorMessage | None:
        while (line := await self._lines.read_line()) is not None:
            if (message := await self._checked(line)) is not None:
                return message
        return None

    async def send(self, message: EditorMessage) -> None:
        """Raises ConnectionError once the editor is gone."""
        if "method" not in message:
            self._door.leaves(message.get("id"))
        await self._lines.write_line(_encoded(message))

    async def close(self) -> None:
        await self._lines.close()

    async def _checked(self, line: bytes | LongLine) -> EditorMessage | None:
        if isinstance(line, LongLine):
            await self._door.refuse(INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes")
            return None
        if not line.strip():
            return None
        try:
            decoded: object = msgspec.json.decode(line)
        except UNREADABLE:
            await self._door.refuse(PARSE_ERROR, "the line is no JSON")
            return None
        if not isinstance(decoded, dict):
            await self._door.refuse(INVALID_REQUEST, "the message is no JSON object; one message a line, no batches")
            return None
        message = cast("EditorMessage", decoded)
        return _response(message) if "method" not in message else await self._request(message)

    async def _request(self, message: EditorMessage) -> EditorMessage | None:
        method, id, params = message["method"], message.get("id"), message.get("params")
        if not isinstance(method, str) or isinstance(id, bool | float | list | dict):
            await self._door.refuse(INVALID_REQUEST, "`method` must be a text and `id` a text or a whole number")
            return None
        kept: EditorMessage = {"jsonrpc": "2.0", "method": method}
        if isinstance(params, dict):
            # the library hands what stands in `_meta` to its handlers as if it were fields of the request
            kept["params"] = {key: value for key, value in cast("EditorMessage", params).items() if key != "_meta"}
        if id is None:
            return kept if _is_heeded(kept) else None
        return {**kept, "id": id} if await self._door.lets_in(id) else None


def _is_heeded(notification: EditorMessage) -> bool:
    """The protocol wants others to be ignored; the library would log each with a traceback."""
    params: object = notification.get("params")
    if notification["method"] != "session/cancel" or not isinstance(params, dict):
        return False
    return isinstance(cast("EditorMessage", params).get("sessionId"), str)


def _response(message: EditorMessage) -> EditorMessage | None:
    """An answer to a request of ours, in the shape that the library expects; None for what answers nothing."""
    id = message.get("id")
    if not isinstance(id, int) or isinstance(id, bool):
        return None
    if "error" not in message or "result" in message:
        return {"jsonrpc": "2.0", "id": id, "result": message.get("result")}
    error: object = message["error"]
    code, said = -32603, "the editor failed"
    if isinstance(error, dict):
        given = cast("dict[str, object]", error)
        code = one if isinstance(one := given.get("code"), int) else code
        said = two[:MAX_ERROR_CHARACTERS] if isinstance(two := given.get("message"), str) else said
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": said}}


def _encoded(message: EditorMessage) -> bytes:
    """A line. Of an error that cannot be written, or is too long, code and message stay."""
    error = message.get("error")
    if isinstance(error, dict):
        short = {**cast("dict[str, object]", error)}
        try:
            if len(msgspec.json.encode(short)) <= MAX_ERROR_CHARACTERS:
                return msgspec.json.encode(message)
        except (TypeError, ValueError):
            pass
        short["message"] = str(short.get("message", ""))[:MAX_ERROR_CHARACTERS]
        short.pop("data", None)
        return msgspec.json.encode({**message, "error": short})
    try:
        return msgspec.json.encode(message)
    except UnicodeEncodeError:  # half of a pair: as an escape it is JSON
        return json.dumps(message).encode()


async def own_pipes(*, clock: Clock) -> EditorPipe:
    """The pipe over this process's standard input and output. Raises CallerError where one of the two is a file."""
    reader, writer = await own_streams(started="an editor starts `turnwise acp`")
    return EditorPipe(reader, writer, clock=clock)
