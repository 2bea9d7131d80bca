"""A turn of 20 steps over a WebSocket beside the same turn over HTTP: bytes on the wire, requests, connections, CPU time.

The lab plays the provider in a process of its own, behind a relay that counts bytes and connections. Both ways run in
turn, in one warm process. A result of a tool has 2,000 characters, the instructions have 4,000, and ten tools are on offer.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from typing import Any

STEPS = 20
KEY = "sk-benchmark-0123456789"
SCRIPT = "steps"


async def provide() -> None:
    """Serve until standard input ends; a line there asks for the counts, and begins anew."""
    from turnwise.lab import Lab
    from turnwise.lab.script import Script, ScriptedCall, ScriptedStep

    calls = tuple(
        ScriptedStep(text=f"Step {n}.", calls=(ScriptedCall(name="look_0", arguments={"at": f"place {n}"}),))
        for n in range(1, STEPS)
    )
    script = Script(name=SCRIPT, title="twenty steps", steps=(*calls, ScriptedStep(text="That is all.")))
    async with Lab([script], key=KEY) as lab:
        port = int(lab.url.rpartition(":")[2])
        counts = {"sent": 0, "received": 0, "connections": 0}

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    counts[name] += len(data)
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            counts["connections"] += 1
            there, here = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, here, "sent"), pump(there, writer, "received"))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps({**counts, "requests": len(lab.requests)}), flush=True)
            lab.reset()
            counts.update(dict.fromkeys(counts, 0))


def tools() -> list[Any]:
    def look(name: str) -> Any:
        def found(at: str) -> str:
            return f"{at}: " + "word " * 400

        found.__name__, found.__doc__ = name, f"Look at a place, as `{name}` does it. " + "More about it. " * 10
        return found

    return [look(f"look_{number}") for number in range(10)]


async def one_turn(port: int, *, websocket: bool) -> float:
    """The CPU seconds of it."""
    from turnwise import Agent, MaxSteps, Model

    url = f"http://127.0.0.1:{port}/v1"
    model = Model(f"openai_responses:{SCRIPT}", base_url=url, api_key=KEY, websocket=websocket)
    agent = Agent(model, tools=tools(), instructions="Follow the rules. " * 222, limits=MaxSteps(STEPS + 1))
    began = time.process_time()
    result = await agent.run("Look around.")
    spent = time.process_time() - began
    assert result.complete and result.requests == STEPS, result
    return spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--provide", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    if given.provide:
        asyncio.run(provide())
        return
    argv = [sys.executable, __file__, "--provide"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as provider:
        assert provider.stdin is not None and provider.stdout is not None
        port = int(provider.stdout.readline())
        found: dict[str, dict[str, Any]] = {}
        cpu: dict[str, list[float]] = {"HTTP": [], "WebSocket": []}
        for number in range(given.rounds + 1):  # the first warms up
            for way in cpu:
                spent = asyncio.run(one_turn(port, websocket=way == "WebSocket"))
                print("counts", file=provider.stdin, flush=True)
                found[way] = json.loads(provider.stdout.readline())
                if number:
                    cpu[way].append(spent)
        provider.stdin.close()
    records = [
        {"way": way, **found[way], "cpu_ms_a_step": round(1000 * statistics.median(cpu[way]) / STEPS, 2)} for way in cpu
    ]
    if given.json:
        print(json.dumps(records))
        return
    for record in records:
        print(
            "  ".join(
                [f"{name} {value:,}" if isinstance(value, int | float) else value for name, value in record.items()]
            )
        )


if __name__ == "__main__":
    main()
