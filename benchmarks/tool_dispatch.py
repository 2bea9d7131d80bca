"""What running one tool call costs: its arguments decoded and validated, the function run, the result made."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from harness.command import run
from harness.declaring import FOLDER, PEERS_PYTHON, Benchmark, Measure, Options, Part, Ratio

GROUP = "one tool call"
NAME = "CPU a call"
CASES = {
    "async 1": "async, alone",
    "async 10": "async, ten at once",
    "sync 1": "in a thread, alone",
    "sync 10": "in threads, ten at once",
}
REPEAT = 3_000
PEERS = (("pydantic-ai", "dispatch_pydantic_ai.py"), ("openai-agents", "dispatch_openai_agents.py"))


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    repeat = str(100 if options.quick else REPEAT)

    def part(system: str, client: str, *, python: str, keys: Sequence[str], is_peer: bool) -> Part:
        return Part(
            system=system,
            argv=(python, str(FOLDER / "clients" / client), repeat),
            measures=tuple(
                [Measure(key=key, group=GROUP, case=CASES[key], name=NAME, unit="us", scale=1e6) for key in keys]
            ),
            is_peer=is_peer,
        )

    ours = part("turnwise", "dispatch_turnwise.py", python=sys.executable, keys=list(CASES), is_peer=False)
    together = [key for key in CASES if key.endswith("10")]
    return [
        ours,
        *[part(system, client, python=PEERS_PYTHON, keys=together, is_peer=True) for system, client in PEERS],
    ]


BENCHMARK = Benchmark(
    name="tool_dispatch",
    title="Running a tool",
    about=(
        "A typed function with three parameters and a docstring, its arguments as JSON text, validated by its types. turnwise: "
        "the running of one step's calls, each in a task with a deadline, blocking functions in a daemon thread each, so that "
        "one stuck call holds up neither the others nor the end of the program. Of the peers only whole runs can be had: a "
        "run whose model asks for eleven calls in one response, less one whose model asks for one, divided by ten; they have "
        "no deadline, and run blocking functions in a pool."
    ),
    build=build,
    rounds=5,
    ratios=[
        Ratio(name="the best Python peer", group=GROUP, case=CASES[key], measure=NAME, against=tuple(dict(PEERS)))
        for key in ("async 10", "sync 10")
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
