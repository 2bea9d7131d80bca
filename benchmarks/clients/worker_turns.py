"""A thousand short turns on two workers over one PostgreSQL: turnwise's, or empty jobs of a bare Procrastinate.

The work stands in the queue before the clock starts. `python worker_turns.py TASK` is the whole of it; with `worker` it is one of
the two workers, which says `ready` and works until its standard input ends.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
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

CONCURRENCY = 50
LOOK_S = 0.01
LONGEST_S = 120.0


class Task(TypedDict):
    system: str  # turnwise or procrastinate
    turns: int
    dsn: str  # of a server on which databases may be made


def tell_ready() -> None:
    print("ready", flush=True)


def at_end_of_input(stop: Callable[[], object]) -> None:
    def wait() -> None:
        sys.stdin.read()
        stop()

    threading.Thread(target=wait, daemon=True).start()


# -- turnwise


async def work_on_turns(dsn: str, *, turns: int) -> None:
    from turnwise import Agent, Model
    from turnwise.testing import ScriptedModel
    from turnwise.workers.worker import Worker

    model = ScriptedModel(["Done."] * (turns + 10))
    agent = Agent(Model("openai_chat:m", transport=model))
    worker = Worker(
        dsn,
        agents={"short": agent},
        concurrency=CONCURRENCY,
        tell=lambda event: tell_ready() if event.happening == "ready" else None,
    )
    loop = asyncio.get_running_loop()
    at_end_of_input(lambda: loop.call_soon_threadsafe(worker.stop))
    await worker.run()


def submit_turns(dsn: str, turns: int) -> None:
    from turnwise.base.clock import SystemClock
    from turnwise.workers.queue import TurnQueue

    queue = TurnQueue(dsn, clock=SystemClock())
    queue.open()
    for number in range(turns):
        queue.submit(f"turn-{number}", agent="short")
    queue.close()


# -- Procrastinate


def procrastinate_app(dsn: str) -> tuple[Any, Any]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=4, max_size=10))

    @app.task(name="nothing", queue="turns")
    async def nothing(number: int) -> None:
        pass

    return app, nothing


async def work_on_jobs(dsn: str) -> None:
    app, _ = procrastinate_app(dsn)
    async with app.open_async():
        working = asyncio.create_task(
            app.run_worker_async(
                queues=["turns"], concurrency=CONCURRENCY, delete_jobs="always", install_signal_handlers=False
            )
        )
        loop = asyncio.get_running_loop()
        at_end_of_input(lambda: loop.call_soon_threadsafe(working.cancel))
        tell_ready()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def defer_jobs(dsn: str, turns: int) -> None:
    app, nothing = procrastinate_app(dsn)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await nothing.batch_defer_async(*[{"number": number} for number in range(turns)])


# -- both

LEFT = {
    "turnwise": "select count(*) from turnwise.turn where status in ('queued', 'running')",
    "procrastinate": "select count(*) from procrastinate_jobs",
}
CONNECTIONS = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"


def measured(given: Task, dsn: str) -> dict[str, object]:
    system = given["system"]
    submitted_s = time.monotonic()
    if system == "turnwise":
        submit_turns(dsn, given["turns"])
    else:
        asyncio.run(defer_jobs(dsn, given["turns"]))
    submitted_s = time.monotonic() - submitted_s
    command = [sys.executable, __file__, json.dumps(given), "worker", dsn]
    with psycopg.connect(dsn, autocommit=True) as connection:
        began = time.monotonic()
        workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
        before = [cpu_of(worker.pid) for worker in workers if worker.stdout is not None and worker.stdout.readline()]
        began, most = time.monotonic(), 0
        done_before = given["turns"] - left(connection, system)
        while left(connection, system):
            most = max(most, connection.execute(CONNECTIONS).fetchone()[0])  # type: ignore[index]
            assert time.monotonic() < began + LONGEST_S, "it did not end"
            time.sleep(LOOK_S)
        wall_s = time.monotonic() - began
        cpu_s = sum(cpu_of(worker.pid) for worker in workers) - sum(before)
        for worker in workers:
            worker.communicate()
    counted = given["turns"] - done_before
    return {
        "version": importlib.metadata.version(system),
        "rate": counted / wall_s,
        "wall": wall_s / counted,
        "cpu": cpu_s / counted,
        "submit": submitted_s / given["turns"],
        "connections": most,
    }


def left(connection: Any, system: str) -> int:
    return connection.execute(LEFT[system]).fetchone()[0]


def cpu_of(process: int) -> float:
    """Seconds of the process so far, its threads included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    if sys.argv[2:3] == ["worker"]:
        dsn = sys.argv[3]
        asyncio.run(work_on_turns(dsn, turns=given["turns"]) if given["system"] == "turnwise" else work_on_jobs(dsn))
        return
    with psycopg.connect(given["dsn"], autocommit=True) as server:
        name = f"measured_{os.getpid()}"
        server.execute(f"create database {name} template template0 encoding 'UTF8'")
        try:
            print(
                json.dumps(
                    measured(given, f"postgresql:///?{urlencode({**conninfo_to_dict(given['dsn']), 'dbname': name})}")
                )
            )
        finally:
            server.execute(f"drop database {name} with (force)")


main()
