"""Turns with keys under fire: processes are killed and frozen, tasks are cancelled, and every key is asked for several times.

Usage: python scripts/keys_under_fire.py [--processes N] [--keys N] [--asks N] [--kills N] [--freezes N] [--cancels N]
           [--seed N] [--journal PATH_OR_DSN] [--json]

Each key is one turn of a session: the model calls the tool `effect` twice (beside each other), then a sub-agent that calls it
once more, and answers. Processes are asked for keys; who does not answer (killed, or its task was cancelled) is asked again, as a
client does. In the end each key must have: one turn, which `answered`; the same result for all who asked; and each effect once,
or, where the model was told that its outcome is unknown, once at most.

Exit codes: 0 all of it holds, 1 something does not, 2 it could not be tried.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

WORK_S = (0.0, 0.05)  # that an effect takes
FROZEN_S = (0.2, 1.0)
HANG_S = 300.0  # without any answer
AT_ONCE = 8  # asks of one process
MOST_REQUESTS = 10_000  # of one process
UNKNOWN = "outcome is unknown"
FAILING = ("7/a", "8/c")  # effects after which the tool raises, at the root and in the sub-agent


# A process that is asked for keys.


def agent_over(journal: Any, effects: Path, chance: random.Random) -> Any:
    from turnwise import Agent, Subagents, tool
    from turnwise.testing import ScriptedModel, call
    from turnwise.vocab import ToolResult

    @tool
    async def effect(name: str) -> str:
        """Have an effect."""
        with effects.open("a") as file:
            file.write(f"{name}\n")
        await asyncio.sleep(chance.uniform(*WORK_S))
        if name.endswith(FAILING):
            raise LookupError(name)
        return f"did {name}"

    def key_in(request: Any) -> str:
        return request.messages[0].parts[0].text.split()[-1]

    def results_of(request: Any) -> int:
        return sum(isinstance(part, ToolResult) for message in request.messages for part in message.parts)

    def says(request: Any) -> Any:
        key, done = key_in(request), results_of(request)
        if done == 0:
            return [call("effect", name=f"{key}/a"), call("effect", name=f"{key}/b")]
        return call("task", agent="below", prompt=f"Have the third effect of {key}") if done < 3 else f"All of {key}."

    def says_below(request: Any) -> Any:
        key = key_in(request)
        return f"Below {key}." if results_of(request) else call("effect", name=f"{key}/c")

    def scripted(line: Any, tools: Any) -> Any:
        model = ScriptedModel([line] * MOST_REQUESTS)
        return Agent(model, tools=tools, journal=journal)

    return scripted(says, [effect, Subagents({"below": scripted(says_below, [effect])})])


async def serve(journal_at: str, effects: Path, seed: int) -> None:
    """Read asks from stdin, one JSON object a line, and answer each on stdout."""
    from turnwise import Journal

    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: dict[int, asyncio.Task[None]] = {}

    logging.getLogger("turnwise.tools").addHandler(logging.NullHandler())
    with Journal(journal_at) as journal:
        agent = agent_over(journal, effects, random.Random(seed))

        async def answer(ask: dict[str, Any]) -> None:
            told: dict[str, Any] = {"id": ask["id"]}
            try:
                result = await agent.run(f"Do all of {ask['key']}", session=ask["session"], key=ask["key"])
                history = json.dumps([repr(message) for message in result.history])
                told |= {"text": result.text, "stop": result.stop_reason.value, "requests": len(result.ledger)}
                told |= {"unknown": history.count(UNKNOWN), "history": hash_of(history), "notes": len(result.notes)}
            except asyncio.CancelledError:
                told["cancelled"] = True
            except Exception as error:  # noqa: BLE001 (whatever it is, whoever asked hears of it)
                told["error"] = f"{type(error).__name__}: {error}"
            print(json.dumps(told), flush=True)

        def over(number: int, task: "asyncio.Task[None]") -> None:
            tasks.pop(number, None)
            if task.cancelled():  # before it began
                print(json.dumps({"id": number, "cancelled": True}), flush=True)

        print(json.dumps({"ready": True}), flush=True)
        while line := await reader.readline():
            ask = json.loads(line)
            if "cancel" in ask:
                if (task := tasks.get(ask["cancel"])) is not None:
                    task.cancel()
                continue
            tasks[ask["id"]] = task = asyncio.create_task(answer(ask))
            task.add_done_callback(partial(over, ask["id"]))


def hash_of(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


# The fire.


class Server:
    """One process, and the asks that it has not answered."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.asked: dict[int, dict[str, Any]] = {}
        self.is_frozen = False
        self.is_ready = False

    def send(self, line: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self.process.stdin.write(json.dumps(line).encode() + b"\n")


class Fire:
    def __init__(self, given: argparse.Namespace, *, folder: Path) -> None:
        self.given = given
        self.chance = random.Random(given.seed)
        self.effects = folder / "effects"
        self.effects.touch()
        self.journal_at = given.journal or str(folder / "journal.db")
        self.servers: list[Server] = []
        self.answers: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.waiting = [
            {"session": f"session-{number}", "key": f"key-{number}"}
            for number in range(given.keys)
            for _ in range(given.asks)
        ]
        self.chance.shuffle(self.waiting)
        self.left = len(self.waiting)
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self.next_id = 0
        self.changed = asyncio.Event()

    async def start_one(self) -> None:
        command = [sys.executable, __file__, "--serve", self.journal_at, str(self.effects), str(self.chance.random())]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**20
        )
        server = Server(process)
        self.servers.append(server)
        self.tasks.create_task(self.listen(server))

    async def listen(self, server: Server) -> None:
        assert server.process.stdout is not None
        while line := await server.process.stdout.readline():
            told = json.loads(line)
            server.is_ready = server.is_ready or "ready" in told
            ask = server.asked.pop(told.get("id", -1), None)
            if ask is not None:
                self.heard(ask, told)
            self.hand_out(server)
        code = await server.process.wait()
        if not server.is_ready and code not in (0, -signal.SIGKILL):
            raise OSError(f"a process ended with exit code {code} before it was ready")
        self.waiting += server.asked.values()
        server.asked.clear()
        self.servers.remove(server)
        if self.left:
            await self.start_one()

    def heard(self, ask: dict[str, Any], told: dict[str, Any]) -> None:
        self.changed.set()
        if "text" in told:
            self.answers[ask["key"]].append(told)
            self.left -= 1
            return
        self.counts["asked again"] += 1
        if "error" in told:
            self.errors.append(told["error"])
        self.waiting.append(ask)

    def hand_out(self, server: Server) -> None:
        while self.waiting and len(server.asked) < AT_ONCE and not server.is_frozen:
            ask = self.waiting.pop(0)
            self.next_id += 1
            server.asked[self.next_id] = ask
            server.send({"id": self.next_id, **ask})

    async def burn(self) -> None:
        """Kill, freeze and cancel, spread over all the asks."""
        given, total = self.given, self.left
        acts = ["kill"] * given.kills + ["freeze"] * given.freezes + ["cancel"] * given.cancels
        self.chance.shuffle(acts)
        for number, act in enumerate(acts, start=1):
            while self.left > total * (1 - number / (len(acts) + 1)) and self.left:
                self.changed.clear()
                async with asyncio.timeout(HANG_S):
                    await self.changed.wait()
            busy = [one for one in self.servers if one.asked and not one.is_frozen]
            if not busy:
                continue
            server = self.chance.choice(busy)
            self.counts[act] += 1
            if act == "kill":
                server.process.kill()
            elif act == "cancel":
                server.send({"cancel": self.chance.choice(list(server.asked))})
            else:
                self.tasks.create_task(self.freeze(server))

    async def freeze(self, server: Server) -> None:
        server.is_frozen = True
        with contextlib.suppress(ProcessLookupError):
            server.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(*FROZEN_S))
            server.process.send_signal(signal.SIGCONT)
        server.is_frozen = False

    async def watch(self) -> None:
        """Until all is answered. Raises TimeoutError where nothing comes any more."""
        seen = self.left
        while self.left:
            for server in self.servers:
                self.hand_out(server)
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.changed.wait()
            if sys.stderr.isatty() or self.given.progress:
                out = sum(len(one.asked) for one in self.servers)
                print(f"{self.left} asks left, {out} out at {len(self.servers)} processes", file=sys.stderr)
            self.quiet = 0 if self.left != seen else self.quiet + 1
            seen = self.left
            if self.quiet > HANG_S:
                raise TimeoutError(f"{self.left} asks have no answer; last errors: {self.errors[-3:]}")

    quiet = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self.tasks:
            for _ in range(self.given.processes):
                await self.start_one()
            fire = self.tasks.create_task(self.burn())
            await self.watch()
            fire.cancel()
            for server in self.servers:
                with contextlib.suppress(ProcessLookupError):
                    server.process.send_signal(signal.SIGCONT)
                    server.process.kill()

    def problems(self) -> list[str]:
        """What does not hold."""
        from turnwise import Journal

        done = Counter(self.effects.read_text().split())
        found: list[str] = []
        with Journal(self.journal_at) as journal:
            for key, told in self.answers.items():
                number = key.removeprefix("key-")
                turns = journal.find_session(f"session-{number}").turns
                if [(turn.key, turn.status, turn.stop_reason) for turn in turns] != [(key, "done", "answered")]:
                    found.append(f"{key}: its turns are {turns}")
                results = {(one["text"], one["stop"], one["requests"], one["history"], one["notes"]) for one in told}
                if len(results) != 1 or told[0]["text"] != f"All of {key}.":
                    found.append(f"{key}: who asked got {results}")
                times = [done[f"{key}/{name}"] for name in "abc"]
                if max(times) > 1 or times.count(0) > told[0]["unknown"]:
                    found.append(f"{key}: effects {times}, told as unknown {told[0]['unknown']}")
        if len(self.answers) != self.given.keys:
            found.append(f"{self.given.keys - len(self.answers)} keys have no answer")
        return found


