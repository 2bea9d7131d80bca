"""Connections that end when a server sends heads without end, that tell a reader when the body's framing breaks, and that serve
a second request only where the server keeps them. Imported with the first request.

This module alone uses private parts of aiohttp; `tests/endpoints/test_private_parts.py` names them, and fails where a new version
moves one. What they save: `resume_reading` 0.8 us of 3.6 a chunk, `pump` a task and a pass of the event loop for each chunk.
"""

import asyncio
import functools
import re
from collections.abc import Iterator

from aiohttp import ClientPayloadError, ClientRequest, ClientTimeout, ConnectionTimeoutError, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.tracing import Trace

from turnwise.base.clock import Overdue, SystemClock, Watchdog
from turnwise.endpoints.transport import Take

# --- where the chunks of a body begin and end, read beside the HTTP parser (RFC 9112, section 7.1)
#
# A server that streams words sends each as one chunk. Such a chunk needs no parser if it comes whole: what it says is between
# its length and its line end. A parser that has not seen it stands where it stood, between two chunks. Mostly each comes alone.
# Where a reader falls behind, several come at once: they must cost less than alone then, or it never catches up. What is not
# written in the plainest way is the parser's alone from there on.

_LENGTH = re.compile(rb"[0-9a-fA-F]{1,8}\r\n")
_PLAIN = re.compile(rb"[1-9a-fA-F][0-9a-fA-F]{0,7}\r\n")  # without the zeros that it allows
_LONGEST = 10  # bytes of that
_END = b"\r\n"
MOST_AT_ONCE = (
    64  # chunks of one read: a server can send ten thousands of them in one, and other streams wait meanwhile
)
_SHORT = 4096  # bytes of a chunk with its framing: those of words are shorter
_Lines = tuple[tuple[bytes, ...], int]
_LINES: dict[
    int, _Lines
] = {}  # by the bytes of a single chunk: its first line, in lower and upper case, and how long that is


def single_chunk(data: bytes) -> bytes:
    """What the chunk says that these bytes are, if they begin where a chunk does; nothing where they are anything else, or longer
    than a word."""
    size = len(data)
    known = _LINES.get(size)
    if known is None:
        if size > _SHORT:
            return b""
        known = _LINES[size] = _lines_of(size)
    lines, at = known
    return data[at:-2] if data.startswith(lines) and data.endswith(_END) else b""


