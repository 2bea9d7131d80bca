"""The messages of a server elsewhere, over streamable HTTP. Bodies have a size, and nothing is unpacked."""

import contextvars
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self, cast

import anyio
import httpx2
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, ErrorData, JSONRPCError

from turnwise.base.clock import Clock
from turnwise.settings.mcp_files import ServerAddress
from turnwise.tools.mcp.protocol_repair import mended
from turnwise.tools.mcp.server_bounds import MAX_MESSAGE_BYTES, McpFailure, UnaskedMeter

FORGOTTEN = object()  # the data of an error that stands for: the server does not know the session, and did nothing
_CONNECT_S = 10.0
_FORMER_S, _FORMER_BYTES = 2.0, 4096
_FORMER = re.compile(rb"^event: ?endpoint\r?$", re.MULTILINE)
_LINES = 10  # of an event, at most, as far as the bound on messages goes


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


class _MeteredBody(httpx2.AsyncByteStream):
    """A stream of events has no end. What it carries in a while is bounded, comments too."""

    def __init__(self, body: httpx2.AsyncByteStream, *, meter: UnaskedMeter, gone: Callable[[str], object]) -> None:
        self._body, self._meter, self._gone = body, meter, gone

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            try:
                self._meter.count(len(piece), messages=_messages_in(piece))
            except McpFailure as flood:
                self._gone(str(flood))
                raise httpx2.StreamError(str(flood)) from None
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


def _messages_in(piece: bytes) -> int:
    """How many messages may have ended in it. A line ends with a line feed, a carriage return or both."""
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return max(piece.count(b"\n\n"), piece.count(b"\n") // _LINES)


class _Received:
    """The messages that came, mended. Requests whose session is `forgotten` have an error that no server can send."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], *, forgotten: set[object]) -> None:
        self._inner, self._forgotten = inner, forgotten

    @property
    def last_context(self) -> contextvars.Context | None:
        """Of whoever sent it: the library looks for it."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next one, as `ReadStream` has it."""
        return self._read(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._read(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)

    def _read(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, Exception):
            return item
        message = item.message
        if isinstance(message, JSONRPCError) and message.id in self._forgotten:
            error = ErrorData(code=CONNECTION_CLOSED, message="the session is not known", data=FORGOTTEN)
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
        return mended(item)


async def _forgotten_request(response: httpx2.Response) -> int | str | None:
    """The id of the request that was refused because the server does not know its session; None for any other answer.

    The protocol has status 404 for it; servers on older libraries answer 400, and say so. A method that a server does not know
    may be 404, too: then its error has the code for that.
    """
    request = response.request
    if request.method != "POST" or MCP_SESSION_ID not in request.headers or response.status_code not in (400, 404):
        return None
    sent = json.loads(request.content)
    if "method" not in sent or "id" not in sent:
        return None
    code, said = await _error_of(response)
    names_it = (response.status_code == 404 and code != METHOD_NOT_FOUND) or "session" in said.casefold()
    return cast("int | str", sent["id"]) if names_it else None


async def _error_of(response: httpx2.Response) -> tuple[object, str]:
    """Code and text of an error; the whole body where it is no JSON of the protocol."""
    if "event-stream" in response.headers.get("content-type", ""):
        return None, ""
    try:
        body = (await response.aread()).decode("utf-8", "replace")
    except (httpx2.HTTPError, httpx2.StreamError):
        return None, ""
    try:
        error = json.loads(body)["error"]
        return error["code"], str(error["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, body


@asynccontextmanager
async def http_streams(
    address: ServerAddress, *, clock: Clock, gone: Callable[[str], object], refused: Callable[[int], object]
) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over HTTP. What waits for an answer has a deadline of its own, so reading has none here.

    `gone` is told why nothing comes any more, `refused` the status of each answer that is none. No redirect is followed: the
    headers are for this address.
    """
    meter = UnaskedMeter(clock)
    forgotten: set[object] = set()

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            gone("it compressed its answer, though it was asked not to")
            raise httpx2.StreamError("a compressed answer")
        if response.status_code >= 300:
            refused(response.status_code)
        body = response.stream
        if not isinstance(body, httpx2.AsyncByteStream):
            return
        if "event-stream" in response.headers.get("content-type", ""):
            response.stream = _MeteredBody(body, meter=meter, gone=gone)
        else:
            response.stream = _BoundedBody(body)
        if (id := await _forgotten_request(response)) is not None:
            forgotten.add(id)

    async with (
        httpx2.AsyncClient(
            headers={**address.headers, "accept-encoding": "identity"},
            timeout=httpx2.Timeout(_CONNECT_S, read=None),
            event_hooks={"response": [bound]},
            follow_redirects=False,
        ) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
            received,
            sent,
        ),
    ):
        yield _Received(received, forgotten=forgotten), sent


async def speaks_former_sse(address: ServerAddress) -> bool:
    """Whether a stream of events begins there with the address to post to: the transport of 2024-11-05, replaced in 2025."""
    try:
        async with (
            httpx2.AsyncClient(headers=dict(address.headers), timeout=_FORMER_S, follow_redirects=False) as client,
            client.stream("GET", address.url, headers={"accept": "text/event-stream"}) as response,
        ):
            if "event-stream" not in response.headers.get("content-type", ""):
                return False
            begun = b""
            with anyio.move_on_after(_FORMER_S):
                async for piece in response.aiter_bytes():
                    begun += piece
                    if b"\n\n" in begun.replace(b"\r\n", b"\n") or len(begun) > _FORMER_BYTES:
                        break
            return _FORMER.search(begun) is not None
    except (httpx2.HTTPError, httpx2.StreamError, OSError):
        return False
