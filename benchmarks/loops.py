"""What a step of the tool loop costs: a request, a streamed response with a call, the tool's result, again and again."""

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.clients import argv_of
from harness.command import run
from harness.declaring import Bars, Benchmark, Headline, Lines, Measure, Options, Part, Ratio
from provider.loops import loop_replies
from provider.starting import start_provider

SMALL = "small results"
LARGE = "results of 2 KB"
TOGETHER = "four calls a step, run together"
LARGE_BYTES = 2_000
CALLS = 4
WARM_STEPS = 3
NAME = "CPU a step"
LAST = "CPU a step in the last tenth"
FLAT = "a step of the last tenth over one of the first"
OURS = (("turnwise", False), ("turnwise, journal", True))
PEERS = (
    # system, its module in clients/, whether 500 steps take seconds or a minute
    ("AI SDK (node)", "loop.js", True),
    ("openai", "loop_openai.py", False),
    ("pydantic-ai", "loop_pydantic_ai.py", False),
    ("openai-agents", "loop_openai_agents.py", False),
    ("langchain", "loop_langchain.py", False),
)
AVERAGES_MS = {  # the targets: (system, group, steps)
    ("turnwise", SMALL, 500): 1.0,
    ("turnwise, journal", SMALL, 500): 1.5,
    ("turnwise", LARGE, 500): 2.0,
}
TENTHS_FROM = 100  # steps
FLAT_STEPS = (500, 1_000)
FLAT_TIMES = 1.3


class Size(msgspec.Struct, frozen=True):
    group: str
    steps: int

    @property
    def calls(self) -> int:
        return CALLS if self.group == TOGETHER else 1

    @property
    def model(self) -> str:
        return f"loop-{self.steps}-{self.calls}"

    @property
    def key(self) -> str:
        return f"{self.group} {self.steps}"


OUR_SIZES = (
    *[Size(SMALL, steps) for steps in (10, 100, 500, 1_000)],
    *[Size(LARGE, steps) for steps in (100, 500)],
    *[Size(TOGETHER, steps) for steps in (25, 100, 500)],
)
REPEATS = {Size(SMALL, 10): 10, Size(SMALL, 500): 3, Size(LARGE, 500): 2}  # a short one is noisy; two have targets
PEER_STEPS = {SMALL: 100, LARGE: 100, TOGETHER: 25}
FLAT_PEER_STEPS = {SMALL: 500, LARGE: 500, TOGETHER: 500}
LONG_PEER_STEPS = {SMALL: 500, LARGE: 500, TOGETHER: 100}
TIMEOUT_S, LONG_TIMEOUT_S = 180.0, 900.0
QUICK_SIZES = (Size(SMALL, 3), Size(LARGE, 3), Size(TOGETHER, 3))


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    sizes = QUICK_SIZES if options.quick else OUR_SIZES
    loops = {size.model: loop_replies("openai_chat", steps=size.steps, calls=size.calls) for size in sizes}
    loops["warm"] = loop_replies("openai_chat", steps=WARM_STEPS)
    url = start_provider(stack, folder=options.folder, loops=loops)

    def part(system: str, module: str, *, chosen: Sequence[Size], journal: str, is_peer: bool) -> Part:
        cases = [
            {
                "key": size.key,
                "model": size.model,
                "steps": size.steps,
                "calls": size.calls,
                "result_bytes": LARGE_BYTES if size.group == LARGE else 0,
                "repeat": 1 if is_peer else REPEATS.get(size, 1),
                "journal": journal,
            }
            for size in chosen
        ]
        return Part(
            system=system,
            argv=argv_of(module, {"url": url, "warm": "warm", "cases": cases}),
            measures=tuple([one for size in chosen for one in measures_of(size, system=system)]),
            is_peer=is_peer,
            timeout_s=LONG_TIMEOUT_S if options.long else TIMEOUT_S,
        )

    parts = [
        part(
            system,
            "loop_turnwise.py",
            chosen=sizes,
            journal=str(options.folder / "journal") if with_journal else "",
            is_peer=False,
        )
        for system, with_journal in OURS
    ]
    parts.append(part("floor", "loop_floor.py", chosen=sizes, journal="", is_peer=False))
    for system, module, is_flat in PEERS:
        most = FLAT_PEER_STEPS if is_flat else LONG_PEER_STEPS if options.long else PEER_STEPS
        chosen = [size for size in sizes if size.steps <= most[size.group]]
        parts.append(part(system, module, chosen=chosen, journal="", is_peer=True))
    return parts


def measures_of(size: Size, *, system: str) -> list[Measure]:
    case = f"{size.steps:,} steps"
    found = [
        Measure(
            key=size.key,
            group=size.group,
            case=case,
            name=NAME,
            unit="ms",
            scale=1e3 / size.steps,
            x=float(size.steps),
            at_most=AVERAGES_MS.get((system, size.group, size.steps)),
        )
    ]
    if size.steps >= TENTHS_FROM:
        is_aimed_at = system.startswith("turnwise") and size.group == SMALL and size.steps in FLAT_STEPS
        found += [
            Measure(
                key=size.key + " last",
                group=size.group,
                case=case,
                name=LAST,
                unit="ms",
                scale=1e3,
                x=float(size.steps),
            ),
            Measure(
                key=size.key + " flat",
                group=size.group,
                case=case,
                name=FLAT,
                unit="times",
                at_most=FLAT_TIMES if is_aimed_at else None,
            ),
        ]
    return found


BENCHMARK = Benchmark(
    name="loops",
    title="The tool loop",
    about=(
        "A scripted model asks for a call in every step, each with its own arguments, and answers in the end; Chat "
        "Completions, streamed, the tool an `async` function that returns a short text, or one of 2 KB. CPU of the client's "
        "process for the whole loop, divided by the steps. turnwise runs with all its defaults (rules, loop detection, "
        "budgets, ledger), with and without a journal on disk (SQLite in WAL mode, `synchronous=NORMAL`). The openai package "
        "has no loop, so it is driven by hand as its guides show; pydantic-ai's `Agent.run` with a stream handler, "
        "openai-agents' `Runner.run_streamed`, LangChain's `create_agent`, the AI SDK's `streamText`. Peers whose steps get "
        f"dearer with every step are measured up to {PEER_STEPS[SMALL]} steps, {PEER_STEPS[TOGETHER]} of four calls "
        "(`--long`: 500 and 100, which takes minutes)."
    ),
    build=build,
    headlines=[
        *[
            Headline(what=f"a step of the loop without the journal, {case}", group=SMALL, case=case, measure=NAME)
            for case in ("100 steps", "500 steps")
        ],
        Headline(
            what="a step of the loop with the journal, 500 steps",
            group=SMALL,
            case="500 steps",
            measure=NAME,
            system="turnwise, journal",
        ),
    ],
    rounds=3,
    peer_rounds=2,
    ratios=[
        Ratio(name=system, group=SMALL, case="100 steps", measure=NAME, against=(system,)) for system, _, _ in PEERS
    ],
    plots=[
        Bars(file="loops-100", title="CPU a step, 100 small steps", group=SMALL, measure=NAME, cases=("100 steps",)),
        Lines(file="loops", title="CPU a step by the length of the loop", group=SMALL, measure=NAME, x_label="steps"),
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
