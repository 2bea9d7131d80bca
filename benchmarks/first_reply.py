"""What an editor waits for: from the start of its agent to the first word of the first reply."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import FOLDER, Bars, Benchmark, Measure, Options, Part, Ratio

GROUP = "first reply in an editor"
CASE = "to the first reply"
TURNWISE = ("-m", "turnwise", "acp", "-m", "openai_chat:bench", "--base-url", "{url}/v1")
BARE = (str(FOLDER / "clients" / "bare_editor_agent.py"),)


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    return [
        part("turnwise", TURNWISE, distribution="turnwise"),
        part("bare agent", BARE, distribution="agent-client-protocol"),
    ]


def part(system: str, argv: Sequence[str], *, distribution: str) -> Part:
    task = msgspec.json.encode({"argv": [sys.executable, *argv], "distribution": distribution}).decode()
    return Part(
        system=system,
        argv=(sys.executable, str(FOLDER / "clients" / "first_reply.py"), task),
        measures=(
            Measure(key="cpu_s", group=GROUP, case=CASE, name="CPU", unit="s"),
            Measure(key="wall_s", group=GROUP, case=CASE, name="wall time", unit="s"),
        ),
        per_round=2,
    )


BENCHMARK = Benchmark(
    name="first_reply",
    title="The first reply in an editor",
    about=(
        "A fresh process, from its start to the first word that an editor is shown: it is greeted, opens a session in an empty "
        "folder and is given a prompt, as fast as it answers. `turnwise acp` asks a provider on loopback with its tools, sandbox "
        "and journal; the bare agent is the shortest program on the same library of the protocol, which answers by itself and "
        "asks nobody. CPU is the agent's own process, its threads included. Compiled files are there; the home is empty."
    ),
    build=build,
    rounds=5,
    ratios=[Ratio(name="a bare agent", group=GROUP, case=CASE, measure="CPU", against=("bare agent",))],
    plots=[
        Bars(
            file="first-reply",
            title="From start to the first reply: CPU",
            group=GROUP,
            measure="CPU",
            cases=(CASE,),
        )
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
