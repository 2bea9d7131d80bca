"""Damage recorded streams event by event and judge what is left of them (promise assembly:lost-piece).

Usage: python scripts/damage.py [--sample | --dropped] [--family NAME] [--jobs N] [--corpus FOLDER]

Without --sample every event of every recorded stream with a call is damaged in every way; with it an even selection that takes
about half a minute. --dropped leaves out one event at a time, as a proxy does that swallows it, and tells which kinds of events
can be lost without a trace (docs/lost-events.md); it judges nothing.
Exits with 1 if anything was wrong, with 2 if the folder of recordings that was named has none; a checkout without recordings
says so.
"""

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import damage  # noqa: E402
from recordings import Row, interactions, rows  # noqa: E402

SAMPLE = 40  # damaged streams of each kind for one recorded stream, at most
SHOWN = 30


class Found(NamedTuple):
    """What one recorded stream showed: how many were tried of each kind, and what was wrong."""

    file: str
    family: str
    tried: Counter[str]
    lost: Counter[str]
    wrong: list[str]


def try_stream(row: Row, *, sample: int | None) -> Found:
    stream = damage.take_apart(row.path.read_bytes())
    found = Found(row.file, row.family, Counter(), Counter(), [])
    want = damage.read(row, stream.events)
    judge(row, stream, want=want, prefix="", sample=sample, found=found)
    for tried in damage.noisy(stream):
        got = damage.read(row, tried.chunks)
        found.tried[f"noise: {tried.kind}"] += 1
        if got != want:
            found.wrong.append(f"noise of the kind '{tried.kind}' changes the response: {got!r:.300}")
    if row.family == "openai_responses":
        bare = damage.without_wholes(stream)
        judge(row, bare, want=damage.read(row, bare.events), prefix="without wholes, ", sample=sample, found=found)
        if damage.is_numbered(stream):
            judge_all(row, damage.moved(stream), want=want, prefix="", sample=sample, found=found)
    return found


def judge(
    row: Row, stream: damage.Stream, *, want: damage.Outcome, prefix: str, sample: int | None, found: Found
) -> None:
    judge_all(row, damage.broken(stream), want=want, prefix=prefix, sample=sample, found=found)


def judge_all(
    row: Row,
    streams: Iterator[damage.Damaged],
    *,
    want: damage.Outcome,
    prefix: str,
    sample: int | None,
    found: Found,
) -> None:
    chosen = list(streams)
    if sample is not None and len(chosen) > sample:
        chosen = random.Random(row.file).sample(chosen, sample)  # the same ones each time
    for tried in chosen:
        kind = prefix + tried.kind
        got = damage.read(row, tried.chunks)
        found.tried[kind] += 1
        found.lost[kind] += got.lost
        found.wrong.extend([f"{kind}, event {tried.at}: {fault}" for fault in damage.faults(got, want=want)])


def drop_each(row: Row) -> tuple[str, Counter[str], Counter[str], Counter[str]]:
    """By kind of event: how many were left out; after how many a call could run that was never said, or a text counts as whole;
    and after how many a call is gone or broken, so that it does not run."""
    stream = damage.take_apart(row.path.read_bytes())
    want = damage.read(row, stream.events)
    tried: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for change in damage.moved(stream):
        if change.kind == "dropped":
            kind = damage.kind_of_event(stream.events[change.at])
            got = damage.read(row, change.chunks)
            tried[kind] += 1
            passes = got.is_answer and got.text != want.text
            wrong[kind] += passes or bool([call for call in got.calls - want.calls if call[0]])
            gone[kind] += got.is_answer and bool(want.calls - got.calls)
    return row.family, tried, wrong, gone


def tell_dropped(chosen: Sequence[Row], *, jobs: int) -> int:
    tried: dict[str, Counter[str]] = {}
    wrong: dict[str, Counter[str]] = {}
    gone: dict[str, Counter[str]] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for family, *counted in pool.map(drop_each, chosen):
            for all_of, some in zip((tried, wrong, gone), counted, strict=True):
                all_of.setdefault(family, Counter()).update(some)
    for family, kinds in sorted(tried.items()):
        for kind, count in sorted(kinds.items()):
            print(
                f"{family}: {kind}: of {count} dropped, {wrong[family][kind]} pass for whole, "
                f"{gone[family][kind]} leave a call out or broken"
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="an even selection in place of everything")
    parser.add_argument("--dropped", action="store_true", help="leave out events, and tell which losses nobody can see")
    parser.add_argument("--family", help="only this family")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use")
    parser.add_argument("--corpus", type=Path, help="the folder of recorded streams, else TURNWISE_CORPUS")
    asked = parser.parse_args()
    named = asked.corpus or os.environ.get("TURNWISE_CORPUS")
    corpus = Path(named or ROOT.parent / "shared" / "corpus")
    if not (corpus / "manifest.jsonl").exists():
        print(f"damage: nothing was damaged: no recorded streams at {corpus}; set TURNWISE_CORPUS", file=sys.stderr)
        return 2 if named else 0
    chosen = [row for row in rows(corpus) if row.expected["tool_calls"]] + [*interactions(corpus)]
    chosen = [row for row in chosen if asked.family in (None, row.family)]
    chosen.sort(key=lambda row: -row.path.stat().st_size)  # the long ones first, so that no process is left with one
    if asked.dropped:
        return tell_dropped(chosen, jobs=asked.jobs)
    work = partial(try_stream, sample=SAMPLE if asked.sample else None)
    tried: dict[str, Counter[str]] = {}
    lost: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for number, found in enumerate(pool.map(work, chosen), start=1):
            tried.setdefault(found.family, Counter()).update(found.tried)
            lost.setdefault(found.family, Counter()).update(found.lost)
            wrong += [f"{found.file}: {fault}" for fault in found.wrong]
            if sys.stderr.isatty():
                print(f"\r{number} of {len(chosen)} streams, {len(wrong)} wrong", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for family, kinds in sorted(tried.items()):
        for kind, count in sorted(kinds.items()):
            print(f"{family}: {kind}: {count} tried, {lost[family][kind]} told as lost")
    for fault in wrong[:SHOWN]:
        print(f"wrong: {fault}")
    if len(wrong) > SHOWN:
        print(f"wrong: and {len(wrong) - SHOWN} more")
    total = sum(sum(kinds.values()) for kinds in tried.values())
    print(f"damaged {total} streams of {len(chosen)} recordings: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
