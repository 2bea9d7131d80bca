"""Draw docs/demo.svg, the picture of the README: what `turnwise demo` shows in a terminal.

Usage: python scripts/draw_demo.py     (tests/test_docs.py compares the picture's text with a demo)
"""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
COLUMNS = 110
# Readers' own fixed-width font: the picture loads nothing from elsewhere.
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def demo() -> str:
    """What the command writes, with its colours."""
    env = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    command = (sys.executable, "-m", "turnwise", "demo")
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True).stdout


def picture(said: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text.from_ansi(said))
    return FONT.sub("", console.export_svg(title="turnwise demo", unique_id="demo")).replace("Fira Code, ", "")


def main() -> None:
    PICTURE.write_text(picture(demo()), encoding="utf-8")
    print(f"docs/{PICTURE.name}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
