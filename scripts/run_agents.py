"""Let real agents write files at the lab, with and without the gateway, and draw docs/gateway-agents.md.

Usage: python scripts/run_agents.py --setup [--agent NAME ...]   install them into .agents/ (not Debian's chromium)
       python scripts/run_agents.py [--agent NAME ...] [--case NAME ...] [--json]
       python scripts/run_agents.py --draw | --check             all of them, some minutes; `--check` compares with the page
Exits with 1 if an agent does not write the right files through the gateway, with 2 if one is not installed.
"""

import argparse
import asyncio
import difflib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents import places  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.cases import CASES, NOTHING_TO_GO_ON  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.roster import AGENTS  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.running import WITHOUT, Outcome, Trial, run_trial  # noqa: E402  # pyright: ignore[reportMissingImports]

PAGE = ROOT / "docs" / "gateway-agents.md"
AT_ONCE, WAITING_AT_ONCE = 3, 16  # a stalled stream costs nothing but time
# A client of an editor's protocol, and an engine: no agents, so they stand on no page.
OTHERS = ("acpx", "@restatedev/restate-server")
PYTHON_AGENTS = frozenset({"langchain", "pydantic-ai"})
FAMILIES = {
    "openai_chat": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic_messages": "Anthropic",
    "gemini": "Gemini",
}
INTRO = """# What real agents make of broken streams, with and without the gateway
<!-- drawn by scripts/run_agents.py from a run; change the script, not this page -->

The lab plays a model that wants files. It says its calls with the names of each agent's own tools. A cell says what became of the
files, first with the gateway, then without it.

- With the gateway: its upstream speaks the family in the first row.
- Without it: the agent asks the lab itself, which then speaks the agent's own family. The first four cases are malformed in Chat
  Completions alone, so Codex and Claude Code have nothing to trip over there.
- Gemini's API sends a call whole, so nothing is there to go on with where its model's limit cuts one.

`right`: each file has the wanted content, and the agent ended well. `error`: the agent ended with one. `loop`: it asked again and
again, with the same result. `hang`: it did nothing for three minutes.

`python scripts/run_agents.py --setup` installs the agents (deep-chat needs Debian's `chromium` besides), and
`python scripts/run_agents.py` runs them. They reach loopback alone: their own settings switch off what they want besides. A
run names the hosts that an agent asked for in spite of that.
"""


def setup(names: Iterable[str]) -> int:
    """The agents are installed in their pinned versions."""
    python, node = False, []
    for name in names:
        python = python or name in PYTHON_AGENTS
        node += [] if name in PYTHON_AGENTS else [AGENTS[name].package if name in AGENTS else name]
    if node:
        npm = places.npm_command()
        if npm is None:
            print("setup: node is missing: install the dev group", file=sys.stderr)
            return 2
        folder = places.INSTALLED / "node"
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [f"{package}@{places.npm_versions()[package]}" for package in node]
        print(f"setup: {', '.join(wanted)} (some hundred MB)", flush=True)
        flags = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run([*npm, "install", "--prefix", str(folder), *flags, *wanted], check=True)
    if python:
        folder = places.INSTALLED / "python"
        wanted = [f"{package}=={version}" for package, version in places.python_versions().items()]
        print(f"setup: {', '.join(wanted)}", flush=True)
        if not places.PYTHON.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(places.PYTHON), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)
        shutil.copy(places.HERE / "pyproject.toml", folder / "pyproject.toml")
    print("setup: done", flush=True)
    return 0


def trials(agents: Iterable[str], cases: Iterable[str]) -> list[Trial]:
    """Those that wait longest come first."""
    chosen = [
        Trial(agent, case, upstream)
        for case in cases
        for agent in agents
        for upstream in (*AGENTS[agent].upstreams, WITHOUT)
    ]
    return sorted(chosen, key=lambda trial: trial.case != "stall")


