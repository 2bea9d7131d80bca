"""Plays prepared streams again over HTTP/1.1: `python provider/server.py FOLDER` prints the port, and ends with its input.

A request for the model NAME gets the stream in `FOLDER/NAME.sse`, or the JSON in `FOLDER/NAME.body`, or, where there is
`FOLDER/NAME.json`, a list of streams, the first for the first request of a run, and so on; `POST /run/ID/...` begins a run for
each ID. Nothing else of a request is looked at. Nothing but the standard library, everything framed before the first request,
each event as an HTTP chunk of its own as providers send them.
"""

import asyncio
import json
import re
import sys
from pathlib import Path

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
BODY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
REFUSAL = b'{"error":{"type":"not_found","code":404,"message":"nothing is prepared for this path"}}'
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(REFUSAL),
    REFUSAL,
)


MODEL = re.compile(rb'"model" *: *"([^"]+)"')
MODEL_IN_PATH = re.compile(rb"/models/([^/:]+):")
EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n)", re.DOTALL)  # Google ends its lines with both


def framed(stream: bytes) -> bytes:
    events = EVENT.findall(stream)
    return HEAD + b"".join([b"%x\r\n%s\r\n" % (len(event), event) for event in events]) + b"0\r\n\r\n"


class Replies:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._streams: dict[str, bytes] = {}
        self._loops: dict[str, list[bytes]] = {}
        self._asked: dict[tuple[str, str], int] = {}

    def load(self) -> None:
        for path in self._folder.glob("*.sse"):
            self._streams[path.stem] = framed(path.read_bytes())
        for path in self._folder.glob("*.body"):
            body = path.read_bytes()
            self._streams[path.stem] = BODY % (len(body), body)
        for path in self._folder.glob("*.json"):
            self._loops[path.stem] = [framed(stream.encode()) for stream in json.loads(path.read_text())]

    def reply(self, target: str, body: bytes) -> bytes:
        found = MODEL_IN_PATH.search(target.encode()) or MODEL.search(body)
        name = found[1].decode() if found else ""
        if name in self._streams:
            return self._streams[name]
        if name not in self._loops:
            return NOT_FOUND
        run = target.split("/")[2] if target.startswith("/run/") else ""
        number = self._asked[run, name] = self._asked.get((run, name), -1) + 1
        return self._loops[name][number] if number < len(self._loops[name]) else NOT_FOUND


class Connection(asyncio.Protocol):
    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._received = bytearray()
        self._body_left = 0
        self._chunked = False
        self._target = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (body := self._next_body()) is not None:
            assert self._transport is not None
            self._transport.write(self._replies.reply(self._target, body))
            self._target = ""

    def _next_body(self) -> bytes | None:
        """Take one request off what was received, if it is there as a whole."""
        if not self._target:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return None
            head = bytes(self._received[:end]).decode("latin-1")
            del self._received[: end + 4]
            lines = head.split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            self._target = lines[0].split(" ")[1]
            self._chunked = "chunked" in fields.get("transfer-encoding", "")
            self._body_left = int(fields.get("content-length", "0"))
        if self._chunked:
            end = self._received.find(b"\r\n0\r\n\r\n")
            return None if end < 0 else self._taken(end + 7)
        return None if len(self._received) < self._body_left else self._taken(self._body_left)

    def _taken(self, length: int) -> bytes:
        body = bytes(self._received[:length])
        del self._received[:length]
        return body


async def main() -> None:
    replies = Replies(Path(sys.argv[1]))
    replies.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(replies), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(main())
