"""Count what the hot paths do and compare it with what is expected: no clock is looked at.

Instructions are counted where valgrind is (`callgrind`), calls of functions and kept blocks of memory everywhere. The figures
stand in `benchmarks/counting/expected.toml`, by Python's version and the machine's architecture; elsewhere, and with other
releases of the libraries whose instructions are counted with ours, the counts are shown, and only their flatness is compared
(the cost of a unit at large sizes over that at small ones). Exits with 1 where
a path became slower than the tolerance allows, 2 where it could not be counted or a name is that of no path.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

from counting.expected import FILE, Expected, key_of
from counting.hot_paths import HOT_PATHS, YARDSTICK, HotPath
from counting.ways import CannotCount, Count, count_calls, count_instructions, has_valgrind

TOLERANCE = 0.10
GRAIN = {"instructions": 0.0, "calls": 0.5, "blocks": 2.0}  # what a figure may be off besides: less is no finding
SLOWER, FASTER, BENT, SAME, NEW = "SLOWER", "faster", "NOT FLAT", "ok", "new"
BAD = (SLOWER, BENT)
SLOW = "TURNWISE_COUNTS_SLOWER"  # NAME or NAME=growing; `counting/child.py` does it


class Verdict(NamedTuple):
    count: Count
    expected: float | None  # None: nothing to compare with on this Python
    flatness: float | None  # the expected one
    word: str

    @property
    def change(self) -> float | None:
        return None if not self.expected else self.count.per_unit / self.expected - 1


def judge(count: Count, *, expected: float | None, flatness: float | None, tolerance: float) -> Verdict:
    """A path must not cost more than expected, nor bend more upwards; one that costs much less wants its figures updated."""
    word = SAME if expected is not None or flatness is not None else NEW
    grain = GRAIN[count.measure]
    if count.path.name == YARDSTICK:
        return Verdict(count, expected, flatness, word)
    if count.flatness is not None and flatness is not None and count.flatness > max(flatness, 1.0) * (1 + tolerance):
        word = BENT
    if expected is not None:
        if count.per_unit > expected * (1 + tolerance) + grain:
            word = SLOWER
        elif count.per_unit < expected * (1 - tolerance) - grain and word == SAME:
            word = FASTER
    return Verdict(count, expected, flatness, word)


def judge_all(counts: Sequence[Count], known: Expected, *, tolerance: float) -> list[Verdict]:
    elsewhere = known.other_build(counts) or known.other_libraries()
    return [
        judge(
            count,
            expected=None if elsewhere and count.measure == "instructions" else known.figure(count),
            flatness=known.flatness(count),
            tolerance=tolerance,
        )
        for count in counts
    ]


def table(verdicts: Sequence[Verdict]) -> list[str]:
    head = ("path", "one more", "expected", "counted", "change", "flat (then)", "verdict")
    rows = [head, *[_row(verdict) for verdict in verdicts]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [
        "  ".join(
            [
                cell.ljust(width) if column in (0, 1, 6) else cell.rjust(width)
                for column, (cell, width) in enumerate(cells)
            ]
        ).rstrip()
        for cells in [list(zip(row, widths, strict=True)) for row in rows]
    ]


def _row(verdict: Verdict) -> tuple[str, ...]:
    count, digits = verdict.count, 0 if verdict.count.measure == "instructions" else 1
    flat = "-" if count.flatness is None else f"{count.flatness:.2f}"
    then = "" if verdict.flatness is None or count.flatness is None else f" ({verdict.flatness:.2f})"
    return (
        count.path.name,
        count.path.unit,
        "-" if verdict.expected is None else f"{verdict.expected:,.{digits}f}",
        f"{round(count.per_unit, digits) + 0.0:,.{digits}f}",
        "-" if verdict.change is None else f"{verdict.change:+.1%}",
        flat + then,
        verdict.word,
    )


def report(verdicts: Sequence[Verdict], known: Expected) -> None:
    for measure in dict.fromkeys([verdict.count.measure for verdict in verdicts]):
        here = [verdict for verdict in verdicts if verdict.count.measure == measure]
        print(f"\n{measure} ({key_of(measure)})")
        if not known.knows(measure):
            print(f"no figures for {key_of(measure)} are known: counted, and compared by flatness only")
        elif all(verdict.expected is None for verdict in here):
            others = known.other_libraries()
            why = (
                f"other libraries: {', '.join(others)}" if others else "another build of this Python (by the yardstick)"
            )
            print(f"{why}; compared by flatness only, `--update` writes the figures anew")
        print("\n".join(table(here)))
    words = [verdict.word for verdict in verdicts]
    bad = [verdict for verdict in verdicts if verdict.word in BAD]
    print(
        f"\n{len(words)} figures: {words.count(SAME)} as expected, {len(bad)} worse, {words.count(FASTER)} much better"
    )
    if FASTER in words or NEW in words:
        print("figures that are much better or new: `python benchmarks/counts.py --update` writes them down")
    for verdict in bad:
        print(f"counts: {verdict.count.path.name}: {verdict.count.measure} {verdict.word.lower()}", file=sys.stderr)
    if bad and (others := known.other_libraries()):
        print(f"counts: other versions than then: {', '.join(others)}", file=sys.stderr)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="the paths whose name holds one of these")
    parser.add_argument("--way", choices=("all", "instructions", "calls"), default="all", help="what is counted")
    parser.add_argument(
        "--tolerance", type=float, default=TOLERANCE, help="how much worse is no regression (%(default)s)"
    )
    parser.add_argument("--update", action="store_true", help="write the figures down as the expected ones")
    parser.add_argument("--expected", type=Path, default=FILE, help="the file of expected figures")
    parser.add_argument("--list", action="store_true", help="name the paths and end")
    return parser.parse_args()


def misnamed(only: Sequence[str] | None, *, slower: str) -> str | None:
    """What was asked of paths that are not counted, or None: a guard that counts nothing would pass for ever."""
    names = [path.name for path in HOT_PATHS]
    if unknown := [text for text in only or () if not any(text in name for name in names)]:
        return f"--only: no path's name holds {_quoted(unknown)}; there are {_quoted(names)} (`--list`)"
    name, _, how = slower.partition("=")
    if slower and name not in (counted := [path.name for path in chosen(only)]):
        return f"{SLOW}: no path of those counted is called {_quoted([name])}; they are {_quoted(counted)} (`--list`)"
    if "=" in slower and how != "growing":
        return f"{SLOW}: `{slower}` is neither `{name}` nor `{name}=growing`"
    return None


def _quoted(names: Sequence[str]) -> str:
    return ", ".join([f"`{name}`" for name in names])


def chosen(only: Sequence[str] | None) -> list[HotPath]:
    return [path for path in HOT_PATHS if not only or path.name == YARDSTICK or any(text in path.name for text in only)]


def count_all(paths: Sequence[HotPath], *, way: str) -> list[Count]:
    counts: list[Count] = []
    if way != "calls":
        if has_valgrind():
            counts += count_instructions(paths)
        elif way == "instructions":
            raise CannotCount("there is no valgrind here: install it, or count `--way calls`")
        else:
            print("there is no valgrind here: instructions are not counted")
    if way != "instructions":
        counts += sorted(count_calls(paths), key=lambda count: count.measure, reverse=True)
    return counts


def main() -> int:
    options = arguments()
    if wrong := misnamed(options.only, slower=os.environ.get(SLOW, "")):
        print(f"counts: {wrong}", file=sys.stderr)
        return 2
    paths = chosen(options.only)
    if options.list:
        print("\n".join([path.name for path in paths]))
        return 0
    known = Expected.read(options.expected)
    try:
        counts = count_all(paths, way=options.way)
    except CannotCount as error:
        print(f"counts: {error}", file=sys.stderr)
        return 2
    verdicts = judge_all(counts, known, tolerance=options.tolerance)
    report(verdicts, known)
    if options.update:
        known.take(counts)
        known.write(options.expected)
        print(f"written down in {options.expected.name}")
        return 0
    return 1 if any(verdict.word in BAD for verdict in verdicts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
