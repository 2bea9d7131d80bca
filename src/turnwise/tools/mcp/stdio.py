"""The messages of a server that speaks over its standard input and output, one JSON line each.

The package `mcp` has such a transport, but reads a line of any length, and starts the process itself: ours runs in a sandbox.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from turnwise.base.clock import Clock
from turnwise.tools.mcp.message_streams import Deliver, message_streams
from turnwise.tools.mcp.processes import ServerProcess
from turnwise.tools.mcp.protocol_repair import message_in
from turnwise.tools.mcp.server_bounds import LineCutter, McpFailure, UnaskedMeter


@asynccontextmanager
async def stdio_streams(
    process: ServerProcess, *, clock: Clock, gone: Callable[[str], object]
) -> AsyncGenerator[TransportStreams]:
    """Streams of messages over the pipes of the process, which is not ended. `gone` is told why nothing comes any more."""
    waiting = _Waiting()

    async def receive(deliver: Deliver) -> None:
        cutter, meter = LineCutter(), UnaskedMeter(clock)
        why = ""
        try:
            while piece := await process.read():
                for line in cutter.take(piece):
                    message = message_in(line)
                    if not waiting.take(message):
                        meter.count(len(line))
                    if message is not None:
                        await deliver(message)
            await process.exits_soon()
        except McpFailure as error:
            why = str(error)
        finally:
            gone(why or process.why_ended())

    async def send(message: SessionMessage, line: bytes) -> None:
        waiting.sent(message)
        await process.write(line + b"\n")

    async with message_streams(receive, send=send) as streams:
        yield streams


class _Waiting:
    """The requests that wait for an answer, by their ids. An answer to nothing is one more message that nobody asked for."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def sent(self, message: SessionMessage) -> None:
        if isinstance(message.message, JSONRPCRequest):
            self._ids.add(str(message.message.id))

    def take(self, message: SessionMessage | None) -> bool:
        """Whether it is the answer to one of them, which waits no longer then."""
        if message is None or not isinstance(message.message, JSONRPCResponse | JSONRPCError):
            return False
        id = str(message.message.id)
        was_waiting = id in self._ids
        self._ids.discard(id)
        return was_waiting
