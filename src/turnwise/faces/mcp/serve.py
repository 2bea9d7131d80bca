"""Serving one client until it closes its end, or the process is told to end."""

from pathlib import Path

import mcp
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from turnwise.drivers.own_pipes import LinePipe, ended_by_signals, library_is_silent, own_streams
from turnwise.faces.mcp.runs import ServeMeans
from turnwise.faces.mcp.service import ClientService
from turnwise.faces.mcp.streams import client_streams

STARTED = "an MCP client starts `turnwise mcp serve`"


async def serve(means: ServeMeans) -> None:
    """On this process's own pipes. Raises CallerError where they are none."""
    reader, writer = await own_streams(started=STARTED)
    pipe = LinePipe(reader, writer, clock=means.clock, whose="the client")
    with ended_by_signals(pipe.end):
        await serve_pipe(pipe, means=means)


async def serve_pipe(pipe: LinePipe, *, means: ServeMeans) -> None:
    """Until the pipe ends; then open runs are cancelled, and have a moment to end in."""
    async with client_streams(pipe) as (incoming, outgoing):
        await serve_streams(incoming, outgoing, means=means)
    await pipe.close()


async def serve_streams(
    incoming: ReadStream[SessionMessage | Exception], outgoing: WriteStream[SessionMessage], *, means: ServeMeans
) -> None:
    """Until the first stream ends."""
    service = ClientService(means)
    with library_is_silent(str(Path(mcp.__file__).parent)):
        try:
            options = service.server.create_initialization_options()
            await service.server.run(incoming, outgoing, options)
        finally:
            await service.close()
