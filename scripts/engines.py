#!/usr/bin/env python3
"""Turns on an engine under fire: workers are killed, frozen and stopped, turns cancelled, asks answered while no worker lives.

`python scripts/engines.py` is the small fire of CI over Temporal, `--full` the whole, `--engine own` the same over turnwise's own
workers. It starts a PostgreSQL and a Temporal server of its own (the groups `postgres` and `engines`).

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

from postgres_server import PostgresServer, find_programs  # noqa: E402
from temporal_server import TemporalServer  # noqa: E402
from workers.engine_fire import EngineFire, FireSizes  # noqa: E402
from workers.engines import OwnWorkers, TemporalWorkers  # noqa: E402

SMALL = FireSizes(turns=100, workers=2, kills=2, freezes=1, stops=1, cancels=4, asks=4)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run turns on an engine under fire.")
    parser.add_argument("--engine", choices=["temporal", "own"], default="temporal")
    parser.add_argument("--full", action="store_true", help="1,000 turns, 10 kills, 3 freezes, 50 cancels, 50 asks")
    given = parser.parse_args()
    server = PostgresServer(find_programs())
    temporal = TemporalServer() if given.engine == "temporal" else None
    try:
        with tempfile.TemporaryDirectory(prefix="engines-") as folder:
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
