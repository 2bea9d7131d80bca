"""Which requests of a client go in."""

import asyncio
import json
import socket

import pytest

from turnwise.base.clock import SystemClock
from turnwise.base.own_pipes import MAX_OPEN_REQUESTS, LinePipe
from turnwise.editors.mcp.service import client_streams
from waits import HANG_S


def line(method: str, **more: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **more}).encode() + b"\n"


@pytest.mark.promise("safe:bounded")
async def test_only_so_many_requests_are_open_until_one_is_cancelled() -> None:
    """One more than those is refused with its id; a cancel of what is no request makes no room, and that of an open one does."""
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    answers, asks = await asyncio.open_connection(sock=there)
    pipe = LinePipe(reader, writer, clock=SystemClock(), whose="the client")
    async with asyncio.timeout(HANG_S), client_streams(pipe) as (incoming, _):
        for id in range(MAX_OPEN_REQUESTS):
            asks.write(line("tools/list", id=id))
            await incoming.receive()
        for cancelled, is_refused in ((None, True), (MAX_OPEN_REQUESTS, True), (5, False)):
            asks.write(line("notifications/cancelled", params={"requestId": cancelled}))
            await incoming.receive()
            asks.write(line("tools/list", id="more"))
            if is_refused:
                refused = json.loads(await answers.readline())
                assert refused["id"] == "more" and "64 requests are open" in refused["error"]["message"]
            else:
                message = await incoming.receive()
                assert getattr(getattr(message, "message", None), "id", None) == "more"
    await pipe.close()
    asks.close()
    await asks.wait_closed()
