"""Bounded lines over two pipes, and this process's own pipes, for a program that another one starts and speaks with."""

import asyncio
import contextlib
import logging
import os
import signal
import stat
import sys
from collections.abc import Callable, Generator

import msgspec

from turnwise.base.clock import Clock, wait_for_task
from turnwise.errors import CallerError

MAX_LINE_BYTES = 16 * 1024 * 1024  # a prompt with a large image: 5 MB in base64, three times
MAX_WAITING_BYTES = 1024 * 1024  # of what the other side has not read yet; from there on we wait for it
MAX_END_BYTES = 4096  # that are kept of each end of a line that is too long
SEND_S = 30.0  # who reads nothing for so long is gone
MAX_OPEN_REQUESTS = 64  # an editor has a handful of sessions, each with one prompt; another client a handful of calls
MAX_ID = 1000  # characters; libraries count, or take 36
PARSE_ERROR, INVALID_REQUEST = -32700, -32600


class LongLine(msgspec.Struct, frozen=True):
    """A line of more than `MAX_LINE_BYTES`: its two ends."""

    head: bytes
    tail: bytes


class LinePipe:
    """Lines from a reader and to a writer. `whose` names the other side in errors: `the editor`.

    `read_line` gives None once the other side has closed one of the two pipes or has read nothing for `SEND_S`, and after `end`.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock, whose: str = "the editor"
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._whose = whose
        self._reading: asyncio.Task[bytes | LongLine | None] | None = None
        self.is_open = True
        # Who reads no more need not have stopped writing.
        self._leaving = asyncio.ensure_future(_closed(writer))
        self._leaving.add_done_callback(lambda _: self.end())

    def end(self) -> None:
        """Nothing is read or written any more."""
        self.is_open = False
        if self._reading is not None:
            self._reading.cancel()

    async def read_line(self) -> bytes | LongLine | None:
        """The next line; None at the end."""
        if not self.is_open:
            return None
        await asyncio.sleep(0)  # what is buffered already would be taken at once, and nobody else would have a turn
        self._reading = asyncio.ensure_future(self._next())
        try:
            line = await self._reading
        except asyncio.CancelledError:
            if self.is_open:
                raise
            return None
        if line is None:
            self.end()
        return line

    async def write_line(self, line: bytes) -> None:
        """Raises ConnectionError once the other side is gone."""
        if not self.is_open or self._writer.is_closing():
            raise ConnectionError(f"{self._whose} is gone")
        self._writer.write(line + b"\n")
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
            raise ConnectionError(f"{self._whose} does not read what it is sent")

    async def _next(self) -> bytes | LongLine | None:
        head = tail = b""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return None
            except asyncio.LimitOverrunError as overrun:
                piece = await self._reader.readexactly(overrun.consumed)
                head, tail = head or piece[:MAX_END_BYTES], piece[-MAX_END_BYTES:]
                continue
            except OSError:
                return None
            return LongLine(head, (tail + line)[-MAX_END_BYTES:]) if head else line


class RequestDoor:
    """Which requests of JSON-RPC may go in: so many at once, each with an id of its own. Others get an error."""

    def __init__(self, pipe: LinePipe) -> None:
        self._pipe = pipe
        self._open: set[object] = set()

    async def lets_in(self, id: int | str) -> bool:
        """Whether the request goes in; it is open from then on."""
        if isinstance(id, str) and len(id) > MAX_ID:
            await self.refuse(INVALID_REQUEST, f"`id` has more than {MAX_ID:,} characters")
            return False
        if id in self._open or len(self._open) >= MAX_OPEN_REQUESTS:
            why = "a request with this id is open" if id in self._open else f"{MAX_OPEN_REQUESTS} requests are open"
            await self.refuse(INVALID_REQUEST, f"{why}: wait for an answer", id=id)
            return False
        self._open.add(id)
        return True

    def leaves(self, id: object) -> None:
        """The request of this id, if there is one, is not open any more."""
        self._open.discard(id)

    async def refuse(self, code: int, why: str, *, id: int | str | None = None) -> None:
        """Answer with an error; without an id where that is not known."""
        with contextlib.suppress(ConnectionError):
            answer = {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}
            await self._pipe.write_line(msgspec.json.encode(answer))


async def _drain(writer: asyncio.StreamWriter) -> None:
    await writer.drain()


async def _closed(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def own_streams(*, started: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """This process's standard input and output. From here on whatever else prints does so on standard error.

    `started` says who starts this program: `an editor starts `turnwise acp``. Raises CallerError where one of the two is a file,
    or the input a device without a person (`/dev/null`): an event loop cannot wait for either.
    """
    loop = asyncio.get_running_loop()
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise CallerError(f"standard {name} is a file: {started}, with pipes")
    if stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode) and not sys.stdin.isatty():
        raise CallerError(f"standard input is a device such as `/dev/null`: {started}, with pipes")
    sys.stdout.flush()
    written = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), written
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


@contextlib.contextmanager
def ended_by_signals(end: Callable[[], object]) -> Generator[None]:
    """Ctrl-C, SIGTERM and the end of the terminal call `end`, in the event loop."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def library_is_silent(folder: str) -> Generator[None]:
    """What the library in this folder logs is not shown: the other side's mistakes, each with a traceback. That side is told."""

    def is_ours(record: logging.LogRecord) -> bool:
        return not record.pathname.startswith(folder)

    root = logging.getLogger()
    hushed = [root, *[handler for handler in (logging.lastResort,) if handler is not None]]
    for one in hushed:
        one.addFilter(is_ours)
    try:
        yield
    finally:
        for one in hushed:
            one.removeFilter(is_ours)
