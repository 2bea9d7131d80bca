"""Every cut write of the test suite's matrix, drawn as a table: `python benchmarks/cut_writes.py [--told true] [--every]`.

Exits with 1 where a cell is wrong. Without `--every` one row stands for all finish reasons, with the largest figures.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lab.cut_cells import RECOVERS, TOLD, Cell, Measured, cells, measure

HEAD = (
    "| family | size | output limit | requests | tokens in | tokens out | out against the whole |\n"
    "|---|---|---|---|---|---|---|"
)


async def measured(chosen: list[Cell]) -> list[Measured]:
    found: list[Measured] = []
    for cell in chosen:
        with tempfile.TemporaryDirectory() as folder:
            found.append(await measure(cell, folder=Path(folder)))
    return found


def row(one: Measured, *, told: bool) -> str:
    cell = one.cell
    family = cell.family if cell.stream else f"{cell.family}, not streamed"
    claimed = f" ({cell.told})" if told else ""
    return (
        f"| {family}{claimed} | {cell.size:,} | {cell.limit:,} | {one.result.requests} | {one.input_tokens:,} | "
        f"{one.output_tokens:,} | {one.share:.2f} x |"
    )


def largest(found: list[Measured]) -> list[Measured]:
    """Of the cells that differ in the finish reason only, the one with the most output, then input."""
    groups: defaultdict[tuple[object, ...], list[Measured]] = defaultdict(list)
    for one in found:
        cell = one.cell
        groups[cell.recover, cell.family, cell.stream, cell.size, cell.limit].append(one)
    return [max(group, key=lambda one: (one.output_tokens, one.input_tokens)) for group in groups.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--told", choices=TOLD, nargs="+", default=list(TOLD), help="finish reasons claimed")
    parser.add_argument("--every", action="store_true", help="a row for each finish reason")
    options = parser.parse_args()
    found = asyncio.run(measured(cells(told=options.told)))
    for recover in RECOVERS:
        print(f'\n`recover="{recover}"`\n\n{HEAD}')
        rows = [one for one in found if one.cell.recover == recover]
        for one in rows if options.every else largest(rows):
            print(row(one, told=options.every))
    wrong = [one for one in found if one.wrong]
    for one in wrong:
        print(f"wrong: {one.cell}: {'; '.join(one.wrong)}", file=sys.stderr)
    print(f"\n{len(found)} cells, {len(wrong)} wrong.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
