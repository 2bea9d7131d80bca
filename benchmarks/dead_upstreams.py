"""How long requests wait for the first word where one of two upstreams of a route is dead, beside a route that is well.

A real gateway on loopback, in a process of its own; most conversations prefer the dead upstream. The request that meets it
first is not counted: it waits for it. The clock of the client counts, from its first byte to the first byte of the answer's body.
Requests to both routes come in turn, so that other work of the machine slows both.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

WORDS = ["A", " word", " of", " it."]
WAYS = ("well", "refused", "silent", "500", "429", "an error in 200")
FIRST_EVENT_S = 2
WARM = 20
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    told = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    event = f"data: {json.dumps(told)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWER = (
    HEAD
    + b"".join([chunk({"content": word}) for word in WORDS])
    + chunk({}, "stop")
    + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)
REFUSALS = {
    "500": b"HTTP/1.1 500 no\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}",
    "an error in 200": HEAD + b'36\r\ndata: {"error": {"message": "not now", "code": 529}}\n\n\r\n0\r\n\r\n',
    "429": b"HTTP/1.1 429 no\r\ncontent-length: 2\r\nretry-after: 600\r\ncontent-type: application/json\r\n\r\n{}",
}


class Upstream:
    """Answers as `way` says; `asked` counts requests."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.asked = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(head)
                await reader.readexactly(0 if length is None else int(length[1]))
                self.asked += 1
                if self.way == "silent":
                    await reader.read()
                writer.write(REFUSALS.get(self.way, ANSWER))
        writer.transport.abort()


@contextlib.asynccontextmanager
async def gateway(folder: Path, first: str, second: str) -> AsyncIterator[int]:
    (folder / "gateway.toml").write_text(
        f'[[route]]\nmodels = ["m"]\nupstream = [{{ url = "{first}", weight = 1000 }}, {{ url = "{second}", weight = 0.001 }}]\n'
        f'[[route]]\nmodels = ["well"]\nupstream = {{ url = "{second}" }}\n'
        f"[deadlines]\nfirst_event_s = {FIRST_EVENT_S}\n"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWISE_", "XDG_"))}
    own = {"TURNWISE_STATE_DIR": "state", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache"}
    env |= {name: str(folder / place) for name, place in own.items()}
    line = [sys.executable, "-m", "turnwise", "gateway", "--config", str(folder / "gateway.toml")]
    process = await asyncio.create_subprocess_exec(
        *line, "--port", "0", "--json", "--quiet", stdout=asyncio.subprocess.PIPE, env=env
    )
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["port"]
    finally:
        process.terminate()
        await process.wait()


async def first_word_ms(port: int, number: int, *, model: str) -> float:
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": f"conversation {number}"}]}
    content = json.dumps(body).encode()
    lines = ["POST /v1/chat/completions HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close"]
    head = "\r\n".join([*lines, "content-type: application/json", ""])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    said = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
    took = (time.perf_counter() - began) * 1000
    said += await reader.read()
    writer.close()
    assert b"[DONE]" in said and b" 200 " in said[:20], said
    return took


class Found(NamedTuple):
    """Milliseconds of each request behind the first ones, and those of the route that is well; how many the first upstream was
    asked for, in so many seconds."""

    dead: list[float]
    well: list[float]
    asked: int
    seconds: float


async def measure(way: str, *, requests: int) -> Found:
    first, second = Upstream(way), Upstream("well")
    servers = [await asyncio.start_server(one.serve, "127.0.0.1", 0) for one in (first, second)]
    urls = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1" for server in servers]
    if way == "refused":
        servers[0].close()
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with gateway(Path(folder), *urls) as port:
                began = time.perf_counter()
                took: dict[str, list[float]] = {"m": [], "well": []}
                for number in range(WARM + requests):  # the first meets the dead upstream; the others warm up
                    for model, known in took.items():
                        known.append(await first_word_ms(port, number, model=model))
                dead, well = [known[WARM:] for known in took.values()]
                return Found(dead, well, first.asked, time.perf_counter() - began)
    finally:
        for server in servers:
            server.close()


def p99(found: list[float]) -> float:
    return statistics.quantiles(found, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500, help="of each way (500)")
    requests = parser.parse_args().requests
    sys.stdout.write("the first upstream is   median   added      p99   added   it was asked for\n")
    for way in WAYS:
        found = asyncio.run(measure(way, requests=requests))
        median, most = statistics.median(found.dead), p99(found.dead)
        added, most_added = median - statistics.median(found.well), most - p99(found.well)
        figures = f"{median:6.1f} {added:7.1f} {most:8.1f} {most_added:7.1f}"
        sys.stdout.write(f"{way:<22} {figures} ms {found.asked:8} in {found.seconds:.1f} s\n")


if __name__ == "__main__":
    main()