async def outcomes(chosen: Sequence[Trial], *, as_json: bool) -> dict[Trial, Outcome]:
    """Each in a folder of its own, some side by side."""
    busy, waiting = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(WAITING_AT_ONCE)

    async def one(trial: Trial) -> Outcome:
        async with waiting if trial.case == "stall" else busy:
            with tempfile.TemporaryDirectory(prefix="turnwise-agents-", ignore_cleanup_errors=True) as folder:
                outcome = await run_trial(trial, Path(folder))
        if as_json:
            print(json.dumps({**trial._asdict(), **outcome._asdict()}), flush=True)
        else:
            asked = f"; asked for {', '.join(outcome.asked)}" if outcome.asked else ""
            print(f"{said_of(trial)}: {outcome.verdict}{asked}", flush=True)
        return outcome

    return dict(zip(chosen, await asyncio.gather(*[one(trial) for trial in chosen]), strict=True))


def said_of(trial: Trial) -> str:
    way = f"through the gateway to {FAMILIES[trial.upstream]}" if trial.upstream else "without the gateway"
    return f"{trial.agent}, {trial.case}, {way}"


def drawn(found: dict[Trial, Outcome]) -> str:
    columns = [(name, upstream) for name in AGENTS for upstream in AGENTS[name].upstreams]
    heads = [f"{AGENTS[name].title} {AGENTS[name].version}" for name, _ in columns]
    ways = [FAMILIES[upstream] for _, upstream in columns]
    rows = [
        " | ".join(
            [
                f"| {CASES[case].title}",
                *[
                    f"{found[Trial(name, case, upstream)].verdict} / {found[Trial(name, case, WITHOUT)].verdict}"
                    for name, upstream in columns
                ],
            ]
        )
        for case in CASES
    ]
    table = [f"| with / without | {' | '.join(heads)} |", "|---" * (len(columns) + 1) + "|"]
    table += [f"| upstream of the gateway | {' | '.join(ways)} |", *[f"{row} |" for row in rows]]
    return INTRO + "\n" + "\n".join(table) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    only = "only this one; can be repeated"
    parser.add_argument("--agent", action="append", choices=[*AGENTS, *OTHERS], help=only)
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; can be repeated")
    parser.add_argument("--setup", action="store_true", help="install the agents")
    parser.add_argument("--json", action="store_true", help="one line a run, with the end of what the agent said")
    whole = parser.add_mutually_exclusive_group()
    whole.add_argument("--draw", action="store_true", help="write the page")
    whole.add_argument("--check", action="store_true", help="compare with the kept page")
    options = parser.parse_args()
    agents, cases = options.agent or list(AGENTS), options.case or list(CASES)
    if options.setup:
        return setup(agents)
    if others := [name for name in agents if name in OTHERS]:
        parser.error(f"{others[0]} is no agent: it can only be installed (--setup)")
    if (options.draw or options.check) and (options.agent or options.case):
        parser.error("the page has all agents and cases: leave out --agent and --case")
    missing = [lack for name in agents if (lack := AGENTS[name].missing())]
    if missing:
        print(f"missing: {', '.join(dict.fromkeys(missing))}; run {places.SETUP}", file=sys.stderr)
        return 2
    found = asyncio.run(outcomes(trials(agents, cases), as_json=options.json))
    if options.draw:
        PAGE.write_text(drawn(found), encoding="utf-8")
        print(PAGE.relative_to(ROOT))
    expected = [
        trial for trial in found if trial.upstream != WITHOUT and (trial.case, trial.upstream) not in NOTHING_TO_GO_ON
    ]
    wrong = {trial: found[trial] for trial in expected if found[trial].verdict != "right"}
    for trial, one in wrong.items():
        print(f"\n{said_of(trial)}: {one.verdict}, after {one.requests} requests. Its last words:\n{one.said}")
    if options.check and (difference := differing(found)):
        print(f"\n{PAGE.relative_to(ROOT)} differs: draw it anew and look\n{difference}")
        return 1
    return 1 if wrong else 0


def differing(found: dict[Trial, Outcome]) -> str:
    """The lines of the page that these outcomes would change; empty if there are none."""
    kept = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    return "\n".join(
        difflib.unified_diff(kept.splitlines(), drawn(found).splitlines(), "kept", "now", n=0, lineterm="")
    )


if __name__ == "__main__":
    sys.exit(main())
