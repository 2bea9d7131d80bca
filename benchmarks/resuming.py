"""What it costs to go on with a turn whose process was killed."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part

STEPS = (10, 100, 500, 1000)
TARGET_STEPS, TARGET_MS = 500, 500.0
CHARACTERS = 200


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    steps = STEPS[:1] if options.quick else STEPS
    task = msgspec.json.encode({"folder": str(options.folder), "steps": steps, "characters": CHARACTERS}).decode()
    measures = [
        Measure(
            key=f"{number} {kind}",
            group="a killed turn",
            case=f"{number:,} steps",
            name="CPU of going on with it" if kind == "cpu" else "wall time of going on with it",
            unit="ms",
            scale=1e3,
            at_most=TARGET_MS if number == TARGET_STEPS else None,
        )
        for kind in ("cpu", "wall")
        for number in steps
    ]
    argv = (sys.executable, str(FOLDER / "clients" / "resuming.py"), task)
    return (Part(system="turnwise", argv=argv, measures=tuple(measures)),)


BENCHMARK = Benchmark(
    name="resuming",
    title="Going on after a crash",
    about=(
        f"A turn of so many steps, each with one call and a result of {CHARACTERS} characters, whose process was killed "
        "(SIGKILL) in its last call. Another process takes it over: it reads its records, runs the call again (it only reads), "
        "sends the next request (the answer comes from the same process) and ends the turn. The journal is a file."
    ),
    build=build,
    rounds=5,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
