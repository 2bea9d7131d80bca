"""Turns that stream on a worker, and followers in this process. `python pieces.py TASK` is the whole of it; with `worker` it is
the worker, which works until its standard input ends."""

import asyncio
import importlib.metadata
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

EVERY_S = 0.1  # a piece of each turn
WARM_S = 1.0  # pieces of the first moment are not counted: their followers may still come
LONGEST_S = 150.0
CONNECTIONS = (
    "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'"
    " and pid <> pg_backend_pid()"
)


class Task(TypedDict):
    turns: int
    followers: int
    seconds: float
    dsn: str  # of a server on which databases may be made


def chunk(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return f"data: {json.dumps({'id': 'a', 'model': 'm', 'choices': [choice]})}\n\n".encode()


def at_end_of_input(stop: Callable[[], object]) -> None:
    def wait() -> None:
        sys.stdin.read()
        stop()

    threading.Thread(target=wait, daemon=True).start()


async def work(dsn: str, given: Task) -> None:
    from turnwise import Agent, Model
    from turnwise.endpoints.transport import HttpRequest
    from turnwise.testing.scripted_model import Reply, ScriptedTransport, Stall
    from turnwise.workers.worker import Worker

    loop = asyncio.get_running_loop()

    def paced(_: HttpRequest) -> Reply:
        began = loop.time() + 0.5 + random.random() * EVERY_S
        pieces: list[bytes | Stall] = []
        for number in range(int(given["seconds"] / EVERY_S)):
            come = asyncio.Event()
            loop.call_at(began + number * EVERY_S, come.set)
            pieces += (Stall(until=come), chunk(f"{began + number * EVERY_S:.6f} "))
        return Reply(pieces=(*pieces, chunk("end", finish_reason="stop"), b"data: [DONE]\n\n"))

    model = Model(
        "openai_chat:m", base_url="http://127.0.0.1:9/v1", transport=ScriptedTransport([paced] * given["turns"])
    )
    worker = Worker(dsn, agents={"talker": Agent(model)}, concurrency=given["turns"])
    at_end_of_input(lambda: loop.call_soon_threadsafe(worker.stop))
    await worker.run()


async def measured(dsn: str, given: Task) -> dict[str, object]:
    from turnwise import submit_turn, watch_session
    from turnwise.replay.replayed_events import TextPiece

    sessions = [await submit_turn(dsn, "Talk.", agent="talker") for _ in range(given["turns"])]
    delays: list[float] = []

    async def follow(session: str) -> int:
        count, warm_s = 0, 0.0
        async for event in watch_session(dsn, session, pieces=True):
            if isinstance(event.seen, TextPiece):
                now = time.monotonic()
                for word in (
                    event.seen.text.split()[:-1] if event.seen.text.endswith("end") else event.seen.text.split()
                ):
                    left_s = float(word)
                    warm_s = warm_s or left_s + WARM_S
                    count += 1
                    if left_s > warm_s:
                        delays.append(now - left_s)
        return count

    with psycopg.connect(dsn, autocommit=True) as connection:

        def connections() -> int:
            (count,) = connection.execute(CONNECTIONS).fetchone() or (0,)
            return count

        follows = [asyncio.create_task(follow(sessions[at % len(sessions)])) for at in range(given["followers"])]
        unseen = "select count(*) from turnwise.turn where watched_until is null"
        while (await asyncio.to_thread(connection.execute, unseen)).fetchone() != (0,):
            pass
        most = connections()
        command = [sys.executable, __file__, json.dumps(given), "worker", dsn]
        process = await asyncio.to_thread(subprocess.Popen, command, stdin=subprocess.PIPE)
        began_s, before = time.monotonic(), cpu_of(os.getpid())
        async with asyncio.timeout(LONGEST_S):
            counts = await asyncio.gather(*follows)
        wall_s = time.monotonic() - began_s
        worker_cpu, own_cpu = cpu_of(process.pid), cpu_of(os.getpid()) - before
        await asyncio.to_thread(process.communicate)
    delays.sort()
    return {
        "version": importlib.metadata.version("turnwise"),
        "middle": delays[len(delays) // 2],
        "late": delays[int(len(delays) * 0.99)],
        "share": sum(counts) / (given["followers"] * int(given["seconds"] / EVERY_S)),
        "follower_cpu": own_cpu / wall_s,
        "worker_cpu": worker_cpu / wall_s,
        "connections": most,
    }


def cpu_of(process: int) -> float:
    """Seconds of the process so far, its threads included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    if sys.argv[2:3] == ["worker"]:
        asyncio.run(work(sys.argv[3], given))
        return
    from turnwise.base.clock import SystemClock
    from turnwise.workers.queue import TurnQueue

    with psycopg.connect(given["dsn"], autocommit=True) as server:
        name = f"measured_{os.getpid()}"
        server.execute(f"create database {name} template template0 encoding 'UTF8'".encode())
        try:
            parts: dict[str, Any] = {**conninfo_to_dict(given["dsn"]), "dbname": name}
            dsn = f"postgresql:///?{urlencode(parts)}"
            queue = TurnQueue(dsn, clock=SystemClock())
            queue.open()
            queue.close()
            print(json.dumps(asyncio.run(measured(dsn, given))))
        finally:
            server.execute(f"drop database {name} with (force)".encode())


main()