def leading_chunks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The content of each whole chunk at the beginning of `data`, and where it ends; `data` has to begin where a chunk does. It
    stops behind `MOST_AT_ONCE` chunks, at the first chunk that is not written plainly, and at the last chunk of a body."""
    at = 0
    for _ in range(MOST_AT_ONCE):
        if (found := _PLAIN.match(data, at)) is None:
            return
        begin = found.end()
        end = begin + int(found[0], 16)
        if not data.startswith(_END, end):
            return
        at = end + len(_END)
        yield data[begin:end], at


def _lines_of(size: int) -> _Lines:
    """Without any line where no single chunk has that size: one digit more of its length makes it two bytes longer."""
    for digits in range(1, len(b"%x" % size) + 1):
        said = size - digits - 2 * len(_END)
        if said > 0 and len(b"%x" % said) == digits:
            line = b"%x\r\n" % said
            return tuple({line, line.upper()}), len(line)
    return (), 0


class ChunkedCoding:
    """Of one body. `follow` it from the first byte behind the head, without a gap but for the chunks that were taken alone."""

    __slots__ = ("_awaited", "_begun", "_left", "_lost")

    def __init__(self) -> None:
        self._left = 0  # bytes of the current chunk's content
        self._awaited = b""  # of its line end
        self._begun = b""  # of a length that has not come whole
        self._lost = False

    @property
    def is_between_chunks(self) -> bool:
        """Whether the next byte begins one, as far as can be told."""
        return not (self._left or self._awaited or self._lost or self._begun)

    def follow(self, data: bytes) -> None:
        """The parser reads these bytes."""
        at = 0
        while at < len(data) and not self._lost:
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
                continue
            if self._awaited:
                end = data[at : at + len(self._awaited)]
                self._lost = not self._awaited.startswith(end)  # some parsers take a line feed alone
                self._awaited = self._awaited[len(end) :]
                at += len(end)
                continue
            begun = self._begun + data[at : at + _LONGEST]
            found = _LENGTH.match(begun)
            if found is None:
                self._lost = len(begun) >= _LONGEST or b"\n" in begun
                at, self._begun = len(data), begun
                continue
            at += found.end() - len(self._begun)
            self._begun = b""
            self._left, self._awaited = int(found[0], 16), _END
            self._lost = self._left == 0  # the last one: what follows is a trailer


# A server may send any number of interim responses (RFC 9110, section 15.2). One `102 Processing` a second stays below this
# for 15 minutes, and no request may take longer by default.
MAX_HEADS = 1000
_SWITCHES, _FINAL = 101, 200
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_NO_CAUSE = Exception()
_SEAM = 2  # bytes of that, which may have come with the read before

# Passes of the event loop that a connection takes which is there already: its socket, the tasks that wait for it, the protocol.
CONNECT_PATIENCE = 20

Head = tuple[RawResponseMessage, StreamReader]


class _Pumping:
    """What is pumped where, until it is over."""

    def __init__(self, take: Take, body: StreamReader, over: "asyncio.Future[None]") -> None:
        self.take, self.body, self.over = take, body, over
        self.is_busy = False
        self.error: BaseException | None = None


class TooManyHeads(HttpProcessingError):
    """The server sent more than `MAX_HEADS` interim responses to one request."""


class BoundedHandler(ResponseHandler):
    """Closes the connection after `MAX_HEADS` heads for one request, and keeps none that nobody reads. A body whose framing
    breaks ends with an error for its reader.

    aiohttp reads interim responses without a limit. uvloop gives it up to 2 MB before anything else in the event loop runs:
    80,000 heads, which take a second of CPU. No timer fires in that time, so no deadline holds.

    aiohttp (3.14) tells a framing error to those who wait for a head, and to nobody who reads a body: that reader waits
    for ever. If head and error come in one read, it drops the head too. So each head goes to its parser alone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._heads = 0  # since the last request on this connection
        self._is_answered = False
        self._seam = b""  # the last bytes of the read before, which may begin the end of a head
        self._body: StreamReader | None = None  # of the answer
        self.asked_s = 0.0  # when the last request began, by the clock of the event loop
        self.is_streamed = False  # its answer came in pieces, without a length
        self._coding: ChunkedCoding | None = None  # of the answer's body; None where it has another
        self._pumping: _Pumping | None = None
        self._take_whole: Take | None = None  # what is pumped to, while whole chunks may come

    def set_response_params(self, **params: object) -> None:
        """Called for each request that uses this connection."""
        self._heads, self._is_answered = 0, False
        self.asked_s, self.is_streamed = self._loop.time(), False
        self._seam, self._body, self._coding = b"", None, None
        super().set_response_params(**params)  # pyright: ignore[reportArgumentType] (passed on unchanged)

    def data_received(self, data: bytes) -> None:
        # The parser stands between two chunks, and whole ones are all that came: without them the parser stands there, too.
        if (take := self._take_whole) is not None:
            if chunk := single_chunk(data):
                try:
                    if not take(chunk, data):
                        self._end_pump(None)
                except BaseException as error:  # noqa: BLE001 (raised where `pump` is waited for)
                    self._end_pump(error)
                return
            data = self._take_leading(data, take)
            if not data:
                return
        if self._coding is not None:
            self._coding.follow(data)
        self._parse(data)
        self._pump_on()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._end_failed_body()
        self._pump_on()

    def _take_leading(self, data: bytes, take: Take) -> bytes:
        """The whole chunks that the bytes begin with are taken. The parser gets the rest."""
        at = 0
        try:
            for chunk, end in leading_chunks(data):
                begin, at = at, end
                if not take(chunk, data[begin:end]):
                    self._end_pump(None)
                    break
        except BaseException as error:  # noqa: BLE001 (as above)
            self._end_pump(error)
        return data[at:]

    async def pump(self, take: Take, *, body: StreamReader) -> None:
        """As `HttpReply.pump` says, for the current body."""
        pumping = self._pumping = _Pumping(take, body, self._loop.create_future())
        self._pump_on()  # what has come before
        try:
            await pumping.over
        finally:
            self._pumping = self._take_whole = None
        if pumping.error is not None:
            raise pumping.error

    def _pump_on(self) -> None:
        """All that has come goes on, and the next chunks may, without the parser.

        A body that is read below aiohttp's bound has its parser go on with what it holds, and so calls this from within.
        """
        pumping = self._pumping
        if pumping is None or pumping.over.done() or pumping.is_busy:
            return
        body = pumping.body
        pumping.is_busy = True
        try:
            while body.exception() is None and not body.is_eof():
                if not (chunk := body.read_nowait()):
                    # A parser that is paused holds bytes that come before the next ones.
                    is_between = self._coding is not None and self._coding.is_between_chunks
                    self._take_whole = pumping.take if is_between and not self._reading_paused else None
                    return
                if not pumping.take(chunk):
                    break
            self._end_pump(None)
        except BaseException as error:  # noqa: BLE001 (as above)
            self._end_pump(error)
        finally:
            pumping.is_busy = False

    def _end_pump(self, error: BaseException | None) -> None:
        """Nothing more is taken, in this pass of the event loop, too."""
        self._take_whole = None
        if self._pumping is not None and not self._pumping.over.done():  # or it was cancelled
            self._pumping.error = error  # a future takes no StopIteration
            self._pumping.over.set_result(None)

    def _parse(self, data: bytes) -> None:
        at = 0
        while not self._is_answered and self.exception() is None:
            seam = self._seam
            found = _END_OF_HEAD.search(seam + data) if not at else _END_OF_HEAD.search(data, at)
            if found is None:
                self._seam = (seam + data[at:])[-_SEAM:]
                break
            end = found.end() - (0 if at else len(seam))
            self._seam = b""
            super().data_received(data[at:end])
            at = end
            if self._coding is not None:
                self._coding.follow(data[at:])
        if self._heads > MAX_HEADS or self.exception() is not None:
            return  # the event loop may have read more before the connection was closed
        if at < len(data) or not data:
            super().data_received(data[at:] if at else data)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp (3.14) looks for more to parse whenever a reader takes a chunk. There is more only where it had paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _NO_CAUSE) -> None:
        """The connection has failed. What aiohttp cannot parse breaks the body too, even one that had its end: bytes behind a
        body's announced length show that the length is wrong."""
        if exc_cause is _NO_CAUSE:
            super().set_exception(exc)
        else:
            super().set_exception(exc, exc_cause)
        is_framing = isinstance(exc, HttpProcessingError) and not isinstance(exc, TooManyHeads)
        if self._body is not None and is_framing:
            self._body.set_exception(ClientPayloadError("the framing of the body is broken"))
            self._end_failed_body()

    def _end_failed_body(self) -> None:
        """aiohttp (3.14) tells a failure to a reader that waits. A reader that the end of a chunk woke, without a byte of it,
        would wait again: so the body ends here too, and the reader then finds the failure."""
        if self._body is not None and self._body.exception() is not None and not self._body.is_eof():
            self._body.feed_eof()

    def feed_data(self, data: Head, size: int = 0) -> None:
        self._heads += 1
        if self._heads > MAX_HEADS:
            self.set_exception(TooManyHeads(message=f"more than {MAX_HEADS} heads"))
            if self.transport is not None:
                self.transport.abort()
        elif self._is_answered:
            self.force_close()  # nobody asked for it, so the connection serves no further request
        else:
            self._is_answered = data[0].code >= _FINAL or data[0].code == _SWITCHES
            self.is_streamed = data[0].chunked
            if self._is_answered and data[1] is not EMPTY_PAYLOAD:
                self._body = data[1]
                self._coding = ChunkedCoding() if data[0].chunked and data[0].code >= _FINAL else None
            super().feed_data(data, size)


