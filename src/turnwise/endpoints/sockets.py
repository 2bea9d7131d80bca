"""Requests that go over WebSockets, each as one HTTP request to those above: its reply is a stream of server-sent events, one for
each frame, so that everything that reads streams reads this one.

A connection serves one request at a time, and is kept for the next one: the one that goes on from what its server knows, else one
of the same session. While nobody uses it, a task reads it, answers pings, and closes it after a while. Imported with the first
such request.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Self

import aiohttp
from aiohttp import ClientWebSocketResponse, WSMsgType

from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.errors import ProviderFault
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.family import SocketRequest, SocketSign, SocketWire
from turnwise.wire.profiles import DEFAULT_LIMITS

Socket = ClientWebSocketResponse[Literal[False]]
Connect = Callable[[HttpRequest, SocketWire], Awaitable[Socket]]
"""Opens a connection. Raises ProviderFault; or WSServerHandshakeError where the server answers, but not with a WebSocket."""

IDLE_S = 300.0  # a step's tools may take minutes; servers end a silent connection by pings that are not answered
OLDEST_S = 55 * 60.0  # OpenAI ends a connection after 60 minutes, and a response may take minutes
CLOSE_S = 0.5  # for the server's own word at the end
MOST_IDLE = 64  # connections that nobody uses
HEARTBEAT_S = 30.0  # a connection whose server is gone is known after one and a half of it
TOO_BIG = aiohttp.WSCloseCode.MESSAGE_TOO_BIG
FRAME_BYTES = DEFAULT_LIMITS.line_bytes
# A header of this name is another one in each request, and says nothing of who asks.
_OF_ONE_REQUEST = frozenset(("traceparent", "tracestate"))


class _Line:
    """One connection. `task` reads it while nobody uses it."""

    def __init__(self, socket: Socket, *, place: object, wire: SocketWire) -> None:
        self.socket, self.place = socket, place
        self.context = wire.open_context()
        self.session = b""
        self.opened_s = asyncio.get_running_loop().time()
        self.task: asyncio.Task[None] | None = None

    async def watch(self, *, idle_s: float, forget: Callable[["_Line"], None]) -> None:
        """Read until the server ends it, an error comes, or it was idle for too long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle_s):
                while (come := await self.socket.receive()).type is WSMsgType.TEXT:
                    if self.context.saw(_bytes_of(come.data)).is_end:
                        break
        forget(self)
        await self.close()

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.socket.close()


class Sockets:
    """The WebSockets of one transport. Belongs to one event loop."""

    def __init__(self, connect: Connect, *, idle_s: float = IDLE_S, oldest_s: float = OLDEST_S) -> None:
        self._connect = connect
        self._idle_s, self._oldest_s = idle_s, oldest_s
        self._idle: list[_Line] = []  # the one that was used last is at the end
        self._all: set[_Line] = set()

    async def close(self) -> None:
        """Every connection, those in use as well."""
        lines, self._idle = [*self._all], []
        tasks = [line.task for line in lines if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*[self.drop(line) for line in lines])

    async def take(
        self, request: HttpRequest, asked: SocketRequest, *, wire: SocketWire, is_new: bool = False
    ) -> tuple[_Line, bytes]:
        """A connection for the request, and the message that asks for it there. `is_new`: the connection has to be."""
        place = (request.url, frozenset(one for one in request.headers if one[0] not in _OF_ONE_REQUEST))
        oldest_s = asyncio.get_running_loop().time() - self._oldest_s
        here = [] if is_new else [one for one in reversed(self._idle) if one.place == place and one.opened_s > oldest_s]
        for line in here:
            if (message := line.context.next_message(asked)) is not None and await self._wake(line):
                return line, message
        for line in here:
            if line.session == asked.session and await self._wake(line):
                return line, line.context.message(asked)
        return await self._open(request, asked, wire=wire, place=place)

    async def _open(
        self, request: HttpRequest, asked: SocketRequest, *, wire: SocketWire, place: object
    ) -> tuple[_Line, bytes]:
        while len(self._idle) >= MOST_IDLE and await self._wake(oldest := self._idle[0]):
            await self.drop(oldest)
        line = _Line(await self._connect(request, wire), place=place, wire=wire)
        self._all.add(line)
        return line, line.context.message(asked)

    async def _wake(self, line: _Line) -> bool:
        """Whether it is still there, for this request alone."""
        if line not in self._idle:
            return False
        self._idle.remove(line)
        task, line.task = line.task, None
        if task is not None:
            task.cancel()
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                await self.drop(line)
                raise
        if line.socket.closed:
            self._all.discard(line)
        return not line.socket.closed

    def keep(self, line: _Line) -> None:
        """For the next request."""
        self._idle.append(line)
        line.task = asyncio.create_task(line.watch(idle_s=self._idle_s, forget=self._forget))

    async def drop(self, line: _Line) -> None:
        self._forget(line)
        await line.close()

    def _forget(self, line: _Line) -> None:
        self._all.discard(line)
        if line in self._idle:
            self._idle.remove(line)


