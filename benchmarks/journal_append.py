"""What one append to the journal costs, beside SQLite with nothing around it."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part

APPENDS = 3_000
CHARACTERS = 300
TESTS = FOLDER.parent / "tests"
CASES = {"memory": "in memory", "normal": "a file, synchronous=NORMAL", "full": "a file, synchronous=FULL"}
TARGET_US = 100.0
POSTGRES = "turnwise, PostgreSQL"
POSTGRES_CASES = {"unsynced": "PostgreSQL, fsync off", "synced": "PostgreSQL, fsync on"}
SYSTEMS = {"turnwise": ("turnwise", CASES), "bare SQLite": ("sqlite", CASES), POSTGRES: ("postgres", POSTGRES_CASES)}


def has_postgres() -> bool:
    """Whether the tests' own server can be started here."""
    sys.path.append(str(TESTS))
    try:
        from postgres_server import NoPostgres, find_programs

        find_programs()
    except (ImportError, NoPostgres):
        return False
    return importlib.util.find_spec("psycopg") is not None


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    parts: list[Part] = []
    for system, (name, cases) in SYSTEMS.items():
        if system == POSTGRES and not has_postgres():
            continue
        task = {
            "system": name,
            "folder": str(options.folder),
            "appends": 200 if options.quick else APPENDS,
            "characters": CHARACTERS,
        }
        measures = [
            Measure(
                key=f"{key} {kind}",
                group="journal",
                case=case,
                name="CPU an append" if kind == "cpu" else "wall time an append",
                unit="us",
                scale=1e6,
                at_most=TARGET_US if system == "turnwise" and kind == "cpu" and key != "full" else None,
            )
            for kind in ("cpu", "wall")
            for key, case in cases.items()
        ]
        argv = (sys.executable, str(FOLDER / "clients" / "journal_append.py"), msgspec.json.encode(task).decode())
        parts.append(Part(system=system, argv=argv, measures=tuple(measures)))
    return parts


BENCHMARK = Benchmark(
    name="journal_append",
    title="Appending to the journal",
    about=(
        f"One event with a tool's result of {CHARACTERS} characters, encoded and committed before the call returns: "
        "`synchronous=NORMAL` is the journal's own setting (a killed process loses nothing, a power failure may lose the last "
        "commits), FULL waits for the disk each time. Bare SQLite is the same table and settings with one `insert` and the same "
        "encoding; turnwise adds the check that no other process has taken the turn over, the lock between threads, and the "
        "errors that say what to do. On PostgreSQL an append is one statement over a Unix socket, and the server is that of the "
        "tests (tests/postgres_server.py); without `fsync` no disk is in the figure. Left out where there is no server."
    ),
    build=build,
    rounds=5,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
