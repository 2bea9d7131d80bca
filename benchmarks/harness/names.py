"""Which benchmarks there are, in the order of the page. Each name is a module beside this package with a BENCHMARK."""

import importlib

from harness.declaring import Benchmark

NAMES = (
    "decode",
    "growing_call",
    "loops",
    "encoding",
    "import_time",
    "paced",
    "journal_append",
    "tool_dispatch",
    "telemetry",
    "cold_start",
    "first_reply",
    "at_prompt",
    "answer",
    "gateway",
    "gateway_budgets",
    "worker_turns",
    "pieces",
    "engines",
    "resuming",
)


def benchmark_of(name: str) -> Benchmark:
    found = importlib.import_module(name).BENCHMARK
    assert isinstance(found, Benchmark) and found.name == name
    return found
