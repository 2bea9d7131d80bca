"""What dispatching a turn over workers costs, beside empty jobs of a bare Procrastinate."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, PROCRASTINATE_PYTHON, Benchmark, Measure, Options, Part
from journal_append import has_postgres

TURNS = 1_000
GROUP = "workers"
CASE = "1,000 on two workers"
SYSTEMS = {"turnwise": sys.executable, "procrastinate": PROCRASTINATE_PYTHON}
FIGURES = {
    "rate": ("a second", "1/s", 1.0),
    "wall": ("wall time", "ms", 1e3),
    "cpu": ("CPU of both workers", "ms", 1e3),
    "submit": ("wall time of submitting", "ms", 1e3),
    "connections": ("connections at once", "connections", 1.0),
}


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    if not has_postgres():
        return ()
    from postgres_server import PostgresServer, find_programs

    server = PostgresServer(find_programs(), fsync="off")
    stack.callback(server.stop)
    turns = 100 if options.quick else TURNS
    measures = tuple(
        [
            Measure(key=key, group=GROUP, case=CASE, name=name, unit=unit, scale=scale)
            for key, (name, unit, scale) in FIGURES.items()
        ]
    )
    parts: list[Part] = []
    for system, python in SYSTEMS.items():
        if system != "turnwise" and not options.with_peers:
            continue
        task = msgspec.json.encode({"system": system, "turns": turns, "dsn": server.dsn}).decode()
        argv = (python, str(FOLDER / "clients" / "worker_turns.py"), task)
        parts.append(Part(system=system, argv=argv, measures=measures, is_peer=system != "turnwise"))
    return parts


BENCHMARK = Benchmark(
    name="worker_turns",
    title="Turns over several workers",
    about=(
        "Turns of one request each, whose answer comes from this process, on two workers with `--concurrency 50` over one "
        "PostgreSQL (that of the tests, over a Unix socket, without `fsync`). All are queued before the workers start. Beside "
        "them Procrastinate runs as many empty jobs: that is dispatch alone, with nothing to run, nothing recorded and no lease. "
        "What turnwise takes more is the turn: its session is read, its request and response are recorded under the lease, and "
        "the ledger and the end are written. Left out where there is no server."
    ),
    build=build,
    rounds=3,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
