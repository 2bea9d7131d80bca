"""Run the probes of tests/sandbox_probes.py in each sandbox, and draw what they found into docs/sandbox.md.

Usage: python scripts/draw_probes.py     (needs bubblewrap and Landlock; tests/tools/sandbox/test_sandbox_probes.py compares)
"""

import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from sandbox_probes import PROBES, gets_through  # noqa: E402
from sandboxes import WALLS, sandbox_called  # noqa: E402

PAGE = ROOT / "docs" / "sandbox.md"
BEGIN = "<!-- drawn by scripts/draw_probes.py from a run; change the probes, not this table -->\n"
END = "<!-- end of the drawn table -->\n"
HEADS = {
    "bubblewrap": "bubblewrap",
    "bubblewrap-alone": "bubblewrap without Landlock",
    "landlock": "Landlock",
    "landlock-1": "Landlock, version 1",
    "none": "none",
}


async def run_all(name: str) -> dict[str, bool]:
    """By the text of each probe, whether it got through."""
    sandbox = sandbox_called(name)
    found: dict[str, bool] = {}
    for probe in PROBES:
        with tempfile.TemporaryDirectory(prefix="turnwise-probes-") as folder:
            found[probe.text] = await gets_through(probe, sandbox=sandbox, root=Path(folder))
    return found


def lines(found: Mapping[str, Mapping[str, bool]]) -> Iterator[str]:
    yield f"| can a command ... | {' | '.join(HEADS[name] for name in found)} |\n"
    yield f"|{'---|' * (len(found) + 1)}\n"
    for group, probes in groupby(PROBES, key=lambda probe: probe.group):
        yield f"| **{group}** |{' |' * len(found)}\n"
        for probe in probes:
            cells = " | ".join("yes" if by_text[probe.text] else "no" for by_text in found.values())
            yield f"| {probe.text} | {cells} |\n"


def main() -> None:
    found = {name: asyncio.run(run_all(name)) for name in (*WALLS, "none")}
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "".join(lines(found)) + END + after, encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
