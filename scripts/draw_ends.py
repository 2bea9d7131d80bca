"""Draw docs/ends.md from the table that tests/lab/test_ends_of_answers.py tries.

Usage: python scripts/draw_ends.py     (tests/lab/test_ends_of_answers.py checks that it is up to date)
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from lab.ends_of_answers import draw  # noqa: E402  # pyright: ignore[reportMissingImports]

if __name__ == "__main__":
    (ROOT / "docs" / "ends.md").write_text(draw(), encoding="utf-8")
    print("docs/ends.md")
