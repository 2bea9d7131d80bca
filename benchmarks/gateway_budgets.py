"""What budgets cost `turnwise gateway`, beside LiteLLM's proxy with those that it has without a database: CPU alone."""

import os
from collections.abc import Sequence
from contextlib import ExitStack

from harness.command import run
from harness.declaring import Benchmark, Measure, Options, Part, Ratio
from paced import start
from provider.starting import start_provider

from gateway import BODY, BUDGETED, CPU, LITELLM_BUDGET, STREAM, part, short_measures, task

GROUP, SHORT = "streams, with budgets and without", "short requests, with budgets and without"
STREAMS, SECONDS = 5, 4.0  # so few that LiteLLM's proxy keeps up beside other work
REQUESTS, QUICK_REQUESTS = 150, 20
OPEN = "turnwise, uvloop"
SYSTEMS = (OPEN, BUDGETED, LITELLM_BUDGET)
CASES = ((GROUP, f"{STREAMS} streams", CPU), *[(SHORT, one.case, one.name) for one in short_measures(SHORT)])


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    cores = sorted(os.sched_getaffinity(0))
    paced = start(stack, core=cores[0])
    provider = start_provider(stack, folder=options.folder, streams={"streamed": STREAM}, bodies={"whole": BODY})
    short = int(provider.rpartition(":")[2])
    chunk = Measure(key="cpu_us", group=GROUP, case=CASES[0][1], name=CPU, unit="us")
    parts: list[Part] = []
    for system in SYSTEMS:
        more = {"requests": QUICK_REQUESTS if options.quick else REQUESTS}
        given = task(system, port=short, folder=options.folder, cores=cores, more=more)
        parts.append(part(system, "gateway_short.py", given, measures=short_measures(SHORT)))
        streams = {"streams": STREAMS, "seconds": 1.2 if options.quick else SECONDS}
        given = task(system, port=paced, folder=options.folder, cores=cores, more=streams)
        parts.append(part(system, "gateway_paced.py", given, measures=(chunk,)))
    return parts


BENCHMARK = Benchmark(
    name="gateway_budgets",
    title="The gateway with budgets",
    about=(
        "As above, on uvloop: short requests one after another, and a few paced streams. Only CPU of the gateway's process is "
        "measured, never the clock on the wall, since the machine had other work: it makes all figures larger than on a quiet "
        "one. `key and budgets`: the client's key stands in the journal and has a budget of money, and so has its team; each "
        "request reserves in both and is settled, in SQLite. LiteLLM's keys and their budgets need PostgreSQL through Prisma, "
        "whose engines are not in its packages (`@prisma/engines` of npm, `prisma` of PyPI): they are loaded from an address "
        "that could not be reached here. So beside it stands what LiteLLM limits without a database: `a provider's budget` "
        "(`provider_budget_config`), one sum for all clients, in its memory. That is less than what turnwise does: it knows no "
        "key, reserves nothing, and forgets the sum at its end. Both have the same prices."
    ),
    build=build,
    rounds=3,
    ratios=[
        Ratio(
            name="LiteLLM's proxy, both with budgets",
            group=group,
            case=case,
            measure=measure,
            against=(LITELLM_BUDGET,),
            ours=BUDGETED,
        )
        for group, case, measure in CASES
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
