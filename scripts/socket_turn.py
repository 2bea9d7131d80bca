"""One turn of several steps through the gateway, over a WebSocket and over HTTP: bytes, connections, and the gateway's CPU.

Usage: python scripts/socket_turn.py [--steps 20] [--turns 10]

The client is the `openai` package, the upstream the lab's Chat Completions. Over HTTP each step sends the whole conversation
again; over the WebSocket it sends what is new. Bytes are those of TCP between the client and the gateway.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import openai

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from gateway.served_gateway import ServedGateway, served_gateway  # noqa: E402  # pyright: ignore[reportMissingImports]
from turnwise.lab import Lab  # noqa: E402
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep  # noqa: E402

RESULT = "A line of the file that was read.\n" * 60  # 2 KB, as a tool's result
TOOLS: list[Any] = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
PROMPT = "You are a coding agent. " * 400  # 10 KB, as agents have


class Counted:
    """A line to the gateway that counts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.up = self.down = self.connections = 0

    async def join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        behind, to_gateway = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._carry(reader, to_gateway, "up"), self._carry(behind, writer, "down"))
        writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        while data := await reader.read(262_144):
            setattr(self, way, getattr(self, way) + len(data))
            writer.write(data)
        writer.close()


class Measured(NamedTuple):
    up: int
    down: int
    connections: int
    cpu_ms: float
    requests: int


Turn = Callable[[openai.AsyncOpenAI, int], Awaitable[None]]
COMMON: dict[str, Any] = {"model": "steps", "instructions": PROMPT, "tools": TOOLS, "store": False}


def results_of(response: Any) -> list[Any]:
    calls = [item for item in response.output if item.type == "function_call"]
    return [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]


async def over_http(client: openai.AsyncOpenAI, steps: int) -> None:
    items: list[Any] = [{"role": "user", "content": "Begin."}]
    for _ in range(steps):
        async with client.responses.stream(**COMMON, input=items) as stream:
            found = await stream.get_final_response()
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in found.output]
        items += results_of(found)


async def over_socket(client: openai.AsyncOpenAI, steps: int) -> None:
    async with client.responses.connect() as connection:
        new: list[Any] = [{"role": "user", "content": "Begin."}]
        previous: dict[str, Any] = {}
        for _ in range(steps):
            await connection.response.create(**COMMON, input=new, **previous)
            while (event := await connection.recv()).type != "response.completed":
                assert event.type not in ("error", "response.failed"), event
            previous, new = {"previous_response_id": event.response.id}, results_of(event.response)


def cpu_of(gateway: ServedGateway) -> float:
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(turn: Turn, *, steps: int, turns: int) -> Measured:
    call = ScriptedStep(
        text="I read the next file now, and then I go on.", calls=(ScriptedCall(name="read", arguments={}),)
    )
    script = Script(name="steps", title="reads", steps=(call,) * (steps - 1) + (ScriptedStep(text="Done."),))
    with tempfile.TemporaryDirectory() as folder:
        async with Lab([script]) as lab:
            config = Path(folder) / "gateway.toml"
            upstream = f'{{ url = "{lab.url}/v1", family = "openai_chat", key_env = "LAB_KEY" }}'
            config.write_text(f'hosts = ["127.0.0.1"]\n[[route]]\nupstream = {upstream}\n')
            with served_gateway(Path(folder), "--config", str(config), upstream=None, env={"LAB_KEY": "x"}) as gateway:
                line = Counted(gateway.port)
                async with await asyncio.start_server(line.join, "127.0.0.1", 0) as server:
                    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
                    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                        await turn(client, steps)  # everything is loaded now
                        line.up = line.down = line.connections = 0
                        before_s, asked = cpu_of(gateway), lab.count()
                        for _ in range(turns):
                            await turn(client, steps)
                        cpu_ms = (cpu_of(gateway) - before_s) * 1000 / turns
                        found = [line.up // turns, line.down // turns, line.connections]
                        return Measured(*found, cpu_ms, (lab.count() - asked) // turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    for name, turn in (("HTTP", over_http), ("WebSocket", over_socket)):
        one = asyncio.run(measured(turn, steps=options.steps, turns=options.turns))
        print(
            f"{name}: {one.up:,} bytes up, {one.down:,} down, {one.connections} connections of {options.turns} turns, "
            f"{one.requests} requests upstream, {one.cpu_ms:.0f} ms of the gateway's CPU a turn",
            flush=True,
        )


if __name__ == "__main__":
    main()
