"""Messages of JSON-RPC over the editor's two pipes, a line each: bounded, and checked before the protocol's library sees them."""

import asyncio
import contextlib
import json
import os
import stat
import sys
from typing import Any, cast

import msgspec

from turnwise.drivers.clock import Clock, wait_for_task
from turnwise.errors import CallerError
from turnwise.wire.json_fields import UNREADABLE

MAX_LINE_BYTES = 16 * 1024 * 1024  # a prompt with a large image: 5 MB in base64, three times
MAX_OPEN_REQUESTS = 64  # an editor has a handful of sessions, each with one prompt
MAX_ERROR_CHARACTERS = 4000  # an error of the library repeats what was wrong, however long it is
MAX_WAITING_BYTES = 1024 * 1024  # of what the editor has not read yet; from there on we wait for it
SEND_S = 30.0  # an editor that reads nothing for so long is gone
PIECE_BYTES = 64 * 1024

PARSE_ERROR, INVALID_REQUEST = -32700, -32600

EditorMessage = dict[str, Any]


class EditorPipe:
    """A `Transport` of the protocol's library. What is no message is answered with an error and goes no further.

    `receive` gives None once the editor has closed one of the two pipes, has read nothing for `SEND_S`, or `end` was called.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._open: set[int | str] = set()
        self._reading: asyncio.Task[bytes | None] | None = None
        self.is_open = True
        self._leaving = asyncio.ensure_future(
            _closed(writer)
        )  # an editor that reads no more need not have stopped writing
        self._leaving.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """Nothing is read or written any more."""
        self.is_open = False
        if self._reading is not None:
            self._reading.cancel()

    async def receive(self) -> EditorMessage | None:
        while self.is_open:
            await asyncio.sleep(0)  # what is buffered already would be taken at once, and nobody else would have a turn
            line = await self._line()
            if line is None:
                self.end()
                return None
            if (message := await self._checked(line)) is not None:
                return message
        return None

    async def send(self, message: EditorMessage) -> None:
        """Raises ConnectionError once the editor is gone."""
        if "method" not in message:
            self._open.discard(message.get("id", ""))
        if not self.is_open or self._writer.is_closing():
            raise ConnectionError("the editor is gone")
        self._writer.write(_encoded(message) + b"\n")
        if self._writer.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
            await self._drained()

    async def close(self) -> None:
        self.end()
        self._writer.close()
        with contextlib.suppress(OSError):
            await wait_for_task(asyncio.ensure_future(_closed(self._writer)), clock=self._clock, timeout_s=1.0)

    async def _drained(self) -> None:
        task = asyncio.ensure_future(_drain(self._writer))
        if not await wait_for_task(task, clock=self._clock, timeout_s=SEND_S):
            task.cancel()
            self.end()
            self._writer.transport.abort()
            raise ConnectionError("the editor does not read what it is sent")

    async def _line(self) -> bytes | None:
        """The next line, empty for one that was too long; None at the end."""
        self._reading = asyncio.ensure_future(self._read_line())
        try:
            return await self._reading
        except asyncio.CancelledError:
            if self.is_open:
                raise
            return None

    async def _read_line(self) -> bytes | None:
        is_too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError as overrun:
                is_too_long = True
                await self._reader.readexactly(overrun.consumed)
                continue
            except OSError:
                return None
            return b"" if is_too_long else line

    async def _checked(self, line: bytes) -> EditorMessage | None:
        if not line:
            await self._refuse(INVALID_REQUEST, f"the message has more than {MAX_LINE_BYTES:,} bytes")
            return None
        if not line.strip():
            return None
        try:
            decoded: object = msgspec.json.decode(line)
        except UNREADABLE:
            await self._refuse(PARSE_ERROR, "the line is no JSON")
            return None
        if not isinstance(decoded, dict):
            await self._refuse(INVALID_REQUEST, "the message is no JSON object; one message a line, no batches")
            return None
        message = cast("EditorMessage", decoded)
        return _response(message) if "method" not in message else await self._request(message)

    async def _request(self, message: EditorMessage) -> EditorMessage | None:
        method, id, params = message["method"], message.get("id"), message.get("params")
        if not isinstance(method, str) or isinstance(id, bool | float | list | dict):
            await self._refuse(INVALID_REQUEST, "`method` must be a text and `id` a text or a whole number")
            return None
        kept: EditorMessage = {"jsonrpc": "2.0", "method": method}
        if isinstance(params, dict):
            # the library hands what stands in `_meta` to its handlers as if it were fields of the request
            kept["params"] = {key: value for key, value in cast("EditorMessage", params).items() if key != "_meta"}
        if id is None:
            return kept if _is_heeded(kept) else None
        if id in self._open or len(self._open) >= MAX_OPEN_REQUESTS:
            why = "a request with this id is open" if id in self._open else f"{MAX_OPEN_REQUESTS} requests are open"
            await self._refuse(INVALID_REQUEST, f"{why}: wait for an answer", id=id)
            return None
        self._open.add(id)
        return {**kept, "id": id}

    async def _refuse(self, code: int, why: str, *, id: int | str | None = None) -> None:
        with contextlib.suppress(ConnectionError):
            line = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}
            self._writer.write(msgspec.json.encode(line) + b"\n")
            if self._writer.transport.get_write_buffer_size() > MAX_WAITING_BYTES:
                await self._drained()


async def _drain(writer: asyncio.StreamWriter) -> None:
    await writer.drain()


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()


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
    """The pipe over this process's standard input and output. From here on whatever else prints does so on standard error.

    Raises CallerError where one of the two is a file: an editor starts this command with pipes.
    """
    loop = asyncio.get_running_loop()
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise CallerError(f"standard {name} is a file: an editor starts `turnwise acp`, with pipes")
    sys.stdout.flush()
    written = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), written
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return EditorPipe(reader, writer, clock=clock)
