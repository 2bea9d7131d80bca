"""Connections that end when a server sends heads without end. Imported with the first request."""

import asyncio
import functools

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader

# A server may send any number of interim responses (RFC 9110, section 15.2). One `102 Processing` a second stays below this
# for 15 minutes, and no request may take longer by default.
MAX_HEADS = 1000
_SWITCHES, _FINAL = 101, 200

Head = tuple[RawResponseMessage, StreamReader]


class TooManyHeads(HttpProcessingError):
    """The server sent more than `MAX_HEADS` interim responses to one request."""


class BoundedHandler(ResponseHandler):
    """Closes the connection after `MAX_HEADS` heads for one request, and keeps none that nobody reads.

    aiohttp reads interim responses without a limit. uvloop gives it up to 2 MB before anything else in the event loop runs:
    80,000 heads, which take a second of CPU. No timer fires in that time, so no deadline holds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._heads = 0  # since the last request on this connection
        self._is_answered = False

    def set_response_params(self, **params: object) -> None:
        """Called for each request that uses this connection."""
        self._heads, self._is_answered = 0, False
        super().set_response_params(**params)  # pyright: ignore[reportArgumentType] (passed on unchanged)

    def data_received(self, data: bytes) -> None:
        if self._heads <= MAX_HEADS:  # the event loop may have read more before the connection was closed
            super().data_received(data)

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
            super().feed_data(data, size)


class BoundedConnector(TCPConnector):
    """Makes such connections, without a limit on their number. Keeps each for `keepalive_s` after its last request."""

    def __init__(self, *, keepalive_s: float) -> None:
        super().__init__(limit=0, keepalive_timeout=keepalive_s)  # pyright: ignore[reportUnknownMemberType] (its own types)
        # aiohttp (3.14) has no public way to choose the class. This can go once aiohttp bounds interim responses itself.
        self._factory = functools.partial(BoundedHandler, asyncio.get_running_loop())
