"""Real servers over HTTP that are restarted in the middle of a run: the effects are counted at the server."""

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from real_agents import places
from strangers import agent_of, offered, texts_of
from turnwise import McpServer, tool
from turnwise.testing import call
from waits import HANG_S

PYTHON = places.INSTALLED / "mcp" / "older" / "bin" / "python"
PROGRAM = Path(__file__).with_name("restarting.py")

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(not PYTHON.exists(), reason="an MCP server is not installed: python scripts/mcp_servers.py"),
]


class Restarting:
    """A server of `library`. Its sessions end with its process; its port stays."""

    def __init__(self, library: str, folder: Path) -> None:
        self.library, self.folder = library, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    async def start(self, *tools: str) -> None:
        self._begin(tools)
        async with asyncio.timeout(2 * HANG_S):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    return

    def _begin(self, tools: Sequence[str]) -> None:
        command = [str(PYTHON), str(PROGRAM), self.library, str(self.port), str(self.folder), *tools]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(HANG_S)

    async def until_effects(self, count: int) -> None:
        end_s = time.monotonic() + HANG_S
        while len(self.effects) < count:
            assert time.monotonic() < end_s, self.effects
            await asyncio.sleep(0.01)


@contextmanager
def restarting(library: str, folder: Path) -> Iterator[Restarting]:
    server = Restarting(library, folder)
    try:
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("library", ["mcp", "fastmcp"])
async def test_a_server_that_is_restarted_in_mid_run_does_each_call_once(library: str, tmp_path: Path) -> None:
    """Between two calls: the second goes again in a new session. In mid-call: it is told as one that may have happened. The tools
    are listed again, and what changed is told."""
    with restarting(library, tmp_path) as server:
        await server.start("act", "old")

        @tool(effect="none")
        async def restart() -> str:
            """Start the server anew."""
            server.kill()
            await server.start("act", "new")
            return "restarted"

        @tool(effect="none")
        async def wait() -> str:
            """Wait until the server that was killed in mid-call listens again."""
            await killing
            return "waited"

        script: list[Any] = [
            [call("r__act", n=1)],
            [call("restart")],
            [call("r__act", n=2)],
            [call("r__act", n=3, hangs=True)],
            [call("wait")],
            [call("r__act", n=4)],
            "Done.",
            "Seen.",
        ]
        there = McpServer("r", url=f"http://127.0.0.1:{server.port}/mcp", asks=False, start_s=HANG_S)
        agent, model = agent_of(script, [there, restart, wait])

        async def kill_in_mid_call() -> None:
            await server.until_effects(3)
            server.kill()
            await server.start("act", "new")

        async with agent:
            killing = asyncio.create_task(kill_in_mid_call())
            result = await agent.run("Go.")
            await agent.run("Look.")
        first, restarted, second, lost, _, last = texts_of(result)
        assert (first, restarted, second, last) == ("did 1", "restarted", "did 2", "did 4")
        assert "Whether the call did anything is unknown" in lost
        assert server.effects == ["1", "2", "3", "4"]
        assert any("new: `new`; gone: `old`" in note for note in result.notes)
        assert "r__new" in offered(model, len(script) - 1)
