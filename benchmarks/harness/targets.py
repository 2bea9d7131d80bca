"""Every target beside what was measured, and what there is to say about those that were missed."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.declaring import Benchmark
from harness.records import Section

OURS = "turnwise"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    what: str  # BENCHMARK: GROUP, CASE: MEASURE, with the system where it is another than turnwise
    bound: str
    figure: str
    met: bool | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why targets are missed and what it would take; `what` are beginnings of what they are called on the page."""

    what: tuple[str, ...]
    why: str


class Explanations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    missed: tuple[Explanation, ...] = ()


def targets_of(benchmark: Benchmark, section: Section) -> Iterator[Target]:
    for record in section.records:
        if record.at_most is None and record.at_least is None:
            continue
        bound = f"<= {record.at_most:g}" if record.at_most is not None else f">= {record.at_least:g}"
        system = "" if record.system == OURS else f" ({record.system})"
        yield Target(
            what=f"{benchmark.title}: {record.group}, {record.case}: {record.measure}{system}",
            bound=f"{bound} {record.unit}",
            figure="failed" if record.median is None else shown(record.median),
            met=record.met,
        )
    for ratio in section.ratios:
        if ratio.at_least is not None:
            yield Target(
                what=f"{benchmark.title}: {ratio.group}, {ratio.case}: against {ratio.name}",
                bound=f">= {ratio.at_least:g} x",
                figure="no figure" if ratio.times is None else f"{shown(ratio.times)} x ({ratio.system})",
                met=ratio.met,
            )


def target_lines(targets: Sequence[Target]) -> Iterator[str]:
    if not targets:
        return
    yield "\n## Targets\n"
    yield "| what | target | measured | met |"
    yield "|---|---:|---:|---|"
    yield from [f"| {one.what} | {one.bound} | {one.figure} | {word(one.met)} |" for one in targets]


def missed_lines(targets: Sequence[Target], *, notes: Path) -> Iterator[str]:
    """The missed targets by what explains them; an explanation whose targets are all met is left out."""
    left = [one for one in targets if one.met is False]
    if not left:
        return
    yield "\n## Missed targets: why, and what it would take"
    explanations = msgspec.convert(tomllib.loads(notes.read_text()), Explanations).missed if notes.exists() else ()
    for explanation in explanations:
        explained = [one for one in left if one.what.startswith(explanation.what)]
        if explained:
            left = [one for one in left if one not in explained]
            yield ""
            yield from map(_bullet, explained)
            yield f"\n{explanation.why.strip()}"
    if left:
        yield ""
        yield from map(_bullet, left)
        yield "\nNot explained yet."


def _bullet(target: Target) -> str:
    return f"- {target.what}: {target.figure}, target {target.bound}"


def shown(value: float) -> str:
    """Three digits, thousands grouped, no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


def word(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "**no**"
