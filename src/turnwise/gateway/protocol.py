"""HTTP/1.1 as uvicorn reads it with httptools, with the bounds that both lack.

uvicorn has one deadline, between two requests. httptools keeps a header, a trailer and the extension of a chunk in memory until
its line ends, however long it is. At a refusal here there is no application yet, so the error is written by hand.

This is the only module that uses private parts of uvicorn; `tests/endpoints/test_private_parts.py` names them.
"""

import asyncio
from collections.abc import Collection
from typing import Any, ClassVar, Protocol

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import CloseCode, Frame

from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.doors import (
    WRITER,
    DoorRefusal,
    PieceWriter,
    cors_headers,
    encode_refusal,
    family_of,
    request_id,
    values_of,
)
from turnwise.wire.profiles import FamilyName

MOST_PIPELINED = 16  # requests behind the current one; clients of these APIs send none
LINGER_S = 2.0  # as in the application
MOST_PINGS = 1000  # of a client, in the time between two of ours
MOST_FRAMES = 4096  # of one message; they may be empty
SMALL_PIECE = 64 * 1024  # how much of a body may come without any content: the ends of chunks, a trailer


class RefusalNote(Protocol):
    """Called with each refusal here, with the path as far as it was read, and the answer's id."""

    def __call__(self, refusal: DoorRefusal, *, path: str, id: str, family: FamilyName) -> None: ...


def _tell_nobody(refusal: DoorRefusal, *, path: str, id: str, family: FamilyName) -> None:
    return None


