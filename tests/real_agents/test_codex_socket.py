"""Codex, unpatched, over a WebSocket that breaks in the middle of a call: it comes again, and its file is right."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.served_gateway import served_gateway
from real_agents import places
from real_agents.cases import CASES
from real_agents.roster import AGENTS, Outing
from real_agents.running import base_env, read, run_agent
from turnwise.lab import Lab
from waits import HANG_S

pytestmark = pytest.mark.agents
UPSTREAMS = ("openai_chat", "anthropic_messages", "gemini")
BREAKS_AFTER = 6_000  # bytes of answers on the first connection: behind the prewarm, within the first answer


class Line:
    """A wire between Codex and the gateway, which breaks once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = ""
        self.upgrades = 0
        self.posts = 0
        self.has_broken = False
        self._answered = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Line"]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_gateway = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [self._carry(reader, to_gateway, is_answer=False), self._carry(behind, writer, is_answer=True)]
        await asyncio.gather(*ways, return_exceptions=True)
        for each in (writer, to_gateway):
            each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(65_536):
            if is_answer:
                self._answered += len(data)
                if not self.has_broken and self._answered > BREAKS_AFTER:
                    self.has_broken = True
                    writer.transport.abort()
                    return
            else:
                self.upgrades += data.lower().count(b"upgrade: websocket")
                self.posts += data.count(b"POST /v1/responses ")
            writer.write(data)
            await writer.drain()
        writer.write_eof()


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_codex_comes_again_over_a_websocket_and_its_file_is_right(upstream: str, tmp_path: Path) -> None:
    """No request goes by POST, and the prewarms have no row in the ledger: there are as many as requests that went upstream."""
    agent, case = AGENTS["codex-socket"], CASES["drop"]
    if missing := agent.missing():
        pytest.skip(f"{missing} is not installed: {places.SETUP}")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    script = msgspec.structs.replace(case.script(agent.write(work), False), name="model")
    async with Lab([script], chunk_delay_s=0.02) as lab:
        base = "v1beta" if upstream == "gemini" else "v1"
        config = tmp_path / "gateway.toml"
        route = f'[[route]]\nupstream = {{ url = "{lab.url}/{base}", family = "{upstream}", key_env = "LAB_KEY" }}\n'
        config.write_text(f'hosts = ["127.0.0.1"]\n{route}{agent.route}', encoding="utf-8")
        env = {"LAB_KEY": "none"}
        with served_gateway(tmp_path, "--config", str(config), upstream=None, env=env) as gateway:
            async with Line(gateway.port).open() as line:
                outing = Outing(url=line.url, model="model", home=home, work=work, page=0, is_gateway=True)
                command = agent.prepare(outing)
                env = {**base_env(home, proxy="http://127.0.0.1:9"), **command.env}
                running = run_agent(command.words, env=env, work=work, lab=lab, page=0)
                ended = await asyncio.wait_for(running, HANG_S)
            assert {path: read(work / path) for path in case.files} == case.files, ended.said
            assert (ended.how, ended.code) == ("exit", 0), ended.said
            assert line.has_broken and line.upgrades >= 2 and line.posts == 0, (line.upgrades, line.posts, ended.said)
            asked = sum([row["cost"]["requests"] for row in gateway.usage()["rows"]])
            assert asked == lab.count(), "a prewarm is in the ledger"