class SocketSending:
    """One request: entered, it is its reply; iterated, the events of that."""

    def __init__(
        self, request: HttpRequest, *, asked: SocketRequest, wire: SocketWire, sockets: Sockets, proxy: str | None
    ) -> None:
        self._request, self._asked, self._wire, self._sockets = request, asked, wire, sockets
        self._line: _Line | None = None
        self._first: bytes | None = None
        self._sign = SocketSign()  # of the last event
        self._is_refused = False  # an error came in place of a response
        self.has_left = False
        self.proxy = proxy

    async def __aenter__(self) -> HttpReply:
        """The first event has come. An error in its place is the reply that HTTP would have had; what the server has not done
        because of its connection is asked for on another one, whole."""
        try:
            self._first = await self._ask(is_new=False)
            if self._sign.asks_anew:
                await self._leave()
                self._first = await self._ask(is_new=True)
        except aiohttp.WSServerHandshakeError as error:
            return _refused(error, host=self._request.host)
        except BaseException:
            await self._leave()
            raise
        if self._sign.status:
            self._is_refused = True
            first, self._first = self._first, None
            headers = {**self._sign.headers, "content-type": "application/json"}
            return HttpReply(status=self._sign.status, headers=headers, chunks=_once(first))
        return HttpReply(status=200, headers={"content-type": "text/event-stream"}, chunks=self)

    async def _ask(self, *, is_new: bool) -> bytes:
        line, message = await self._sockets.take(self._request, self._asked, wire=self._wire, is_new=is_new)
        self._line, self.has_left = line, True
        line.session = self._asked.session
        line.context.begin(self._asked)
        try:
            await line.socket.send_frame(message, WSMsgType.TEXT)
        except (aiohttp.ClientError, OSError):
            raise ProviderFault(self._broken()) from None
        return await self._next(line)

    async def _next(self, line: _Line) -> bytes:
        come = await line.socket.receive()
        if come.type is not WSMsgType.TEXT:
            raise ProviderFault(self._broken(come.type, come.data))
        event = _bytes_of(come.data)
        self._sign = line.context.saw(event)
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        line, event = self._line, self._first
        self._first = None
        if event is None:
            if line is None or self._sign.is_end:
                raise StopAsyncIteration
            event = await self._next(line)
        # A line break in JSON is white space between its tokens, but ends a line of the stream.
        return b"data: " + event.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n"

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def _leave(self) -> None:
        """A connection that has answered is kept. One that was left in the middle is closed: that ends the response, too. So is
        one with an error within a response: the end of that may follow, and must not begin the next one."""
        line, self._line = self._line, None
        if line is None:
            return
        is_broken = self._sign.asks_anew or (self._sign.is_error and not self._is_refused)
        if self._sign.is_end and not (is_broken or line.socket.closed):
            self._sockets.keep(line)
        else:
            await self._sockets.drop(line)

    def _broken(self, kind: WSMsgType = WSMsgType.CLOSED, found: object = None) -> Fault:
        """What came in place of an event."""
        host = self._request.host
        match kind:
            case WSMsgType.BINARY:
                return Fault(kind=FaultKind.PROTOCOL, message=f"`{host}` sent a binary frame, where its API sends text")
            case WSMsgType.ERROR if getattr(found, "code", 0) == TOO_BIG:
                return Fault(
                    kind=FaultKind.TOO_LARGE, message=f"`{host}` sent a frame of more than {FRAME_BYTES:,} bytes"
                )
            case WSMsgType.ERROR:
                return Fault(kind=FaultKind.PROTOCOL, message=f"`{host}` sent what is no WebSocket frame")
            case _:
                code = None if self._line is None else self._line.socket.close_code
                said = f"the WebSocket to `{host}` was closed before the response was whole (code {code or 1006})"
                return Fault(kind=FaultKind.DISCONNECTED, message=said)


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _bytes_of(text: object) -> bytes:
    """Of a text frame, which aiohttp does not decode for us."""
    return text if isinstance(text, bytes) else b""


def _refused(error: aiohttp.WSServerHandshakeError, *, host: str) -> HttpReply:
    """The reply in place of a WebSocket. aiohttp keeps its status and head, not its body."""
    said = (
        f"`{host}` answered HTTP {error.status} where a WebSocket was asked for: if it has none, leave `websocket` out"
    )
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    body = json.dumps({"error": {"message": said}}).encode()
    return HttpReply(status=502 if error.status < 300 else error.status, headers=headers, chunks=_once(body))


async def forbid_redirect(session: object, context: object, found: aiohttp.TraceRequestRedirectParams) -> None:
    """A redirect would carry the key to a stranger."""
    reply = found.response
    raise aiohttp.WSServerHandshakeError(reply.request_info, (), status=reply.status, headers=reply.headers)
