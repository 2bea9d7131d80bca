"""What one append to the journal costs, beside SQLite with nothing around it."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part

APPENDS = 3_000
CHARACTERS = 300
CASES = {"memory": "in memory", "normal": "a file, synchronous=NORMAL", "full": "a file, synchronous=FULL"}
TARGET_US = 100.0


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    parts: list[Part] = []
    for system in ("turnwise", "bare SQLite"):
        task = {
            "system": system.rpartition(" ")[2].lower(),
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
            for key, case in CASES.items()
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
        "errors that say what to do."
    ),
    build=build,
    rounds=5,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
