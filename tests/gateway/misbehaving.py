"""An upstream below HTTP that misbehaves in one of many ways, and the answers of one that is well."""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any, Literal, NamedTuple

import msgspec

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
STREAM, JSON, HTML = "text/event-stream", "application/json", "text/html"
WORDS = ("All", " is", " well.")
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
DONE = b"data: [DONE]\n\n"


def event(delta: dict[str, str], finish: str | None = None, usage: object = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(told if usage is None else {**told, "usage": usage}) + b"\n\n"


OPENING = event({"role": "assistant", "content": ""})


def said(*words: str) -> list[bytes]:
    return [OPENING, *[event({"content": word}) for word in words]]


def events(*words: str) -> bytes:
    return b"".join([*said(*words), event({}, "stop", USAGE), DONE])


def body(*words: str) -> bytes:
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    told = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    return msgspec.json.encode(told)


def head(status: int = 200, kind: str = JSON, *, version: str = "1.1", **headers: Any) -> bytes:
    """`_` in a name stands for `-`."""
    named = {"content_type": kind, **headers} if kind else headers
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items()]
    return "".join([f"HTTP/{version} {status} said\r\n", *lines, "\r\n"]).encode()


def sized(content: bytes, status: int = 200, kind: str = JSON, **headers: Any) -> bytes:
    return head(status, kind, content_length=len(content), **headers) + content


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def begun(*pieces: bytes, kind: str = STREAM, **headers: Any) -> bytes:
    """A chunked body without its end."""
    return head(200, kind, transfer_encoding="chunked", **headers) + b"".join([chunk(piece) for piece in pieces])


def chunked(*pieces: bytes, kind: str = STREAM, **headers: Any) -> bytes:
    return begun(*pieces, kind=kind, **headers) + b"0\r\n\r\n"


def error(status: int, **headers: Any) -> bytes:
    return sized(b'{"error": {"message": "not now", "type": "t"}}', status, **headers)


EVENTS, BODY = events(*WORDS), body(*WORDS)


class Play(NamedTuple):
    """What is sent for a request, and then: the connection is kept for the next one, closed, reset, or nothing more comes until
    the gateway leaves. `goes on`: `more` comes once the test says so. `at once`: it is sent and closed at the first byte that
    comes. `drips`: what comes again and again meanwhile, or behind an answer."""

    sends: bytes = b""
    then: Literal["keeps", "closes", "resets", "sticks", "goes on", "at once"] = "keeps"
    more: bytes = b""
    drips: bytes = b""


class Misbehaving:
    """Plays for requests what it is told to, and answers well without. `asked` counts them; `came` is set once one has come and
    what is played for it at first is sent. A well answer waits for `held`, if there is such an event."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))  # nobody listens there yet: a connection is refused
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.play: Play | None = None
        self.asked = 0
        self.came = asyncio.Event()
        self.go_on = asyncio.Event()
        self.held: asyncio.Event | None = None
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_shut = asyncio.Event()

    async def open(self, *, tls: ssl.SSLContext | None) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self.socket.dup(), ssl=tls)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            while self._writers:
                self._is_shut.clear()
                await self._is_shut.wait()
            self._server = None

    async def heal(self, *, anew: bool) -> None:
        """Well from now on; `anew`: on new connections alone."""
        self.play = None
        if anew:
            await self.close()
            await self.open(tls=self._tls)

    async def drip(self, piece: bytes) -> None:
        """On every connection that is open."""
        for writer in [*self._writers]:
            writer.write(piece)
            with contextlib.suppress(OSError):
                await writer.drain()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()
            self._writers.discard(writer)
            self._is_shut.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        if self.play is not None and self.play.then == "at once":
            await reader.readexactly(1)
            writer.write(self.play.sends)
            return False
        asked = await reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(asked)
        content = await reader.readexactly(0 if length is None else int(length[1]))
        self.asked += 1
        play = self.play
        if play is None:
            self.came.set()
            if self.held is not None:
                await self.held.wait()
            writer.write(chunked(EVENTS) if b'"stream":true' in content else sized(BODY))
            return True
        writer.write(play.sends)
        await writer.drain()
        self.came.set()
        if play.then == "sticks":
            await reader.read()
        if play.then == "goes on":
            await self.go_on.wait()
            writer.write(play.more)
        if play.then == "resets":
            lingers = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
        return play.then in ("keeps", "goes on")


@contextlib.asynccontextmanager
async def closing(*upstreams: Misbehaving) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for one in upstreams:
            await one.close()
            one.socket.close()
