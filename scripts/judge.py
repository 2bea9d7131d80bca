"""Compare the judge of command lines with a real bash: what it calls harmless only reads (promise safe:judged).

Usage: python scripts/judge.py [--lines N] [--seed S] [--minutes M]

Draws command lines from all of bash's grammar, runs those that the read-only default policy allows in a real bash in bubblewrap,
and reads from strace what they opened, wrote and ran. Goes on until N of them have run, or M minutes are over. Prints the share
judged harmless and each escape. Exits with 1 if there was an escape, with 2 if the tools are missing.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from drawn_commands import Drawer  # noqa: E402
from judged_shell import Escape, escapes, is_harmless, make_room, missing_tools  # noqa: E402

BATCH = 250  # lines that run in one sandbox
SHOWN = 30


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the judge of command lines with a real bash.")
    parser.add_argument("--lines", type=int, default=2_000, help="command lines judged harmless that are run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="end after so many minutes; 0: not before all lines ran"
    )
    parser.add_argument("--only-judge", action="store_true", help="run nothing, tell the share of --lines drawn lines")
    given = parser.parse_args()
    missing = "" if given.only_judge else missing_tools()
    if missing:
        print(f"nothing was run: {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder).resolve(), given=given)


def compare(folder: Path, *, given: argparse.Namespace) -> int:
    room = make_room(folder / "room")
    drawer = Drawer(given.seed)
    began = time.monotonic()
    found: list[Escape] = []
    drawn = ran = 0
    if given.only_judge:
        harmless = sum(is_harmless(drawer.line(), room=room) for _ in range(given.lines))
        print(f"{given.lines:,} lines drawn, {harmless:,} judged harmless ({harmless / given.lines:.1%})")
        return 0
    while ran < given.lines and not (given.minutes and time.monotonic() - began > 60 * given.minutes):
        batch: list[str] = []
        while len(batch) < min(BATCH, given.lines - ran):
            line = drawer.line()
            drawn += 1
            if is_harmless(line, room=room):
                batch.append(line)
        new = escapes(batch, room=room, log=folder / "log")
        for one in new[: max(0, SHOWN - len(found))]:
            print(f"ESCAPE {one.did}\n  {one.line!r}")
        found += new
        ran += len(batch)
        took = time.monotonic() - began
        print(f"{drawn:,} drawn, {ran:,} ran, {len(found)} escapes, {took:.0f} s", flush=True)
    share = ran / drawn if drawn else 0.0
    print(
        f"{drawn:,} lines drawn, {ran:,} judged harmless ({share:.1%}) and run, {len(found)} escapes (seed {given.seed})"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
