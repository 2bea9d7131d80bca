"""Sit at the terminals of turnwise and three peers with one scripted model, and count questions, keys and requests.

Usage: python scripts/side_by_side.py --setup                   install the agents, and what their terminals and sandboxes need
       python scripts/side_by_side.py [--agent NAME ...] [--mode NAME ...] [--only edits|refactoring|probes ...] [--json FILE]
       python scripts/side_by_side.py --draw FILE               write docs/side-by-side.md from what `--json` kept in FILE
A run takes some minutes for each mode. What is known in FILE already is not run again.
"""

import argparse
import asyncio
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from side_by_side_page import drawn  # noqa: E402

from real_agents.errands import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    DONE,
    ERRANDS,
    PROBES,
    Found,
    Scene,
    furnish,
    furnish_home,
    is_right,
    results_in,
    script_of,
)
from real_agents.roster import AGENTS, Outing  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.running import Trial, base_env, gateway, watched  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.seats import DEBIAN, SEATS, Seat  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.sitting import PYTE, Sat, Sitting  # noqa: E402  # pyright: ignore[reportMissingImports]
from turnwise.lab import Lab  # noqa: E402
from turnwise.lab.script import ScriptedCall  # noqa: E402

PAGE = ROOT / "docs" / "side-by-side.md"
PROMPT = "Please rename old_name to new_name here."
PYTE_VERSION = "0.8.2"
PASSED = b"1 passed"  # the last run of the tests, as the model was told
FILES = 3  # of the folder in which probes are tried


def setup() -> int:
    """The agents in their pinned versions, pyte, and Debian's socat if the machine has none."""
    names = [name for name in dict.fromkeys(seat.agent for seat in SEATS) if name in AGENTS]
    words = [word for name in names for word in ("--agent", name)]
    subprocess.run([sys.executable, str(ROOT / "scripts" / "run_agents.py"), "--setup", *words], check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(PYTE), f"pyte=={PYTE_VERSION}"], check=True)
    if shutil.which("socat") is None and not DEBIAN.exists() and shutil.which("apt-get"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["apt-get", "download", "-q", "socat", "libwrap0"], cwd=folder, check=True)
            for package in Path(folder).glob("*.deb"):
                subprocess.run(["dpkg", "-x", str(package), str(DEBIAN.parent)], check=True)
    return 0


class Stage(NamedTuple):
    lab: Lab
    home: Path
    work: Path
    words: Sequence[str]
    env: dict[str, str]
    hosts: list[str]


@contextlib.asynccontextmanager
async def stage(seat: Seat, calls: Sequence[ScriptedCall], *, folder: Path) -> AsyncIterator[Stage]:
    """The lab, the gateway before it, and the agent's settings. `folder` has `home` and `work` already."""
    home, work = folder / "home", folder / "work"
    script = script_of(calls)
    route = seat.agent if seat.agent in AGENTS else "opencode"
    trial = Trial(route, "", "openai_chat")
    async with contextlib.AsyncExitStack() as stack:
        lab = await stack.enter_async_context(Lab([script]))
        away = await stack.enter_async_context(watched())
        url = await stack.enter_async_context(gateway(folder, lab=lab.url, trial=trial, origin="http://127.0.0.1:1"))
        outing = Outing(url=url, model=script.name, home=home, work=work, page=0, is_gateway=True)
        command = seat.prepare(outing)
        env = {**base_env(home, proxy=away.url), "TERM": "xterm-256color"}
        env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
        (home / ".profile").write_text(
            f"export PATH={shlex.quote(env['PATH'])}\n", encoding="utf-8"
        )  # for Codex's login shells
        del env["TMPDIR"]  # it would be the home, and sandboxes let commands write there
        yield Stage(lab, home, work, command.words, {**env, **command.env}, away.hosts)


