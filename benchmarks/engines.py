"""What a turn costs on turnwise's own workers, on Temporal and on Restate: one worker each, over one PostgreSQL."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part
from journal_append import has_postgres

TURNS = 300
GROUP = "engines"
CASE = "one tool, one worker"
SYSTEMS = {"turnwise": "own", "temporal": "temporal", "restate": "restate"}
FIGURES = {
    "rate": ("turns a second", "1/s", 1.0),
    "latency": ("a single turn, median", "ms", 1e3),
    "worker": ("CPU of the worker a turn", "ms", 1e3),
    "server": ("CPU of the engine's server a turn", "ms", 1e3),
}


def has_engines() -> bool:
    """`bash scripts/check --engines` installs their servers."""
    if not has_postgres():  # it makes the modules of tests known, too
        return False
    from real_agents import places
    from temporal_server import PROGRAM

    has_sdk = importlib.util.find_spec("restate") is not None
    return has_sdk and PROGRAM.exists() and places.missing_npm("@restatedev/restate-server") is None


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    if not has_engines():
        return ()
    from postgres_server import PostgresServer, find_programs

    server = PostgresServer(find_programs(), fsync="off")
    stack.callback(server.stop)
    measures = tuple(
        [
            Measure(key=key, group=GROUP, case=CASE, name=name, unit=unit, scale=scale)
            for key, (name, unit, scale) in FIGURES.items()
        ]
    )
    parts: list[Part] = []
    for system, engine in SYSTEMS.items():
        if system != "turnwise" and not options.with_peers:
            continue
        task = {"engine": engine, "turns": 30 if options.quick else TURNS, "dsn": server.dsn}
        argv = (sys.executable, str(FOLDER / "clients" / "engines.py"), msgspec.json.encode(task).decode())
        parts.append(Part(system=system, argv=argv, measures=measures, is_peer=system != "turnwise"))
    return parts


BENCHMARK = Benchmark(
    name="engines",
    title="Turns on an engine",
    about=(
        "Turns of two requests and one tool, whose answers come from the worker's own process, on one worker that runs ten at "
        "once, over one PostgreSQL (that of the tests, without `fsync`). `turns a second`: all are sent to a worker that runs. A "
        "single turn: from its sending to its end, with nothing else to do. Temporal is its development server, in memory. Left "
        "out where a server is missing."
    ),
    build=build,
    rounds=3,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
