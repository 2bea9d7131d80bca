#!/usr/bin/env python3
"""Turns on an engine under fire: workers are killed, frozen and stopped, turns cancelled, asks answered while no worker lives.

`python scripts/engines.py` is the small fire of CI over Temporal, `--full` the whole, `--engine own` the same over turnwise's own
workers. `--shares` measures how Temporal shares out its workers, with its fairness and without. It starts a PostgreSQL and a
Temporal server of its own (the groups `postgres` and `engines`).

Exit codes: 0 all of it holds, 1 something does not.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from temporalio.client import Client  # noqa: E402

from postgres_server import PostgresServer, find_programs  # noqa: E402
from temporal_server import TemporalServer  # noqa: E402
from turnwise import Journal  # noqa: E402
from workers.engine_fire import EngineFire, FireSizes  # noqa: E402
from workers.engine_shares import FAIR, MANY, ONE_PARTITION, Shares, rate, share  # noqa: E402
from workers.engines import OwnWorkers, TemporalWorkers  # noqa: E402

SMALL = FireSizes(turns=100, workers=2, kills=2, freezes=1, stops=1, cancels=4, asks=4)


async def shared(*, dsn: str, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {"turns of A in the queue": MANY}
    for name, dynamic in (("with fairness", FAIR), ("without", ())):
        temporal = TemporalServer(dynamic=dynamic)
        try:
            client = await Client.connect(temporal.address)
            with Journal(dsn) as journal:
                shares = Shares(client, folder=folder, journal=journal, mark=name[-1])
                found[f"of them done before the first of B, {name}"] = await share(shares)
        finally:
            temporal.stop()
    for name, dynamic in (("four partitions", ()), ("one partition", ONE_PARTITION)):
        temporal = TemporalServer(dynamic=dynamic)
        workers = TemporalWorkers(folder, dsn=dsn, address=temporal.address, task_queue="rate")
        try:
            mean, most = await rate(workers, mark=name[0], per_second=5, turns=100, processes=4)
            found[f"turns a second over four workers, with 5 allowed, {name}"] = round(mean, 2)
            found[f"of them in the busiest second, {name}"] = most
        finally:
            workers.end()
            temporal.stop()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Run turns on an engine under fire.")
    parser.add_argument("--engine", choices=["temporal", "own"], default="temporal")
    parser.add_argument("--full", action="store_true", help="1,000 turns, 10 kills, 3 freezes, 50 cancels, 50 asks")
    parser.add_argument("--shares", action="store_true", help="a tenant behind the queue of another one, and a rate")
    given = parser.parse_args()
    server = PostgresServer(find_programs())
    temporal = TemporalServer() if given.engine == "temporal" and not given.shares else None
    problems: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="engines-") as folder:
            if given.shares:
                print(json.dumps(asyncio.run(shared(dsn=server.dsn, folder=Path(folder))), indent=1))
                return 0
            if temporal is None:
                engine = OwnWorkers(Path(folder), dsn=server.dsn)
            else:
                engine = TemporalWorkers(Path(folder), dsn=server.dsn, address=temporal.address, task_queue="fire")
            fire = EngineFire(engine, FireSizes() if given.full else SMALL)
            asyncio.run(fire.run())
            problems = fire.problems()
            print(json.dumps({**fire.figures(), "problems": problems}, indent=1))
            engine.end()
    finally:
        server.stop()
        if temporal is not None:
            temporal.stop()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
