"""Turns on one engine: `python engines.py TASK`. With `worker` it is the worker on Restate."""

import asyncio
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlencode

import psycopg
from process_cpu import cpu_of
from psycopg.conninfo import conninfo_to_dict

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from turnwise import Journal
from turnwise.testing import engine_conformance as kit

PACKAGES = {"own": "turnwise", "temporal": "temporalio", "restate": "restate-sdk"}
LOOK_S = 0.002
LONGEST_S = 300.0
SINGLE = 20
CONCURRENCY = 10
ENDED = "select count(*) from turnwise.turn where status = 'done'"


class Task(TypedDict):
    engine: str  # own, temporal or restate
    turns: int
    dsn: str


def work_on_restate(folder: str, dsn: str, port: str) -> None:
    import restate
    import uvicorn

    turns = restate.VirtualObject("turns")
    agent = kit.agent(Path(folder), journal=Journal(dsn))

    async def leg(session: str, key: str) -> str:
        return (await agent.run(session=session, key=key)).text

    @turns.handler()
    async def turn(context: restate.ObjectContext, key: str) -> str:
        return await context.run_typed("leg", leg, session=context.key(), key=key)

    uvicorn.run(restate.app([turns], protocol="request_response"), port=int(port), log_level="warning")


class Bench:
    """One engine, its worker and its server, once `start` has returned."""

    def __init__(self, given: Task, folder: Path) -> None:
        self.given, self.folder = given, folder
        self.servers: list[subprocess.Popen[Any]] = []
        self.others: list[subprocess.Popen[Any]] = []
        self.engine: Any = None
        name = f"bench_{uuid.uuid4().hex}"
        with psycopg.connect(given["dsn"], autocommit=True) as connection:
            connection.execute(f"create database {name} template template0 encoding 'UTF8'")
        self.dsn = f"postgresql:///?{urlencode({**conninfo_to_dict(given['dsn']), 'dbname': name})}"
        self.journal = Journal(self.dsn)
        self.connection = psycopg.connect(self.dsn, autocommit=True)

    def start(self) -> None:
        from temporal_server import TemporalServer
        from workers.engines import OwnWorkers, TemporalWorkers
        from workers.test_restate import RestateServer, await_port, free_port

        if self.given["engine"] == "restate":
            self.restate = RestateServer(self.folder / "restate")
            self.servers.append(self.restate.process)
            port = free_port()
            process = subprocess.Popen([sys.executable, __file__, "worker", str(self.folder), self.dsn, str(port)])
            self.others.append(process)
            await_port(port, process=process)
            self.restate.register(port)
            self.worker = process.pid
            return
        if self.given["engine"] == "temporal":
            server = TemporalServer()
            self.servers.append(server.process)
            self.engine = TemporalWorkers(self.folder, dsn=self.dsn, address=server.address, task_queue="bench")
        else:
            self.engine = OwnWorkers(self.folder, dsn=self.dsn)
        self.worker = self.engine.start_worker("--concurrency", str(CONCURRENCY), real=True).pid

    async def submit(self, session: str, prompt: str) -> None:
        if self.given["engine"] == "restate":
            self.journal.accept(session, "k", prompt)
            await asyncio.to_thread(self.restate.call, f"turns/{session}/turn/send", "k")
        else:
            await self.engine.submit(session, "k", prompt)

    async def until(self, count: int) -> None:
        give_up = time.monotonic() + LONGEST_S
        while True:
            row = self.connection.execute(ENDED).fetchone()
            if row is not None and row[0] >= count:
                return
            assert time.monotonic() < give_up, "the turns do not end"
            await asyncio.sleep(LOOK_S)

    def cpu(self) -> tuple[float, float]:
        return cpu_of(self.worker), sum([cpu_of(one.pid) for one in self.servers])

    def end(self) -> None:
        if self.engine is not None:
            self.engine.end()
        for one in (*self.others, *self.servers):
            one.kill()
            one.wait()
        self.connection.close()
        self.journal.close()


async def measure(given: Task) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="engines-") as folder:
        os.environ[kit.FOLDER] = folder
        bench = Bench(given, Path(folder))
        try:
            bench.start()
            times: list[float] = []
            for number in range(SINGLE):
                began = time.perf_counter()
                await bench.submit(f"single-{number}", f"note:{number}")
                await bench.until(number + 1)
                times.append(time.perf_counter() - began)
            worker, server = bench.cpu()
            began, turns = time.perf_counter(), given["turns"]
            at_once = asyncio.Semaphore(CONCURRENCY)

            async def send(number: int) -> None:
                async with at_once:
                    await bench.submit(f"many-{number}", f"note:{number}")

            await asyncio.gather(*[send(number) for number in range(turns)])
            await bench.until(SINGLE + turns)
            seconds = time.perf_counter() - began
            after = bench.cpu()
        finally:
            bench.end()
    return {
        "version": importlib.metadata.version(PACKAGES[given["engine"]]),
        "rate": turns / seconds,
        "latency": statistics.median(times[2:]),
        "worker": (after[0] - worker) / turns,
        "server": (after[1] - server) / turns,
    }


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        work_on_restate(*sys.argv[2:])
    else:
        print(json.dumps(asyncio.run(measure(json.loads(sys.argv[1])))))