@contextlib.contextmanager
def empty_folder() -> Any:
    """In the user's home. Sandboxes let commands write in /tmp, or hide it; and `.agents` is a guarded name of turnwise."""
    with tempfile.TemporaryDirectory(prefix="sitting-", dir=Path.home(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "home").mkdir()
        (folder / "work").mkdir()
        yield folder


async def sat(seat: Seat, on: Stage, *, for_all: bool = False, stops: bool = False, keep: Path | None = None) -> Sat:
    live = None if keep is None else keep.with_name("now.txt")
    async with Sitting(on.words, env=on.env, work=on.work, live=live) as sitting:
        found = await sitting.sit(
            seat.questions,
            ready=seat.ready,
            opening=seat.opening,
            prompt=PROMPT,
            done=DONE,
            count=on.lab.count,
            for_all=for_all,
            stops_at_question=stops,
        )
    if keep is not None:
        screens = [f"{one.screen}\n{'=' * 80} {one.keys}" for one in found.asked]
        keep.write_text("\n".join([*screens, found.screen]), encoding="utf-8")  # noqa: ASYNC240
    return found


async def run_errand(seat: Seat, name: str, way: str, *, keep: Path | None) -> dict[str, Any]:
    errand = ERRANDS[name]
    with empty_folder() as folder:
        furnish(folder / "work", files=errand.files)
        async with stage(seat, errand.steps(seat.hands, folder / "work"), folder=folder) as on:
            found = await sat(seat, on, for_all=way == "all", keep=keep)
            during = [one for one in found.asked if not one.first]
            first = [one for one in found.asked if one.first]
            return {
                "how": found.how,
                "questions": len(during),
                "keys": sum(len(one.keys) for one in during),
                "before": len(first),
                "keys_before": sum(len(one.keys) for one in first),
                "seconds": round(found.seconds, 1),
                "requests": on.lab.count(),
                "results": results_in(on.lab.requests),
                "right": is_right(folder / "work", files=errand.files),
                "passed": PASSED in on.lab.requests[-1].body,
                "asked_for": sorted(set(on.hosts)),
            }


async def run_probes(seat: Seat, *, keep: Path | None) -> dict[str, str]:
    """What became of each: `through`, `asks`, `held`. A question ends the session, and another begins with the next probe."""
    verdicts: dict[str, str] = {}
    while left := [name for name in PROBES if name not in verdicts]:
        verdicts |= await probe_some(seat, left, keep=keep)
    return verdicts


async def probe_some(seat: Seat, names: Sequence[str], *, keep: Path | None) -> dict[str, str]:
    with empty_folder() as folder, contextlib.ExitStack() as stack:
        furnish(folder / "work", files=FILES)
        furnish_home(folder / "home")
        reached: list[bool] = []

        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(True)
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        stack.callback(server.close)
        other = await asyncio.create_subprocess_exec("sleep", "600")
        stack.callback(lambda: other.returncode is None and other.kill())
        port = server.sockets[0].getsockname()[1]
        scene = Scene(home=folder / "home", work=folder / "work", port=port, pid=other.pid)
        calls = [seat.hands.shell(PROBES[name].command(scene)) for name in names]
        async with stage(seat, calls, folder=folder) as on:
            found = await sat(seat, on, stops=True, keep=keep)
            await asyncio.sleep(0.2)
            tried: int = results_in(on.lab.requests)
            said = "".join([one.body.decode("utf-8", "replace") for one in on.lab.requests])
            after = Found(scene, said, bool(reached), other.returncode is None)
        verdicts = {name: "through" if PROBES[name].came_through(after) else "held" for name in names[:tried]}
        if found.how == "asked":
            verdicts[names[tried]] = "asks"
        elif found.how != "done":
            verdicts[names[min(tried, len(names) - 1)]] = found.how
        return verdicts


def rows_wanted(seats: Sequence[Seat], only: Sequence[str]) -> list[tuple[Seat, str, str]]:
    """Seat, errand (or `probes`), way of answering. Both ways of answering are counted once, in the small errand."""
    return [
        (seat, name, way)
        for seat in seats
        for name in only
        for way in (("-",) if name == "probes" else ("all", "each") if name == "edits" and seat.asks else ("all",))
    ]


async def run(options: argparse.Namespace) -> int:
    kept: dict[str, Any] = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    if options.screens:
        options.screens.mkdir(parents=True, exist_ok=True)
    seats = [
        one for one in SEATS if one.agent in (options.agent or [one.agent]) and one.mode in (options.mode or [one.mode])
    ]
    for seat, name, way in rows_wanted(seats, options.only or [*ERRANDS, "probes"]):
        key = f"{seat.name}|{name}|{way}"
        if key in kept:
            continue
        if lack := seat.missing():
            print(f"{seat.name}: {lack} is not installed; run {sys.argv[0]} --setup", file=sys.stderr)
            return 2
        keep = options.screens / f"{key.replace('/', '-').replace('|', '-')}.txt" if options.screens else None
        began = time.monotonic()
        if name == "probes":
            kept[key] = await run_probes(seat, keep=keep)
        else:
            kept[key] = await run_errand(seat, name, way, keep=keep)
        print(f"{key} ({time.monotonic() - began:.0f} s): {json.dumps(kept[key])}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", action="store_true", help="install the agents")
    parser.add_argument("--agent", action="append", choices=sorted({seat.agent for seat in SEATS}))
    parser.add_argument("--mode", action="append", choices=sorted({seat.mode for seat in SEATS}))
    parser.add_argument("--only", action="append", choices=[*ERRANDS, "probes"])
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the figures there, and run only what is not there"
    )
    parser.add_argument("--screens", type=Path, metavar="FOLDER", help="keep the screen of each question there")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="write the page from these figures")
    options = parser.parse_args()
    if options.setup:
        return setup()
    if options.draw:
        PAGE.write_text(drawn(json.loads(options.draw.read_text(encoding="utf-8"))), encoding="utf-8")
        print(PAGE.relative_to(ROOT))
        return 0
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
