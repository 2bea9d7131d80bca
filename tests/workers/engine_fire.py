"""Many turns on an engine while its workers are killed, frozen and stopped, turns are cancelled, and asks answered while no
worker lives. Each worker is a machine of its own as far as it can see: it has its own host name and its own process numbers."""

import asyncio
import bisect
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import psycopg

from turnwise.testing import engine_conformance as kit
from turnwise.turn.config import Approval
from waits import HANG_S
from workers.engines import AGENT, KitWorkers

TURNS_OF_SESSION = 4
AT_ONCE = 20  # calls to the engine
APART = ("unshare", "-u", "-p", "-f", "--kill-child", "--mount-proc")
DONE = "select count(*) from turnwise.turn where status = 'done'"
RUNNING = "select count(*) from turnwise.turn where status = 'running' and owner like %s"
OPEN = "select session, key, status, owner from turnwise.turn where status <> 'done' order by session limit 20"
ENDS = "select session, key, status, stop_reason from turnwise.turn where status <> 'accepted' order by session, number"


class FireSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what."""

    turns: int = 1000
    workers: int = 4
    concurrency: int = 8
    kills: int = 10
    freezes: int = 3
    stops: int = 4
    cancels: int = 50
    asks: int = 50
    seed: int = 1


def can_stand_apart() -> bool:
    """Whether processes may have namespaces of their own here."""
    with contextlib.suppress(OSError):
        return subprocess.run([*APART, "true"], capture_output=True, timeout=HANG_S, check=False).returncode == 0
    return False


class Machine:
    """A worker process, and the name of its machine."""

    def __init__(self, process: asyncio.subprocess.Process, *, name: str, is_apart: bool) -> None:
        self.process, self.name, self._is_apart = process, name, is_apart
        self.is_frozen = False

    def send(self, number: signal.Signals) -> None:
        """To the worker itself, which is a child of `unshare`."""
        pids = [self.process.pid]
        if self._is_apart:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            with contextlib.suppress(OSError):
                pids = [int(pid) for pid in children.read_text().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class EngineFire:
    """One fire. `run` it; `problems` says what did not hold, and `figures` what happened."""

    def __init__(self, engine: KitWorkers, sizes: FireSizes) -> None:
        self._engine, self._sizes = engine, sizes
        self._chance = random.Random(sizes.seed)
        self._is_apart = can_stand_apart()
        self._machines: dict[int, Machine] = {}
        self._is_over = False
        self._free = asyncio.Semaphore(AT_ONCE)
        self.counts: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        self._prompts = {
            (f"s{number // TURNS_OF_SESSION}", f"k{number}"): self._prompt_of(number) for number in range(sizes.turns)
        }
        self._cancels = {(f"c{number}", "k"): f"slow:c{number}-0 note:c{number}-1" for number in range(sizes.cancels)}
        self._asks = {(f"a{number}", "k"): f"note:a{number}-0 guarded:a{number}-1" for number in range(sizes.asks)}

    def _prompt_of(self, number: int) -> str:
        place = f"s{number // TURNS_OF_SESSION}-{number % TURNS_OF_SESSION}"
        return f"work:{place}a work:{place}b work:{place}c"

    async def run(self) -> None:
        try:
            await self._run()
        finally:  # also where it failed
            for machine in self._machines.values():
                machine.send(signal.SIGKILL)

    async def _run(self) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            await self._submit(self._prompts)
            keepers = [group.create_task(self._keep(slot)) for slot in range(self._sizes.workers)]
            troubles = group.create_task(self._befall())
            await self._cancel_all()
            await troubles
            done = len(self._prompts) + len(self._cancels)
            await self._until(lambda: self._number(DONE) >= done)
            self.counts["seconds"] = round(time.monotonic() - began)
            await self._answer_all(keepers, group=group)
            await self._end_all(keepers)

    async def _submit(self, prompts: dict[tuple[str, str], str]) -> None:
        """The sessions at once, the turns of each in order."""

        async def submit(session: str, turns: Iterable[tuple[str, str]]) -> None:
            async with self._free:
                for key, prompt in turns:
                    await self._engine.submit(session, key, prompt)

        of_session: dict[str, list[tuple[str, str]]] = {}
        for (session, key), prompt in prompts.items():
            of_session.setdefault(session, []).append((key, prompt))
        await asyncio.gather(*[submit(*one) for one in of_session.items()])

    # The workers.

    async def _keep(self, slot: int) -> None:
        """One worker lives at that place, as under a supervisor."""
        engine, number = self._engine, 0
        while not self._is_over:
            name, number = f"fire-{slot}-{number}", number + 1
            words = [sys.executable, "-m", "turnwise", "worker", "--agent", *AGENT, "--json", *engine.options]
            words += ["--concurrency", str(self._sizes.concurrency)]
            apart = [*APART, "sh", "-c", 'hostname "$0"; exec "$@"', name] if self._is_apart else []
            with (engine.folder / f"{name}.log").open("wb") as log:
                process = await asyncio.create_subprocess_exec(
                    *apart, *words, cwd=engine.folder, env=engine.environment, stderr=log, stdout=log
                )
            self._machines[slot] = Machine(process, name=name, is_apart=self._is_apart)
            self.ends[await process.wait()] += 1

    async def _end_all(self, keepers: "list[asyncio.Task[None]]") -> None:
        self._is_over = True
        for machine in self._machines.values():
            machine.send(signal.SIGKILL)
        await asyncio.wait(keepers)

    async def _befall(self) -> None:
        """The troubles, spread over all the effects."""
        sizes = self._sizes
        acts = ["kill"] * sizes.kills + ["freeze"] * sizes.freezes
        self._chance.shuffle(acts)
        acts += ["stop"] * sizes.stops
        frozen: list[asyncio.Task[None]] = []
        for number, act in enumerate(acts, start=1):
            due = number * len(self._prompts) * 3 // (len(acts) + 1)
            await self._until(lambda due=due: self._effects() >= due)
            if act == "stop":
                self._machines[number % sizes.workers].send(signal.SIGTERM)
            else:
                machine = await self._busy_machine()
                if machine is None:
                    break
                if act == "freeze":  # the others burn on meanwhile
                    frozen.append(asyncio.create_task(self._freeze(machine)))
                else:
                    await self._kill(machine)
            self.counts[act] += 1
        await asyncio.gather(*frozen)

    async def _kill(self, machine: Machine) -> None:
        machine.send(signal.SIGKILL)
        await machine.process.wait()

    async def _freeze(self, machine: Machine) -> None:
        """Until others have all of its turns."""
        machine.is_frozen = True
        machine.send(signal.SIGSTOP)
        await self._until(lambda: self._running(machine) == 0)
        machine.send(signal.SIGCONT)
        machine.is_frozen = False

    async def _busy_machine(self) -> Machine | None:
        """One that runs a turn. None: all turns have ended."""
        found: list[Machine] = []

        def look() -> bool:
            machines = self._machines.values()
            alive = [one for one in machines if one.process.returncode is None and not one.is_frozen]
            found[:] = [one for one in alive if self._running(one)]
            return bool(found) or self._number(DONE) >= len(self._prompts)

        await self._until(look)
        return self._chance.choice(found) if found else None

    def _running(self, machine: Machine) -> int:
        """How many turns the journal sees at it. Without namespaces, its name is the number of its process."""
        return self._number(RUNNING, f"%{machine.name}:%" if self._is_apart else f"%:{machine.process.pid}:%")

    # The people.

    async def _cancel_all(self) -> None:
        """Each as soon as its tool runs."""
        for (session, key), prompt in self._cancels.items():
            await self._engine.submit(session, key, prompt)
            await kit.until(lambda session=session: bool(kit.effects(self._engine, session)))
            await self._engine.cancel(session, key)

    async def _answer_all(self, keepers: "list[asyncio.Task[None]]", *, group: asyncio.TaskGroup) -> None:
        """While no worker lives."""
        await self._submit(self._asks)
        asks: dict[tuple[str, str], list[Approval]] = {}
        for session, key in self._asks:
            give_up = time.monotonic() + HANG_S
            while not (found := await self._engine.asks(session)):
                assert time.monotonic() < give_up, f"`{session}` asks nobody"
                await asyncio.sleep(kit.LOOK_S)
            asks[session, key] = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in found]
        await self._end_all(keepers)
        for (session, key), approvals in asks.items():
            await self._engine.answer(session, key, approvals)
            self.counts["answered without a worker"] += 1
        self._is_over = False
        keepers[:] = [group.create_task(self._keep(slot)) for slot in range(self._sizes.workers)]
        for session, _ in self._asks:
            await kit.until(lambda session=session: kit.stops(self._engine, session)[-1:] == ["answered"])

    # What happened.

    def _number(self, sql: str, *values: str) -> int:
        with psycopg.connect(self._engine.dsn, autocommit=True) as connection:
            return int((connection.execute(sql.encode(), values).fetchone() or (0,))[0])

    def _effects(self) -> int:
        path = self._engine.folder / "effects"
        return sum(line.startswith("s") for line in path.read_text().split()) if path.exists() else 0

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Raises AssertionError where nothing happens any more."""
        seen, give_up = -1, 0.0
        while not await asyncio.to_thread(is_so):
            now = self._effects() + self._number(DONE)
            if now != seen:
                seen, give_up = now, time.monotonic() + HANG_S
            assert time.monotonic() < give_up, f"nothing happens after {seen} effects and ends; open: {self._open()}"
            await asyncio.sleep(kit.LOOK_S)

    def _open(self) -> list[object]:
        """Some of the turns that have not ended."""
        with psycopg.connect(self._engine.dsn, autocommit=True) as connection:
            return [*connection.execute(OPEN).fetchall()]

    def problems(self) -> list[str]:
        """What does not hold."""
        with psycopg.connect(self._engine.dsn, autocommit=True) as connection:
            rows = connection.execute(ENDS).fetchall()
        of_session: dict[str, list[str]] = {}
        for session, _, status, stop in rows:
            of_session.setdefault(session, []).append(stop if status == "done" else status)
        lines = (self._engine.folder / "effects").read_text().split()
        found = [f"effect {line} happened {count} times" for line, count in Counter(lines).items() if count > 1]
        sessions = {session: [key for of, key in self._prompts if of == session] for session, _ in self._prompts}
        for session, keys in sessions.items():
            if of_session.get(session) != ["answered"] * len(keys):
                found.append(f"{session}: its turns ended as {of_session.get(session)}")
            own = [line for line in lines if line.startswith(f"{session}-")]
            unknown = kit.told_unknown(self._engine, session)
            self.counts["told as unknown"] += unknown
            if len(own) < 3 * len(keys) - unknown:
                found.append(f"{session}: effects {own}, told as unknown {unknown}")
            late = len(own) - longest_order(own)  # of a frozen worker that had begun the call and had not done it yet
            self.counts["effects after a take-over"] += late
            if late > unknown:
                found.append(f"{session}: the order of its effects is {own}")
            begun = [key for of, key, _, _ in rows if of == session and key is not None]
            if begun not in ([], keys):
                found.append(f"{session}: its turns began in the order {begun}")
        for session, _ in self._cancels:
            stop, unknown = of_session.get(session), kit.told_unknown(self._engine, session)
            self.counts["cancelled"] += stop == ["cancelled"]
            if stop != ["cancelled"] and not (stop == ["answered"] and unknown):
                found.append(f"{session}: it was cancelled, and ended as {stop}")
        for session, _ in self._asks:
            if sorted(line for line in lines if line.startswith(f"{session}-")) != [f"{session}-0", f"{session}-1"]:
                found.append(f"{session}: its effects are {[one for one in lines if one.startswith(f'{session}-')]}")
        return found

    def figures(self) -> dict[str, object]:
        turns = len(self._prompts) + len(self._cancels)
        rate = round(turns / max(1, self.counts["seconds"]), 1)
        return {"turns": turns, "turns a second": rate, **self.counts, "machines of their own": self._is_apart}


def longest_order(lines: Sequence[str]) -> int:
    """How many of them are in order, if as few as possible are left out."""
    tails: list[str] = []
    for line in lines:
        place = bisect.bisect_right(tails, line)
        tails[place : place + 1] = [line]
    return len(tails)
