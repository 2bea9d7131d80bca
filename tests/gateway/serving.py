"""A gateway on loopback, served by uvicorn in the test's own loop, and what talks to it byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from turnwise.gateway.app import DoorRules, GatewayApp
from turnwise.gateway.client_bounds import KeyRing
from turnwise.gateway.doors import ClientCall, ClientGone, GatewayService, Outlet, PieceWriter
from turnwise.gateway.serve import BoundSocket, serve
from waits import HANG_S

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
PIECE = b"x" * 65_536


class Echo:
    """A service that answers with the call that it got. The body's `do` asks for something else."""

    def __init__(self) -> None:
        self.calls: list[ClientCall] = []
        self.ready = True
        self.full = False
        self.waiting = asyncio.Event()  # a call with `"do": "wait"` has begun its answer
        self.go_on = asyncio.Event()
        self.ended: list[str] = []
        self.told_gone = asyncio.Event()
        self.sent_pieces = 0
        self.reloads: list[bool] = []
        self.refusals: list[tuple[str, str, str, int]] = []
        self.ways: list[PieceWriter | None] = []  # for the pieces of each answer that has begun

    async def answer(self, call: ClientCall, outlet: Outlet) -> None:
        self.calls.append(call)
        try:
            asked = msgspec.json.decode(call.body, type=dict[str, Any])
        except msgspec.DecodeError:
            asked = {}
        try:
            await self._do(str(asked.get("do")), call, outlet)
        except ClientGone:
            self.ended.append("client gone")
            self.told_gone.set()
            raise
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def _do(self, what: str, call: ClientCall, outlet: Outlet) -> None:
        match what:
            case "fail":
                raise ValueError("sk-secret-in-a-bug")
            case "nothing":
                return
            case "fail late":
                await outlet.start(200, [("content-type", "text/event-stream")])
                await outlet.send(b"data: begun\n\n")
                raise ValueError("sk-secret-in-a-bug")
            case "wait":
                await outlet.start(200, [("content-type", "text/event-stream")])
                await outlet.send(b"data: begun\n\n")
                self.ways.append(outlet.direct)
                self.waiting.set()
                await self.go_on.wait()
                await outlet.send(b"data: ended\n\n")
            case "wait for the client to go":
                self.waiting.set()
                await outlet.gone()
                await outlet.send(b"too late")
            case "flood":
                await outlet.start(200, [("content-type", "text/event-stream")])
                while True:
                    self.waiting.set()
                    await outlet.send(PIECE)
                    self.sent_pieces += 1
            case _:
                body = msgspec.json.encode(seen(call))
                await outlet.start(200, [("content-type", "application/json"), ("content-length", str(len(body)))])
                self.ways.append(outlet.direct)
                await outlet.send(body)

    async def models(self, call: ClientCall) -> bytes | None:
        told = {"family": call.family, "model": call.model}
        return None if call.model == "unknown" else msgspec.json.encode(told)

    def is_ready(self) -> bool:
        return self.ready

    def is_full(self) -> bool:
        return self.full

    def stop_keeping(self) -> None:
        return None

    def refused(self, reason: str, *, family: str, kind: str, status: int) -> None:
        self.refusals.append((reason, family, kind, status))

    def renewed(self, config: object) -> "Echo":
        return self

    def reloaded(self, *, is_good: bool) -> None:
        self.reloads.append(is_good)

    def metrics(self) -> bytes:
        return b"turnwise_requests_total 1\n"


def seen(call: ClientCall) -> dict[str, Any]:
    """What of a call a client of these tests compares."""
    fields = ("path", "query", "headers", "family", "kind", "model", "streams", "client", "client_key")
    return {**{name: getattr(call, name) for name in fields}, "bytes": len(call.body)}


class Gateway:
    def __init__(self, listening: BoundSocket, service: Echo) -> None:
        self.service = service
        self.url = listening.url
        self.port = listening.own.port

    async def said(self, *pieces: bytes, ends: bool = False) -> bytes:
        """All that comes back for these bytes, until the gateway closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if ends:
                writer.write_eof()
            return await asyncio.wait_for(reader.read(), HANG_S)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def head(self, path: str = CHAT, *, method: str = "POST", **headers: str) -> bytes:
        """The beginning of a request, without the blank line. `_` in a name stands for `-`."""
        every = {"host": f"127.0.0.1:{self.port}", **headers}
        lines = [f"{method} {path} HTTP/1.1", *[f"{key.replace('_', '-')}: {value}" for key, value in every.items()]]
        return "".join([f"{line}\r\n" for line in lines]).encode("latin-1")

    def post(self, body: bytes = b"{}", path: str = CHAT, **headers: str) -> bytes:
        """A whole request after which the connection ends."""
        every = {"content_type": "application/json", "content_length": str(len(body)), "connection": "close", **headers}
        return self.head(path, **every) + b"\r\n" + body


@contextlib.asynccontextmanager
async def gateway(rules: DoorRules | None = None, *, keys: Path | None = None) -> AsyncIterator[Gateway]:
    """Served until the end of the block. Without `keys` it asks for none."""
    service = Echo()
    async with _served(service, rules or DoorRules(), KeyRing(keys or Path("/nonexistent/keys.json"))) as listening:
        yield Gateway(listening, service)


@contextlib.asynccontextmanager
async def gateway_of(
    service: GatewayService, *, keys: KeyRing | None = None, rules: DoorRules | None = None
) -> AsyncIterator[str]:
    """The address at which that service is served until the end of the block."""
    every = rules or DoorRules()
    async with _served(service, every, keys or KeyRing(Path("/nonexistent/keys.json"))) as listening:
        yield listening.url.rstrip("/")


@contextlib.asynccontextmanager
async def _served(service: GatewayService, rules: DoorRules, keys: KeyRing) -> AsyncIterator[BoundSocket]:
    listening = BoundSocket("127.0.0.1", 0)
    app = GatewayApp(service, rules=rules, keys=keys)
    ready = asyncio.Event()
    serving = asyncio.create_task(serve(app, listening, bounds=rules.bounds, grace_s=HANG_S, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), HANG_S)
        yield listening
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def error_of(answer: bytes) -> Mapping[str, Any]:
    """The error of a whole answer, in whichever family."""
    body = answer.partition(b"\r\n\r\n")[2]
    return msgspec.json.decode(body, type=dict[str, Any])["error"]