class GatewayProtocol(HttpToolsProtocol):
    """One connection. Over a bound it answers once, in the client's family if the path is known, and closes. With
    `makes_room` the oldest one without a whole request gives way to a new one: slow clients keep nobody out."""

    bounds = Bounds()
    makes_room = False
    origins: ClassVar[Collection[str]] = frozenset()
    refused: ClassVar[RefusalNote] = staticmethod(_tell_nobody)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self._is_refused = False
        self._in_head = True  # or between two requests
        self._head_bytes = 0
        self._trailer_bytes = 0
        self._bytes_without_content = 0
        self._head_deadline: asyncio.TimerHandle | None = None
        self._unread_deadline: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._pieces = PieceWriter()
        self._began_s = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._pieces.put = transport.write
        if len(self.connections) > self.bounds.connections and not self._has_made_room():
            self._refuse(
                DoorRefusal(
                    reason="busy",
                    status=503,
                    message="the gateway has too many connections; try again",
                    retry_after_s=1,
                )
            )
            return
        self._await_head()

    def _has_made_room(self) -> bool:
        waiting = [
            one for one in self.connections if isinstance(one, GatewayProtocol) and one is not self and one._is_unasked
        ]
        if not self.makes_room or not waiting:
            return False
        oldest = min(waiting, key=lambda one: one._began_s)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    @property
    def _is_unasked(self) -> bool:
        """Whether no request of it has come whole that is not answered yet."""
        is_answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        return self._is_refused or not self._in_head or is_answered

    def connection_lost(self, exc: Exception | None) -> None:
        self._pieces.put = None
        for timer in (self._head_deadline, self._unread_deadline, self._linger):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._in_head:
            self._head_bytes += len(data)
        self._bytes_without_content += len(data)
        super().data_received(data)
        if self._is_refused:
            return
        if self._in_head and self._head_bytes > self.bounds.head_bytes:
            self._refuse_head()
        elif not self._in_head and self._bytes_without_content > SMALL_PIECE:
            self._refuse(
                DoorRefusal(
                    reason="body",
                    status=400,
                    message="the body's chunks have too much beside their content",
                    code="bad_body",
                )
            )
        elif self._in_head and self._head_deadline is None and (self.cycle is None or self.cycle.response_complete):  # pyright: ignore[reportUnnecessaryComparison]
            self._await_head()  # only blank lines

    def _should_upgrade(self) -> bool:
        """Whether this request opens a WebSocket. Behind an answer that is under way it cannot."""
        is_answering = self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        is_ready = self.scope["method"] == "GET" and not self._is_refused and not is_answering
        return is_ready and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        self._is_refused = True  # from here on nothing is HTTP any more
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope.setdefault("state", {})[WRITER] = self._pieces
        self._trailer_bytes = 0
        if self._head_deadline is None:
            self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bytes_without_content = 0
        if self._in_head:
            super().on_header(name, value)
            return
        # A trailer: none of it counts, least of all as a header (RFC 9110 section 6.5.1).
        self._trailer_bytes += len(name) + len(value)
        if self._trailer_bytes > self.bounds.head_bytes:
            self._refuse_head()

    def on_headers_complete(self) -> None:
        if self._is_refused:
            return
        self._in_head = False
        self._head_bytes = 0
        self._bytes_without_content = 0
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None
        assert self.parser is not None  # it is parsing
        size = len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        if size > self.bounds.head_bytes:
            self._refuse_head()
        elif self.parser.get_http_version() not in ("1.0", "1.1"):
            self._refuse(
                DoorRefusal(reason="http", status=400, message="the gateway speaks HTTP 1.1 and 1.0", code="bad_http")
            )
        elif not self.url.startswith(b"/"):
            # An address in the request line would be another host than the one that the doors check.
            self._refuse(
                DoorRefusal(
                    reason="http",
                    status=400,
                    message="the request line must have a path, not an address",
                    code="bad_target",
                )
            )
        elif len(self.pipeline) >= MOST_PIPELINED:
            self._refuse(
                DoorRefusal(
                    reason="http", status=400, message="too many requests before the first answer", code="pipelined"
                )
            )
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._bytes_without_content = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        if not self._is_refused:
            super().on_message_complete()
        assert self.parser is not None  # it is parsing
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self.headers = []  # a refusal before the next request begins does not belong to this one

    def send_400_response(self, msg: str) -> None:
        """For input that is not HTTP: two lengths, a length beside chunks, a line break within a header ..."""
        self._refuse(DoorRefusal(reason="http", status=400, message="this is no valid HTTP request", code="bad_http"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._pieces.put = None
        self._unread_deadline = self.loop.call_later(self.bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._pieces.put = self.transport.write
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None

    def _await_head(self) -> None:
        self._head_deadline = self.loop.call_later(self.bounds.head_s, self._refuse_late_head)

    def _refuse_late_head(self) -> None:
        if self._head_bytes == 0:  # the client said nothing, so it expects no answer
            self.transport.close()
            return
        message = f"the headers did not arrive within {self.bounds.head_s:g} s"
        self._refuse(DoorRefusal(reason="late", status=408, message=message, code="request_timeout"))

    def _refuse_head(self) -> None:
        message = f"the headers have more than {self.bounds.head_bytes:,} bytes"
        self._refuse(DoorRefusal(reason="head", status=431, message=message, code="headers_too_large"))

    def _refuse(self, refusal: DoorRefusal) -> None:
        """Answer, unless an answer is being sent: nothing may be written into that, so the connection breaks off."""
        if self._is_refused:
            return
        self._is_refused = True
        is_answering = self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        if is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if is_answering and self.cycle.response_started:
            self.transport.abort()
            return
        path = self.url.partition(b"?")[0].decode("latin-1")
        read = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers]
        family = family_of(path, header_names={name for name, _ in read})
        id = request_id(read)
        self.refused(refusal, path=path, id=id, family=family)
        headers, body = encode_refusal(refusal, family=family)
        origins = values_of(read, "origin")
        origin = origins[0] if len(origins) == 1 and origins[0] in self.origins else None
        every = (*headers, ("x-request-id", id), *cors_headers(origin), ("connection", "close"))
        lines = [f"{name}: {value}\r\n".encode("latin-1") for name, value in every]
        self.transport.write(b"".join([STATUS_LINE[refusal.status], *lines, b"\r\n", body]))
        # Read and discard for a moment what the client still sends: closing at once would take the answer away, too.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._linger = self.loop.call_later(LINGER_S, self.transport.abort)


class GatewaySocket(WebSocketsSansIOProtocol):
    """One WebSocket, from its handshake on, with the bounds of the protocol of HTTP that read it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config.http, type) and issubclass(config.http, GatewayProtocol)
        self.bounds = config.http.bounds
        self.conn.max_message_size = self.bounds.body_bytes
        self._pings = 0  # since our own last one
        self._is_deaf = False
        self._unread_deadline: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        super().data_received(data)
        if not self.handshake_initiated:  # the library cannot read the head
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_deadline = self.loop.call_later(self.bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None

    def handle_ping(self) -> None:
        """A client that does not read gets no answer: the answers would grow here."""
        self._pings += 1
        if self._pings > MOST_PINGS:
            self._fail(CloseCode.POLICY_VIOLATION, "too many pings")
        elif self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def send_keepalive_ping(self) -> None:
        self._pings = 0
        super().send_keepalive_ping()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) < MOST_FRAMES:
            super().handle_cont(event)
        else:
            self._fail(CloseCode.MESSAGE_TOO_BIG, "the message comes in too many frames")

    def _fail(self, code: CloseCode, reason: str) -> None:
        if not self._is_deaf:
            self.conn.fail(code, reason)
            self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        """Close it, and read on for a moment: else the client's system throws the reason away."""
        assert self.conn.close_sent is not None
        self._is_deaf = self.close_sent = True
        said = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": said.code, "reason": said.reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        """The application ends an open one, once the running answer has ended."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()


def bounded_protocol(
    bounds: Bounds, *, origins: Collection[str], refused: RefusalNote, makes_room: bool = False
) -> type[GatewayProtocol]:
    """The protocol with these bounds. uvicorn makes one for each connection."""
    own = {"bounds": bounds, "origins": origins, "refused": staticmethod(refused), "makes_room": makes_room}
    return type("BoundedGatewayProtocol", (GatewayProtocol,), own)
