"""`results.json` and the hand-written notes -> `docs/performance.md` and its plots. The same results give the same bytes.

Notes stand in `benchmarks/notes`: `opening.md` and `closing.md` for the page, `NAME.md` below the tables of a benchmark, and
`missed.toml` on missed targets. They survive; everything else on the page is written anew.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from harness.declaring import FOLDER, OTHER_API, Bars, Benchmark, Lines
from harness.drawing import bar_plot, line_plot
from harness.names import NAMES, benchmark_of
from harness.records import RESULTS, RatioRecord, Record, Section, read_results
from harness.targets import missed_lines, shown, target_lines, targets_of, word

PAGE = FOLDER.parent / "docs" / "performance.md"
NOTES = FOLDER / "notes"
OURS = "turnwise"
NO_PEERS = ("turnwise", "floor", "nothing")
NODE = "AI SDK"
T = TypeVar("T")


def draw_page(*, results: Path = RESULTS, folder: Path = PAGE.parent, notes: Path = NOTES) -> None:
    """Write the page and its plots from what the results hold."""
    page, plots = folder / PAGE.name, folder / PAGE.stem
    sections = read_results(results)
    known = [(benchmark_of(name), sections[name]) for name in NAMES if name in sections]
    targets = [target for benchmark, section in known for target in targets_of(benchmark, section)]
    lines = [
        "# Performance",
        *_note(notes, "opening"),
        *_headlines(known),
        *_machines(known),
        *target_lines(targets),
        *missed_lines(targets, notes=notes / "missed.toml"),
    ]
    plots.mkdir(parents=True, exist_ok=True)
    for earlier in plots.glob("*.svg"):
        earlier.unlink()
    for benchmark, section in known:
        lines += ["", f"## {benchmark.title}", *_wrapped(benchmark.about)]
        lines += _plots(benchmark, section, folder=plots)
        lines += tables_of(section, unmeasured=benchmark.unmeasured)
        lines += _note(notes, benchmark.name)
    lines += _note(notes, "closing")
    page.write_text("\n".join(lines).rstrip() + "\n")


def tables_of(section: Section, *, unmeasured: Mapping[tuple[str, str, str], str]) -> list[str]:
    """A table for each group and measure: systems down, cases across; then how turnwise stands to the others.

    A cell without a figure says why where `unmeasured` has it by group, case and system.
    """
    lines: list[str] = []
    for group, measure in _unique((record.group, record.measure) for record in section.records):
        chosen = [record for record in section.records if (record.group, record.measure) == (group, measure)]
        lines += ["", f"**{group}: {measure}, {chosen[0].unit}**", "", *_table(chosen, unmeasured=unmeasured)]
    if section.ratios:
        lines += ["", *_ratio_table(section.ratios)]
    failed = _unique((record.system, record.failed) for record in section.records if record.failed)
    lines += [f"\n{system} has no figure: {_cell(reason)}." for system, reason in failed]
    return lines


def _table(records: Sequence[Record], *, unmeasured: Mapping[tuple[str, str, str], str]) -> Iterator[str]:
    cases = _unique(record.case for record in records)
    by_place = {(record.system, record.case): record for record in records}
    yield f"| system | {' | '.join(cases)} |"
    yield f"|---|{'---:|' * len(cases)}"
    for system in _unique(record.system for record in records):
        row = [by_place.get((system, case)) for case in cases]
        why = [unmeasured.get((records[0].group, case, system), "") for case in cases]
        version = next((record.version for record in row if record is not None and record.version), "")
        name = f"**{system}**" if system == OURS else system
        cells = [_figure(record) if record else reason for record, reason in zip(row, why, strict=True)]
        yield f"| {name}{f' {version}' if version else ''} | {' | '.join(cells)} |"


def _figure(record: Record) -> str:
    if record.failed or record.median is None:
        return "failed"
    text = shown(record.median)
    spread = record.spread
    if spread is not None:
        text += f" ±{spread * 50:.0f}%"
    return _bold(text, record)


def _bold(text: str, record: Record) -> str:
    return f"**{text}**" if record.met is not None else text


def _ratio_table(ratios: Sequence[RatioRecord]) -> Iterator[str]:
    yield "| turnwise against | where | best of them | times less | target | met |"
    yield "|---|---|---|---:|---:|---|"
    for one in ratios:
        where = f"{one.group}, {one.case}: {one.measure}"
        times = shown(one.times) if one.times else "no figure"
        target = f"{one.at_least:g}" if one.at_least else ""
        yield f"| {one.name} | {where} | {one.system} | {times} | {target} | {word(one.met)} |"


def _headlines(known: Sequence[tuple[Benchmark, Section]]) -> Iterator[str]:
    rows: list[str] = []
    for benchmark, section in known:
        for headline in benchmark.headlines:
            where = (headline.group, headline.case, headline.measure)
            found = {
                record.system: record
                for record in section.records
                if (record.group, record.case, record.measure) == where and record.median is not None
            }
            if headline.system not in found:
                continue
            peers = [record for system, record in found.items() if _is_peer(system)]
            python = min((one for one in peers if not one.system.startswith(NODE)), key=_median, default=None)
            node = min((one for one in peers if one.system.startswith(NODE)), key=_median, default=None)
            ours = found[headline.system]
            floor = shown(_median(found["floor"])) if "floor" in found else ""
            rows.append(
                f"| {headline.what}, {ours.unit} | {_bold(shown(_median(ours)), ours)} | {floor} | {_beside(python, ours)} | "
                f"{_beside(node, ours)} |"
            )
    if rows:
        yield "\n| what | turnwise | floor | best Python peer | AI SDK |"
        yield "|---|---:|---:|---:|---:|"
        yield from rows


def _is_peer(system: str) -> bool:
    return not system.startswith(NO_PEERS) and not system.endswith(OTHER_API)


def _median(record: Record) -> float:
    return record.median or 0.0


def _beside(peer: Record | None, ours: Record) -> str:
    if peer is None:
        return ""
    name = "" if peer.system.startswith(NODE) else f"{peer.system} "
    return f"{name}{shown(_median(peer))} ({shown(_median(peer) / _median(ours))} x)"


def _machines(known: Sequence[tuple[Benchmark, Section]]) -> Iterator[str]:
    yield "\n## Machine and date"
    if not known:
        yield "Nothing is measured yet."
        return
    yield "| measured (UTC) | revision | processor | cores | kernel | Python | node | benchmarks |"
    yield "|---|---|---|---:|---|---|---|---|"
    rows: dict[tuple[str, ...], list[str]] = {}
    for benchmark, section in known:
        m = section.machine
        day = section.measured_at.partition(" ")[0]
        key = (day, section.revision, m.cpu, str(m.cores), m.kernel, m.python, m.node)
        rows.setdefault(key, []).append(f"{benchmark.name} (quick)" if section.quick else benchmark.name)
    for key, names in rows.items():
        yield f"| {' | '.join(key)} | {', '.join(names)} |"


def _plots(benchmark: Benchmark, section: Section, *, folder: Path) -> Iterator[str]:
    for plot in benchmark.plots:
        records = [
            record
            for record in section.records
            if (record.group, record.measure) == (plot.group, plot.measure) and record.median
            if isinstance(plot, Lines) or not plot.cases or record.case in plot.cases
        ]
        if not records:
            continue
        match plot:
            case Bars():
                drawn = bar_plot(
                    title=plot.title,
                    unit=records[0].unit,
                    bars=[(record.system, record.case, record.median or 0.0) for record in records],
                    ours=OURS,
                )
            case Lines():
                points: dict[str, list[tuple[float, float]]] = {}
                for record in records:
                    if record.x is not None:
                        points.setdefault(record.system, []).append((record.x, record.median or 0.0))
                drawn = line_plot(
                    title=plot.title, unit=records[0].unit, x_label=plot.x_label, points=points, ours=OURS
                )
        (folder / f"{plot.file}.svg").write_text(drawn)
        yield f"\n![{plot.title}]({folder.name}/{plot.file}.svg)"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width=128, break_long_words=False, break_on_hyphens=False)


def _note(folder: Path, name: str) -> Iterator[str]:
    path = folder / f"{name}.md"
    if path.exists():
        yield "\n" + path.read_text().strip() if name != "opening" else path.read_text().strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")


def _unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
