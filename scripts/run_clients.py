"""Let real clients and SDKs use a tool through the gateway, before each family of upstreams, and draw docs/gateway-clients.md.

Usage: python scripts/run_clients.py --setup [--sdks]               install them into .agents/
       python scripts/run_clients.py [--client NAME ...]
       python scripts/run_clients.py --draw | --check               all of them; `--check` compares with the page
Exits with 1 if a client does not get the right answer, with 2 if one is not installed.
"""

import argparse
import asyncio
import contextlib
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents import places  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.client_table import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    CLIENTS,
    FAMILIES,
    FOLDER,
    PYTHON,
    SCRIPTS,
    SETUP,
    Run,
    Told,
    gateway_to_each,
    python_client,
    try_client,
)
from turnwise.lab import Lab  # noqa: E402

PAGE = ROOT / "docs" / "gateway-clients.md"
NODE = ("openai", "@anthropic-ai/sdk", "@google/genai", "@google/gemini-cli")
BEGIN, END = "<!-- the table: drawn by scripts/run_clients.py -->\n", "<!-- the end of the table -->\n"


def setup(*, only_sdks: bool) -> int:
    """The clients are installed in their pinned versions; `only_sdks`: those of npm, which the tests use."""
    npm = places.npm_command()
    if npm is None:
        print("setup: node is missing: install the dev group", file=sys.stderr)
        return 2
    folder = FOLDER / "node"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [f"{package}@{places.npm_versions()[package]}" for package in (NODE[:-1] if only_sdks else NODE)]
    flags = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    print(f"setup: {', '.join(wanted)}", flush=True)
    subprocess.run([*npm, "install", "--prefix", str(folder), *flags, *wanted], check=True)
    for environment, packages in () if only_sdks else PYTHON.items():
        print(f"setup: {', '.join(packages)}", flush=True)
        uv = str(Path(sys.executable).parent / "uv")
        if not environment.exists():
            subprocess.run([uv, "venv", "-q", str(environment), "--python", sys.executable], check=True)
        python = str(environment / "bin" / "python")
        subprocess.run([uv, "pip", "install", "-q", "--python", python, *packages], check=True)
    return 0


async def outcomes(names: Sequence[str]) -> dict[Run, Told]:
    """One after the other, before one gateway."""
    found: dict[Run, Told] = {}
    with tempfile.TemporaryDirectory(prefix="turnwise-clients-", ignore_cleanup_errors=True) as folder:
        async with Lab(SCRIPTS) as lab, gateway_to_each(Path(folder), lab=lab.url) as url:
            for name in names:
                home = Path(folder) / name
                home.mkdir()
                async with contextlib.AsyncExitStack() as stack:
                    python = None
                    if CLIENTS[name].is_python:
                        python = await stack.enter_async_context(python_client(name, home, url=url))
                    for number, (up, way) in enumerate(itertools.product(FAMILIES, CLIENTS[name].ways)):
                        run, own = Run(name, up, way), home / str(number)
                        own.mkdir()
                        found[run] = told = await try_client(run, own, url=url, lab=lab, python=python)
                        print(f"{name} to {up}{', streamed' * way}: {told.verdict}", flush=True)
                        if told.verdict != "right":
                            print(told.said, flush=True)
    return found


def drawn(found: dict[Run, Told]) -> str:
    lines = [f"| client | API | {' | '.join(FAMILIES.values())} |", "|---" * (len(FAMILIES) + 2) + "|"]
    for name, client in CLIENTS.items():
        cells = []
        for family in FAMILIES:
            verdicts = [found[Run(name, family, way)].verdict for way in client.ways]
            cells.append(verdicts[0] if len(set(verdicts)) == 1 else " / ".join(verdicts))
        lines.append(f"| {client.package} {client.version} | {client.api} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", action="append", choices=CLIENTS, help="only this one; can be repeated")
    parser.add_argument("--setup", action="store_true", help="install the clients")
    parser.add_argument("--sdks", action="store_true", help="with --setup: only the SDKs of npm")
    whole = parser.add_mutually_exclusive_group()
    whole.add_argument("--draw", action="store_true", help="write the page")
    whole.add_argument("--check", action="store_true", help="compare with the kept page")
    options = parser.parse_args()
    if options.setup:
        return setup(only_sdks=options.sdks)
    names = options.client or list(CLIENTS)
    if missing := [lack for name in names if (lack := CLIENTS[name].missing())]:
        print(f"missing: {', '.join(missing)}; run {SETUP}", file=sys.stderr)
        return 2
    if (options.draw or options.check) and options.client:
        parser.error("the page has all clients: leave out --client")
    found = asyncio.run(outcomes(names))
    if options.draw or options.check:
        kept = PAGE.read_text(encoding="utf-8")
        before, _, rest = kept.partition(BEGIN)
        page = before + BEGIN + "\n" + drawn(found) + "\n" + END + rest.partition(END)[2]
        if options.check and page != kept:
            print("docs/gateway-clients.md differs: draw it anew and look")
            return 1
        PAGE.write_text(page, encoding="utf-8")
    return 0 if all(told.verdict == "right" for told in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
