"""How late the text that a worker streams reaches followers in another process."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part
from journal_append import has_postgres

TURNS, FOLLOWERS, SECONDS = 50, 500, 20.0
LATEST_MS = 300.0
GROUP = "text in pieces"
CASE = f"{TURNS} turns, {FOLLOWERS} followers"
FIGURES = {
    "middle": ("delay, median", "ms", 1e3, None),
    "late": ("delay, 99th percentile", "ms", 1e3, LATEST_MS),
    "share": ("pieces that arrived", "%", 100.0, None),
    "follower_cpu": ("CPU of the followers, a second", "ms", 1e3, None),
    "worker_cpu": ("CPU of the worker, a second", "ms", 1e3, None),
    "connections": ("connections of the followers", "connections", 1.0, 10.0),
}


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    if not has_postgres():
        return ()
    from postgres_server import PostgresServer, find_programs

    server = PostgresServer(find_programs(), fsync="off")
    stack.callback(server.stop)
    task: dict[str, object] = {"turns": TURNS, "followers": FOLLOWERS, "seconds": SECONDS, "dsn": server.dsn}
    if options.quick:
        task |= {"turns": 3, "followers": 6, "seconds": 3.0}
    measures = tuple(
        [
            Measure(key=key, group=GROUP, case=CASE, name=name, unit=unit, scale=scale, at_most=most)
            for key, (name, unit, scale, most) in FIGURES.items()
        ]
    )
    argv = (sys.executable, str(FOLDER / "clients" / "pieces.py"), msgspec.json.encode(task).decode())
    return (Part(system="turnwise", argv=argv, measures=measures),)


BENCHMARK = Benchmark(
    name="pieces",
    title="Text in pieces from a worker",
    about=(
        f"A worker streams {TURNS} turns at once: each response brings a piece every 0.1 s, and each piece says when it came. "
        f"{FOLLOWERS} followers in another process, ten a turn, read them with `watch_session(pieces=True)`. Between the two is "
        "one PostgreSQL on the same machine (that of the tests, over a Unix socket, without `fsync`). The delay is the time from "
        "when the piece should leave the provider until the follower has it. The worker sends ten times a second, which is up to "
        "100 ms of it. Left out where there is no server."
    ),
    build=build,
    rounds=3,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