async def fire(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="keys-") as folder:
        burning = Fire(given, folder=Path(folder))
        await burning.run()
        found = burning.problems()
    unknown = sum(told[0]["unknown"] for told in burning.answers.values())
    figures = {"keys": given.keys, "asks": given.keys * given.asks, **burning.counts, "told as unknown": unknown}
    kinds = Counter([one.partition(":")[0] for one in burning.errors])
    figures |= {"errors": dict(kinds), "first error": "".join(burning.errors[:1]), "problems": found}
    print(json.dumps(figures) if given.json else "\n".join([f"{name}: {value}" for name, value in figures.items()]))
    return 1 if found else 0


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(sys.argv[2], Path(sys.argv[3]), hash(sys.argv[4])))
        return 0
    parser = argparse.ArgumentParser(description="Ask for turns by their keys while processes are killed and frozen.")
    for name, usual in (
        ("processes", 20),
        ("keys", 500),
        ("asks", 3),
        ("kills", 50),
        ("freezes", 10),
        ("cancels", 100),
    ):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"default {usual}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--journal", help="a file, or `postgresql://USER@HOST/DATABASE` (default: a file that is deleted)"
    )
    parser.add_argument("--progress", action="store_true", help="say how far it is, on standard error")
    parser.add_argument("--json", action="store_true", help="the figures as one JSON object")
    given = parser.parse_args()
    code = 2
    try:
        code = asyncio.run(fire(given))
    except* (OSError, TimeoutError) as errors:
        print(f"keys_under_fire: {errors.exceptions[0]}", file=sys.stderr)
    return code


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    sys.exit(main())