def held_bytes(body: StreamReader) -> bytes:
    """What came before the body failed. aiohttp (3.14) raises first, and has no public way to the bytes that it holds."""
    return body._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]


class BoundedConnector(TCPConnector):
    """Makes such connections, without a limit on their number. Keeps each for `keepalive_s` after its last request, unless the
    server closes it.

    llama.cpp's server announces `Keep-Alive` and closes each connection right behind the last byte of a stream. A request that
    takes the connection in that moment is lost: every third one, where the tools are quick (seen with the build of
    docs/live.md). So over plain HTTP, where a new connection costs a fifth of a millisecond and local servers are, the first
    streamed response decides: its connection is set aside, and once a later request has had its whole response, whether it is
    still open says what this server does. Over TLS, where a connection is dear, each is taken again.

    The timeout's `sock_connect` bounds all of it: name, TCP, TLS, proxy. aiohttp's own timers win over a connection that came up
    while the event loop was busy.
    """

    def __init__(self, *, keepalive_s: float) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_s)  # pyright: ignore[reportUnknownMemberType] (its own types)
        # aiohttp (3.14) has no public way to choose the class. This can go once aiohttp bounds interim responses itself.
        self._factory = functools.partial(BoundedHandler, asyncio.get_running_loop())
        self._aside: dict[ConnectionKey, tuple[BoundedHandler, float]] = {}  # and since when
        self._keeps: dict[ConnectionKey, bool] = {}  # what a server does with a connection behind a stream

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109 (aiohttp's own)
        within_s = timeout.sock_connect
        try:
            async with Watchdog(SystemClock(), total_s=within_s, patience=CONNECT_PATIENCE):
                return await super().connect(req, traces, ClientTimeout(total=None))
        except Overdue:
            raise ConnectionTimeoutError(f"no connection within {within_s} s") from None

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        """A response is over. aiohttp (3.14) has no public way to say what becomes of its connection."""
        if key.is_ssl or not isinstance(protocol, BoundedHandler) or not protocol.is_streamed:
            super()._release(key, protocol, should_close=should_close)
        elif should_close or protocol.should_close or key in self._keeps:
            super()._release(key, protocol, should_close=should_close or not self._keeps.get(key, False))
        elif key not in self._aside:
            # Still in use, as far as aiohttp knows: it closes it at the end.
            self._aside[key] = (protocol, self._loop.time())
        else:
            first, since_s = self._aside[key]
            if protocol.asked_s > since_s:
                del self._aside[key]
                self._keeps[key] = first.is_connected()
                super()._release(key, first, should_close=not self._keeps[key])
            super()._release(key, protocol, should_close=not self._keeps.get(key, False))
