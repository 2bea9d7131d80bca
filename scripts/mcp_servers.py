"""Install the MCP servers that tests/mcp_servers/ talks to into .agents/mcp/, at the versions that stand there.

Usage: python scripts/mcp_servers.py
Exits with 2 without the node of the dev group.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents import places  # noqa: E402  # pyright: ignore[reportMissingImports]

PINS = ROOT / "tests" / "mcp_servers"
INSTALLED = places.INSTALLED / "mcp"


def main() -> int:
    npm = places.npm_command()
    if npm is None:
        print("node is missing: uv sync --all-extras installs it", file=sys.stderr)
        return 2
    INSTALLED.mkdir(parents=True, exist_ok=True)
    shutil.copy(PINS / "package.json", INSTALLED / "package.json")
    subprocess.run([*npm, "install", "--prefix", str(INSTALLED), "--no-audit", "--no-fund", "--silent"], check=True)
    pins = tomllib.loads((PINS / "pyproject.toml").read_text(encoding="utf-8"))
    for name, wanted in (("python", pins["project"]["dependencies"]), ("older", pins["dependency-groups"]["older"])):
        python = INSTALLED / name / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(INSTALLED / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
