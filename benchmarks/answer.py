"""What an answer costs at a terminal, rendered while it streams, beside printing it raw."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part

GROUP = "an answer at a terminal"
NAME = "CPU a delta"
GROWTH = "CPU a delta, against that of 5,000 deltas"
PIECE = 20  # characters of a delta
DELTAS = {"5,000 deltas": 5_000, "1 MB": 52_500}
SYSTEMS = ("turnwise", "turnwise, --plain", "printing raw")
LINEAR = 1.3  # of the cost at 5,000 deltas; what is quadratic has 10


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    shares = {case: (200 if options.quick else deltas) for case, deltas in DELTAS.items()}
    return [part(system, shares) for system in SYSTEMS]


def part(system: str, shares: Mapping[str, int]) -> Part:
    task = {"system": system, "piece": PIECE, "shares": shares}
    return Part(
        system=system,
        argv=(sys.executable, str(FOLDER / "clients" / "answer.py"), msgspec.json.encode(task).decode()),
        measures=tuple(
            [
                Measure(
                    key=case,
                    group=GROUP,
                    case=case,
                    name=NAME,
                    unit="us",
                    scale=1e6,
                )
                for case in shares
            ]
        ),
    )


def growth(medians: Mapping[tuple[str, str, str, str], float]) -> Sequence[tuple[str, Measure, float]]:
    few, many = [medians.get((GROUP, case, NAME, "turnwise")) for case in DELTAS]
    if not few or not many:
        return []
    return [("turnwise", Measure(key="", group=GROUP, case="1 MB", name=GROWTH, unit="x", at_most=LINEAR), many / few)]


BENCHMARK = Benchmark(
    name="answer",
    title="An answer at a terminal",
    about=(
        f"One answer of Markdown (paragraphs, lists, tables, code, quotes) in deltas of {PIECE} characters, shown as "
        "`turnwise run` shows it at a terminal of 100 columns: cleaned, in whole words, each block rendered once it is "
        "finished. `--plain` is cleaned and shown as it was written; `printing raw` is a write and a flush for each delta. What "
        "is written goes to /dev/null, so the terminal's own work is not counted. CPU of the process, divided by the deltas; "
        "loading `rich` is not counted."
    ),
    build=build,
    derive=growth,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
