"""What spans and metrics add to a step of the tool loop."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part

GROUP = "one step"
NAME = "CPU a step"
CASES = {
    "off": "off",
    "api": "on, the API alone",
    "sdk": "on, SDK and batches",
    "contents": "on, SDK, batches and contents",
}
STEPS = 100


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    steps = str(5 if options.quick else STEPS)
    return [
        Part(
            system="turnwise",
            argv=(sys.executable, str(FOLDER / "clients" / "telemetry_turnwise.py"), steps),
            measures=tuple(
                [
                    Measure(key=key, group=GROUP, case=case, name=NAME, unit="us", scale=1e6)
                    for key, case in CASES.items()
                ]
            ),
        )
    ]


BENCHMARK = Benchmark(
    name="telemetry",
    title="Spans and metrics",
    about=(
        "A step of the loop: one streamed response with one call of a small tool, over a transport in memory, without a journal. "
        "With telemetry it has two spans and three metrics. The SDK's batches go to an exporter that throws them away, so "
        "encoding and sending are not counted. The history grows over 100 steps, and with contents each request's span has the "
        "whole of it."
    ),
    build=build,
    rounds=5,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
