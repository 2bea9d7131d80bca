"""Claude Code, unpatched, before an upstream that says nothing for longer than it waits: it asks the same once more, and the
gateway sends nothing twice. docs/gateway-clients.md has what was measured."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.served_gateway import served_gateway
from gateway.test_equal_turns import END, until, word
from real_agents import places
from real_agents.roster import AGENTS, Outing
from real_agents.running import base_env
from waits import HANG_S

WAITS_MS = 3000


class SilentUpstream:
    """Speaks Chat Completions. It answers its first request once it is let, and every other at once."""

    def __init__(self) -> None:
        self.requests = 0
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        size = next(line.partition(":")[2] for line in head.splitlines() if line.startswith("content-length:"))
        await reader.readexactly(int(size))
        self.requests += 1
        self.asked.set()
        await self.answers.wait()
        body = word("It was worth the wait.") + END
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + body)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def silent_upstream() -> AsyncIterator[SilentUpstream]:
    upstream = SilentUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, limit=2**24)
    async with server:
        upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield upstream


@pytest.mark.agents
async def test_claude_code_that_asks_again_gets_the_first_answer(tmp_path: Path) -> None:
    """It waits three seconds, closes its connection and sends an equal body. The upstream has one request, whose answer it gets,
    and the ledger one price."""
    claude = AGENTS["claude-code"]
    if missing := claude.missing():
        pytest.skip(f"{missing} is not installed: {places.SETUP}")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with silent_upstream() as upstream:
        with served_gateway(tmp_path, upstream=upstream.url) as served:
            url = f"http://127.0.0.1:{served.port}"
            outing = Outing(url=url, model="m", home=home, work=work, page=0, is_gateway=True)
            command = claude.prepare(outing)
            env = {**base_env(home, proxy="http://127.0.0.1:9"), **command.env, "API_TIMEOUT_MS": str(WAITS_MS)}
            process = await asyncio.create_subprocess_exec(
                *command.words, env=env, cwd=work, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
            )
            try:
                await asyncio.wait_for(upstream.asked.wait(), HANG_S)
                await until(lambda: b"joined_requests_total{" in served.get("/metrics"))
                upstream.answers.set()
                out, _ = await asyncio.wait_for(process.communicate(), HANG_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            assert (out.decode().strip(), upstream.requests) == ("It was worth the wait.", 1)
            (row,) = served.usage("--session", "gateway")["rows"]
            assert (row["cost"]["requests"], row["joined"]) == (1, 1)
