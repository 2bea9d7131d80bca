"""Two ways to count what a hot path does: instructions under callgrind, and calls and kept blocks by Python itself.

Each gives, for a path, one total for each of its sizes; a slope between two sizes has no start-up in it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from counting.hot_paths import FOLDER, HotPath

CHILD = Path(__file__).with_name("child.py")
LONGEST_S = 900.0
FEW = 2
MEASURES = ("instructions", "calls", "blocks")


class Count(NamedTuple):
    """What one more unit costs, and how that is at large sizes against small ones (1: the same)."""

    measure: str
    path: HotPath
    per_unit: float
    flatness: float | None


class CannotCount(Exception):
    """The counted process did not do what it should; the text holds what it said."""


def has_valgrind() -> bool:
    return shutil.which("valgrind") is not None


def count_calls(paths: Sequence[HotPath]) -> list[Count]:
    """Calls of functions for each unit, and blocks of memory that the outcome keeps for it."""
    with tempfile.TemporaryDirectory() as folder:
        found = json.loads(_run([sys.executable, str(CHILD), "calls", *_names(paths)], folder=folder))
    counts: list[Count] = []
    for path in paths:
        calls, blocks = zip(*found[path.name], strict=True)
        counts.append(slope_of("calls", path, calls))
        counts.append(slope_of("blocks", path, blocks)._replace(flatness=None))
    return counts


def count_instructions(paths: Sequence[HotPath]) -> list[Count]:
    """Instructions of the processor for each unit. Repeatable for the same programs: addresses and hashes do not vary, and
    the two processes that count a part of the paths each, side by side, do not touch each other's figures."""
    paths = in_order(paths)
    # decoding before it, whole loops after it: they take about as long; few take less than another start under valgrind
    cut = len(paths) * 5 // 8 if len(paths) > FEW else 0
    parts = [part for part in (paths[:cut], paths[cut:]) if part]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(parts)) as side_by_side:
        _run([sys.executable, str(CHILD), "prepare", *_names(paths)], folder=folder)
        outs = [Path(folder, f"part-{place}") for place in range(len(parts))]
        found = [*side_by_side.map(lambda part, out: _instructions(part, folder=folder, out=out), parts, outs)]
    return [count for counts in found for count in counts]


def _instructions(paths: Sequence[HotPath], *, folder: str, out: Path) -> list[Count]:
    out.mkdir()
    command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out / 'out'}"]
    _run([*command, sys.executable, str(CHILD), "marks", *_names(paths)], folder=folder)
    totals = read_totals(out)
    # the first is the start; then in turn what stands between the two marks of a size, and what stands between sizes
    between = totals[1::2]
    if len(totals) != 2 * sum([len(path.sizes) for path in paths]):
        raise CannotCount(
            f"callgrind gave {len(totals)} figures for {len(paths)} paths: something else calls `getppid`"
        )
    return [slope_of("instructions", path, between[place * 3 : place * 3 + 3]) for place, path in enumerate(paths)]


def in_order(paths: Sequence[HotPath]) -> list[HotPath]:
    from counting.hot_paths import HOT_PATHS

    return [path for path in HOT_PATHS if path in paths]


def slope_of(measure: str, path: HotPath, totals: Sequence[float]) -> Count:
    small, middle, large = path.sizes
    first = (totals[1] - totals[0]) / (middle - small)
    second = (totals[2] - totals[1]) / (large - middle)
    return Count(measure, path, per_unit=second, flatness=second / first if first > 0 else None)


def read_totals(folder: Path) -> list[int]:
    """What callgrind counted up to each mark since the one before, in order; what came after the last is left out."""
    parts = sorted(folder.glob("out.*"), key=lambda file: int(file.suffix[1:]))
    found: list[int] = []
    for part in parts:
        total = re.search(r"^totals: (\d+)", part.read_text(errors="replace"), re.MULTILINE)
        if total is None:
            raise CannotCount(f"callgrind's `{part.name}` has no total")
        found.append(int(total[1]))
    return found


def _names(paths: Sequence[HotPath]) -> list[str]:
    return [path.name for path in paths]


def _run(command: Sequence[str], *, folder: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": "0", FOLDER: folder}  # the order of sets is part of what is counted
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        raise CannotCount(f"`{command[0]}` took longer than {LONGEST_S:g} s") from None
    if done.returncode:
        raise CannotCount(f"`{command[0]}` ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout
