"""Real worker processes over a real database, and a world in which each effect leaves one line."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import psycopg

from terminal.forking import start
from terminal.running import with_marks
from turnwise.lab import Script, parse_script
from waits import HANG_S

LOOK_S = 4.0
PAUSE_S = 0.05

AGENTS = '''
import asyncio
import json
import os
import sys
from pathlib import Path

from turnwise import Agent, Budget, DepsFactory, Journal, MaxRequests, Model, RetryPolicy, Subagents, tool
from turnwise.agent.agent_options import GROUP_OF, OF_MODEL

WORLD = Path(os.environ["WORLD"])


def note(line):
    with (WORLD / "effects.txt").open("a") as file:
        file.write(line + "\\n")


def say(**what):
    sys.stderr.write(json.dumps(what) + "\\n")
    sys.stderr.flush()


@tool(effect="write")
async def do(name: str) -> str:
    """Do something that must not be done twice."""
    note(name)
    return f"did {name}"


@tool(effect="write")
async def slow(name: str) -> str:
    """Do something, and then wait until the test says go."""
    note(name)
    say(happening="entered", text=name)
    while not (WORLD / "go").exists():
        await asyncio.sleep(0.02)
    return f"did {name}"


MOMENT_S = float(os.environ.get("MOMENT_S", "0.05"))


@tool(effect="write")
async def work(name: str) -> str:
    """Do something, which takes a moment."""
    note(name)
    look_who_has(name)
    await asyncio.sleep(MOMENT_S)
    return f"did {name}"


def look_who_has(name):
    """Whether another worker had the turn when this one's effect happened: a hit of the window that is left."""
    owner = owners.of(name.rpartition("-")[0])
    if owner is not None and owner.split(":")[1] != str(os.getpid()):
        with (WORLD / "window.txt").open("a") as file:
            file.write(name + "\\n")


class Owners:
    """Who has a turn now. None where the database cannot say."""

    connection = None

    def of(self, prompt):
        import psycopg

        try:
            if self.connection is None:
                self.connection = psycopg.connect(os.environ["OWNERS"], autocommit=True)
            row = self.connection.execute(
                "select owner from turnwise.turn where prompt = %s and status = 'running'", (prompt,)
            ).fetchone()
            return row and row[0]
        except psycopg.Error:
            self.connection = None
            return None


owners = Owners()


def grouped(tools, agents=None, **flat):
    """The options of `Agent`, from a flat list."""
    groups = {}
    for name, value in flat.items():
        if name in GROUP_OF:
            groups.setdefault(GROUP_OF[name], {})[name] = value
        else:
            groups[name] = value
    return {"tools": [*tools, *([Subagents(agents)] if agents else [])], **groups}


def agent(model, *, limits=None, deps_type=None, **more):
    parts = {OF_MODEL[name]: more.pop(name) for name in [*more] if name in OF_MODEL}
    asked = Model(f"openai_chat:{model}", base_url=os.environ["LAB"], api_key="lab", **parts)
    groups = grouped([do, slow, work], **more, retry=RetryPolicy(attempts=3))
    return Agent(asked, limits=limits, deps_type=deps_type, **groups)


plain = agent("plain")


def waits():
    return agent("waits")


def parent():
    return agent("parent", agents={"helper": agent("waits")})


def named():
    return agent("named")


def short():
    return agent("short")


def budgeted():
    journal = Journal(os.environ["OWNERS"])
    return agent("waits", limits=Budget(MaxRequests(9), per_run=MaxRequests(6), journal=journal, name="team"))


def labelled():
    return agent("plain", deps_type=DepsFactory(lambda key: note("for-" + key.labels.get("user", "nobody"))))


async def breaks(messages):
    raise ValueError("hunter2")


def broken():
    return agent("plain", opening=breaks)
'''
PLAIN = """
title = "plain"
[[steps]]
calls = [{ name = "do", arguments = { name = "a" } }]
[[steps]]
text = "Done: {results}"
"""
WAITS = """
title = "waits"
[[steps]]
calls = [{ name = "do", arguments = { name = "before" } }]
[[steps]]
calls = [{ name = "slow", arguments = { name = "middle" } }]
[[steps]]
calls = [{ name = "do", arguments = { name = "after" } }]
[[steps]]
text = "Done: {results}"
"""
PARENT = """
title = "parent"
[[steps]]
calls = [{ name = "task", arguments = { agent = "helper", prompt = "Help." } }]
[[steps]]
text = "The helper says: {results}"
"""
NAMED = """
title = "named"
[recall]
name = "(turn-[0-9]+)"
[[steps]]
calls = [{ name = "slow", arguments = { name = "{name}-a" } }]
[[steps]]
calls = [{ name = "do", arguments = { name = "{name}-b" } }, { name = "do", arguments = { name = "{name}-c" } }]
[[steps]]
text = "Done: {name}"
"""
SHORT = """
title = "short"
[recall]
name = "(turn-[0-9]+)"
[[steps]]
calls = [{ name = "work", arguments = { name = "{name}-a" } }]
[[steps]]
calls = [{ name = "work", arguments = { name = "{name}-b" } }, { name = "work", arguments = { name = "{name}-c" } }]
[[steps]]
text = "Done: {name}"
"""
TEXTS = {"plain": PLAIN, "waits": WAITS, "parent": PARENT, "named": NAMED, "short": SHORT}

OTHERS = ("broken", "budgeted", "labelled")
OWN_AGENTS = tuple([f"{name}=farm_agents:{name}" for name in (*TEXTS, *OTHERS)])


class Place(Protocol):
    """Where a worker is started."""

    @property
    def folder(self) -> Path: ...
    @property
    def environment(self) -> dict[str, str]: ...


def scripts() -> list[Script]:
    return [parse_script(text, name=name) for name, text in TEXTS.items()]


def until(is_so: Callable[[], bool]) -> None:
    """Fails where it does not come to be so."""
    pause = threading.Event()
    give_up = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < give_up
        pause.wait(PAUSE_S)


class WorkerProcess:
    """`turnwise worker` in a folder that has the agents; a `real` one is started by the system. `end` it."""

    def __init__(self, farm: "Place", *options: str, real: bool = False, agents: Sequence[str] = OWN_AGENTS) -> None:
        words = ("worker", *[part for one in agents for part in ("--agent", one)], "--json", *options)
        self.process = start(words, cwd=farm.folder, env=farm.environment, stdout=subprocess.DEVNULL, real=real)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, happening: str) -> dict[str, Any]:
        """The next line of its log that says so."""
        return self.until_all(happening)[happening]

    def until_all(self, *happenings: str) -> dict[str, dict[str, Any]]:
        """The next line of its log for each of these, which come in any order."""
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(happenings):
            line = self._lines.get(timeout=HANG_S)
            assert line is not None, f"it ended without all of {happenings}: {''.join(self._said)}"
            self._said.append(line)
            event = json.loads(line) if line.startswith("{") else {}
            if (happening := event.get("happening")) in happenings:
                found.setdefault(happening, event)
        return found

    def until_or_idle(self, *happenings: str) -> None:
        """On return its log has said one of these, or nothing for LOOK_S: others have all turns."""
        while (line := self._next_of_some()) is not None:
            if line.startswith("{") and json.loads(line)["happening"] in happenings:
                return

    def _next_of_some(self) -> str | None:
        try:
            return self._lines.get(timeout=LOOK_S)
        except queue.Empty:
            return None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        code = self.process.wait(HANG_S)
        self._reader.join(HANG_S)
        return code

    def rest(self) -> str:
        """What it said since; it has ended."""
        lines: list[str] = []
        while not self._lines.empty() and (line := self._lines.get()) is not None:
            lines.append(line)
        return "".join(lines)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


class Farm:
    """A database, a lab, a world, and the workers that a test starts."""

    def __init__(self, folder: Path, *, dsn: str, url: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.environment = {
            **os.environ,
            "TURNWISE_DATABASE": dsn,
            "OWNERS": dsn,
            "LAB": f"{url}/v1",
            "WORLD": str(folder),
            "NO_COLOR": "1",
            "SSL_CERT_FILE": os.devnull,  # else each process reads the certificates of all the world
        }
        (folder / "farm_agents.py").write_text(AGENTS)
        self._workers: list[WorkerProcess] = []

    def worker(self, *options: str) -> WorkerProcess:
        """It is ready on return."""
        found = WorkerProcess(self, *options)
        self._workers.append(found)
        found.until("ready")
        return found

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of turnwise."""
        process = start(words, cwd=self.folder, env=self.environment)
        try:
            out, err = process.communicate(timeout=HANG_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def approves(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The command of somebody who was shown the calls first: it alone allows none."""
        shown = self.run(*words)
        assert shown.returncode == 2, shown.stderr
        return self.run(*with_marks(words, shown=shown.stderr))

    def submit(self, agent: str, *words: str, prompt: str = "Go.") -> str:
        done = self.run("submit", "--agent", agent, *words, prompt)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def ended(self, session: str) -> dict[str, Any]:
        """The last line of `status --follow --json`, with the turns as they stand and the exit code."""
        done = self.run("status", session, "--follow", "--json")
        assert done.returncode in (0, 1), done.stderr
        return {**json.loads(done.stdout.splitlines()[-1]), "turns": self.turns(session), "code": done.returncode}

    def turns(self, session: str) -> list[dict[str, Any]]:
        done = self.run("status", session, "--json")
        return [line for line in map(json.loads, done.stdout.splitlines()) if "status" in line]

    def lapse(self) -> None:
        """The time of every lease is over: of workers that were killed before, so that nobody waits for it."""
        with psycopg.connect(self.environment["TURNWISE_DATABASE"], autocommit=True) as connection:
            connection.execute("update turnwise.turn set lease_until = '-infinity' where status = 'running'")

    def go(self) -> None:
        """Tools that wait for the test go on."""
        (self.folder / "go").touch()

    def effects(self) -> list[str]:
        return self._lines("effects.txt")

    def hits(self) -> list[str]:
        """Effects that happened after another worker had taken the turn over."""
        return self._lines("window.txt")

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
