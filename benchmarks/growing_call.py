"""What one tool call costs as its arguments grow: work that repeats itself with each delta shows as an exponent of 2."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from harness.clients import argv_of
from harness.command import run
from harness.declaring import Benchmark, Headline, Lines, Measure, Options, Part
from provider.starting import start_provider
from provider.streams import PIECE, call_stream

KB = 1_000
SIZES = (10 * KB, 30 * KB, 100 * KB, 300 * KB, 1_000 * KB, 5_000 * KB)
QUICK_SIZES = (2 * KB, 4 * KB)
WARM_SIZE = KB
NAME = "CPU"
EXPONENT = "exponent"
GROUPS = {"openai_chat": "one call, Chat Completions", "anthropic_messages": "one call, Anthropic Messages"}
FROM = 100 * KB  # below it the request's own cost hides the growth
TARGETS_S = {1_000 * KB: 0.25, 5_000 * KB: 1.25}
CLIENTS = (
    # system, its module in clients/, way, family, largest size that is bearable
    ("turnwise", "decode_turnwise.py", "", "openai_chat", 5_000 * KB),
    ("turnwise", "decode_turnwise.py", "", "anthropic_messages", 5_000 * KB),
    ("floor", "decode_floor.py", "", "openai_chat", 5_000 * KB),
    ("floor", "decode_floor.py", "", "anthropic_messages", 5_000 * KB),
    ("openai", "decode_openai.py", "raw", "openai_chat", 1_000 * KB),
    ("openai .stream()", "decode_openai.py", "stream", "openai_chat", 300 * KB),
    ("anthropic", "decode_anthropic.py", "raw", "anthropic_messages", 1_000 * KB),
    ("anthropic .stream()", "decode_anthropic.py", "stream", "anthropic_messages", 300 * KB),
    ("pydantic-ai", "decode_pydantic_ai.py", "raw", "openai_chat", 300 * KB),
    ("pydantic-ai", "decode_pydantic_ai.py", "raw", "anthropic_messages", 300 * KB),
    ("openai-agents", "decode_openai_agents.py", "raw", "openai_chat", 300 * KB),
    ("langchain, summed", "decode_langchain.py", "sum", "openai_chat", 30 * KB),
    ("litellm", "decode_litellm.py", "raw", "openai_chat", 100 * KB),
    ("AI SDK (node)", "decode.js", "raw", "openai_chat", 1_000 * KB),
    ("AI SDK, messages", "decode.js", "ui", "openai_chat", 100 * KB),
)


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    sizes = QUICK_SIZES if options.quick else SIZES
    streams = {
        name_of(family, size): call_stream(family, size=size) for family in GROUPS for size in (WARM_SIZE, *sizes)
    }
    url = start_provider(stack, folder=options.folder, streams=streams)
    parts: list[Part] = []
    for system, module, way, family, largest in CLIENTS:
        is_peer = system not in ("turnwise", "floor")
        chosen = [size for size in sizes if size <= largest]
        kind = "tool arguments"
        task = {
            "url": url,
            "family": family,
            "way": way,
            "warm": {kind: name_of(family, WARM_SIZE)},
            "folder": str(options.folder),
            "cases": [
                {
                    "key": str(size),
                    "model": name_of(family, size),
                    "kind": kind,
                    "memory": False,
                    "characters": size,
                    "repeat": 1 if is_peer else max(1, min(20, 300 * KB // size)),
                }
                for size in chosen
            ],
        }
        parts.append(
            Part(
                system=system,
                argv=argv_of(module, task),
                measures=tuple([measure_of(size, family=family, is_ours=system == "turnwise") for size in chosen]),
                is_peer=is_peer,
            )
        )
    return parts


def name_of(family: str, size: int) -> str:
    return f"{family}-call-{size}"


def shown_size(size: float) -> str:
    return f"{size / 1e6:g} MB" if size >= 1_000 * KB else f"{size / KB:g} KB"


def measure_of(size: int, *, family: str, is_ours: bool) -> Measure:
    target = TARGETS_S.get(size) if is_ours else None
    return Measure(
        key=str(size), group=GROUPS[family], case=shown_size(size), name=NAME, unit="s", x=float(size), at_most=target
    )


def derive(medians: Mapping[tuple[str, str, str, str], float]) -> list[tuple[str, Measure, float]]:
    """How the cost grows with the size: a line fitted through the logarithms."""
    found: list[tuple[str, Measure, float]] = []
    for system, _, _, family, _ in CLIENTS:
        group = GROUPS[family]
        known = [
            (size, medians[group, shown_size(size), NAME, system])
            for size in SIZES
            if (group, shown_size(size), NAME, system) in medians
        ]
        if len(known) >= 2:
            found.append((system, exponent_measure(group, case="over its two largest sizes"), fitted(known[-2:])))
        if known and known[-1][0] == SIZES[-1]:
            target = 1.1 if system == "turnwise" else None
            measure = exponent_measure(group, case="100 KB to 5 MB", at_most=target)
            found.append((system, measure, fitted([one for one in known if one[0] >= FROM])))
    return found


def exponent_measure(group: str, *, case: str, at_most: float | None = None) -> Measure:
    return Measure(key="", group=group, case=case, name=EXPONENT, unit="power of the size", at_most=at_most)


def fitted(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the least-squares line through the logarithms."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


BENCHMARK = Benchmark(
    name="growing_call",
    title="One growing call",
    about=(
        f"One tool call whose arguments come in deltas of {PIECE} characters, over a socket, every delta handed to a watcher: "
        "CPU of the client's process. Sizes are left out where a peer would take more than a few seconds; nothing is "
        "extrapolated. Ways as in decoding a stream; LangChain's chunks are added up, which is how one gets at the "
        "call, and the AI SDK's parts are made messages by `readUIMessageStream`, as its chat hooks do."
    ),
    build=build,
    headlines=[
        Headline(what=f"a tool call of {size}", group=GROUPS["openai_chat"], case=size, measure=NAME)
        for size in ("100 KB", "1 MB", "5 MB")
    ],
    rounds=4,
    peer_rounds=2,
    derive=derive,
    plots=[
        Lines(
            file="growing-call",
            title="CPU for one tool call",
            group=GROUPS["openai_chat"],
            measure=NAME,
            x_label="bytes of arguments",
        ),
        Lines(
            file="growing-call-anthropic",
            title="CPU for one tool call, Anthropic Messages",
            group=GROUPS["anthropic_messages"],
            measure=NAME,
            x_label="bytes of arguments",
        ),
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
