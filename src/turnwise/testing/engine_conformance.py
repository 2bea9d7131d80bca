"""One suite for every engine that runs turns: what each of them promises whatever its queue looks like.

Write an `Engine` for yours: how a turn is submitted, answered and cancelled, and how a worker process is started. The workers run
`agent`, a function of this module, and the environment variable `TURNWISE_KIT` names a folder in which its tools leave a line for
each effect. Then run each `check_` from your test framework. A check raises AssertionError if the promise does not hold.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from turnwise.agent.agent import Agent
from turnwise.agent.tools import tool
from turnwise.journal.journal import Journal
from turnwise.testing.scripted_model import Said, ScriptedModel, call
from turnwise.turn.config import Approval, OneAsk, PermissionRule, Policy
from turnwise.vocab import Message, Request, Text, ToolResult

FOLDER = "TURNWISE_KIT"
WAIT_S = 300.0  # only a hang waits as long
LOOK_S = 0.05
BLOCKED_S = 8.0  # longer than the heartbeat or the lease of the engine under test
MOST_REQUESTS = 100_000
PROMPTS = ("note:", "work:", "slow:", "guarded:", "block:")
UNKNOWN = "outcome is unknown"


class WorkerProcess(Protocol):
    """A worker that takes turns."""

    def send_signal(self, number: signal.Signals, /) -> None: ...
    def wait(self) -> int: ...


class World(Protocol):
    """Where it is seen what turns did. `journal` is the one in which the workers keep the turns."""

    journal: Journal
    folder: Path


class Engine(World, Protocol):
    """What the suite needs of an engine."""

    def start_worker(self) -> WorkerProcess:
        """A process whose agent `kit` is `agent`. On return it takes turns."""
        ...

    async def submit(self, session: str, key: str, prompt: str) -> None: ...
    async def answer(self, session: str, key: str, approvals: Sequence[Approval]) -> None: ...
    async def cancel(self, session: str, key: str) -> None: ...
    async def asks(self, session: str) -> Sequence[OneAsk]: ...


# What the workers run. A prompt is a list of calls: `note:a slow:b`.


def agent(folder: Path | None = None, *, journal: Journal | None = None) -> Agent:
    """An agent that calls the tools that its prompt names, one after the other. Its model is a script."""
    folder = folder or Path(os.environ[FOLDER])

    def leave(name: str) -> str:
        with (folder / "effects").open("a") as file:
            file.write(f"{name}\n")
        return f"did {name}"

    @tool(effect="write")
    async def note(name: str) -> str:
        """Have an effect."""
        return leave(name)

    @tool(effect="write")
    async def work(name: str) -> str:
        """Have an effect, which takes a moment."""
        said = leave(name)
        await asyncio.sleep(LOOK_S)
        return said

    @tool(effect="write")
    async def guarded(name: str) -> str:
        """Have an effect that a person allows."""
        return leave(name)

    @tool(effect="write")
    async def slow(name: str) -> str:
        """Have an effect, then wait for the suite."""
        said = leave(name)
        while not (folder / "go").exists():  # noqa: ASYNC110 (the suite is another process)
            await asyncio.sleep(LOOK_S)
        return said

    @tool(effect="write")
    async def block(name: str) -> str:
        """Have an effect, then block the event loop."""
        said = leave(name)
        time.sleep(BLOCKED_S)  # noqa: ASYNC251 (meant)
        return said

    rules = [PermissionRule(verdict="allow", tool=name) for name in ("note", "work", "slow", "block")]
    return Agent(
        ScriptedModel([_next_call] * MOST_REQUESTS),
        tools=[note, work, guarded, slow, block],
        journal=journal,
        policy=Policy(rules=(*rules, PermissionRule(verdict="ask", tool="guarded")), attended=True),
    )


def _next_call(request: Request) -> Said:
    began = max(at for at, message in enumerate(request.messages) if _prompt_in(message))
    words = _prompt_in(request.messages[began]).split()
    done = sum(isinstance(part, ToolResult) for message in request.messages[began:] for part in message.parts)
    if done >= len(words):
        return "Done."
    name, _, argument = words[done].partition(":")
    return call(name, name=argument)


def _prompt_in(message: Message) -> str:
    texts = [part.text for part in message.parts if isinstance(part, Text) and message.role == "user"]
    return next((text for text in texts if text.startswith(PROMPTS)), "")


# The checks.


async def check_one_key_is_one_turn(engine: Engine) -> None:
    """A turn that is submitted ten times at once, and once more after its end, runs once."""
    worker = engine.start_worker()
    await asyncio.gather(*[engine.submit("once", "key", "note:once-a note:once-b") for _ in range(10)])
    await ended(engine, "once")
    await engine.submit("once", "key", "note:once-a note:once-b")
    await engine.submit("once", "later", "note:once-c")
    await ended(engine, "once", turns=2)
    assert effects(engine, "once") == ["once-a", "once-b", "once-c"]
    _end(worker)


async def check_order(engine: Engine) -> None:
    """The turns of a session run one at a time, in the order in which they were submitted."""
    for number in range(5):
        await engine.submit("order", f"key-{number}", f"note:order-{number}a note:order-{number}b")
    workers = [engine.start_worker(), engine.start_worker()]
    assert await ended(engine, "order", turns=5) == ["answered"] * 5
    assert effects(engine, "order") == [f"order-{number}{name}" for number in range(5) for name in "ab"]
    _end(*workers)


async def check_cancel(engine: Engine) -> None:
    """A turn that is cancelled in the middle of a tool ends as cancelled, and the session's next turn runs."""
    worker = engine.start_worker()
    await engine.submit("cancel", "first", "slow:cancel-a note:cancel-b")
    await until(lambda: "cancel-a" in effects(engine, "cancel"))
    await engine.cancel("cancel", "first")
    assert await ended(engine, "cancel") == ["cancelled"]
    await engine.submit("cancel", "second", "note:cancel-c")
    assert await ended(engine, "cancel", turns=2) == ["cancelled", "answered"]
    assert effects(engine, "cancel") == ["cancel-a", "cancel-c"]
    _end(worker)


async def check_cancel_of_a_frozen_worker(engine: Engine) -> None:
    """A turn that is cancelled while its worker is frozen ends as cancelled at another worker."""
    first = engine.start_worker()
    await engine.submit("late", "key", "slow:late-a slow:late-b")
    await until(lambda: bool(effects(engine, "late")))
    first.send_signal(signal.SIGSTOP)
    second = engine.start_worker()
    await engine.cancel("late", "key")
    assert await ended(engine, "late") == ["cancelled"]
    assert effects(engine, "late") in (["late-a"], ["late-a", "late-b"])
    _end(first, second)


async def check_ask_needs_no_worker(engine: Engine) -> None:
    """An ask is answered while no worker lives, and the next worker continues the turn."""
    worker = engine.start_worker()
    await engine.submit("ask", "key", "note:ask-a guarded:ask-b")
    give_up = time.monotonic() + WAIT_S
    while not (asks := await engine.asks("ask")):
        assert time.monotonic() < give_up, "nobody was asked"
        await asyncio.sleep(LOOK_S)
    _end(worker)
    approvals = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in asks]
    await engine.answer("ask", "key", approvals)
    assert effects(engine, "ask") == ["ask-a"]
    worker = engine.start_worker()
    await until(lambda: stops(engine, "ask")[-1:] == ["answered"])
    assert effects(engine, "ask") == ["ask-a", "ask-b"]
    _end(worker)


async def check_killed_worker(engine: Engine) -> None:
    """After kill -9 in the middle of a tool another worker goes on. The tool does not run again, and the model is told."""
    await _check_left(engine, "killed", signal.SIGKILL)


async def check_stopped_worker(engine: Engine) -> None:
    """After SIGTERM another worker goes on, too. The first one ends with exit code 0, and nothing is cancelled."""
    assert await _check_left(engine, "stopped", signal.SIGTERM) == 0


async def check_frozen_worker(engine: Engine) -> None:
    """A worker that is frozen for longer than the engine waits loses its turn, and does nothing to it when it runs again."""
    await _check_left(engine, "frozen", signal.SIGSTOP)


async def check_blocked_loop(engine: Engine) -> None:
    """A tool that blocks its event loop for longer than the engine waits loses nothing."""
    worker = engine.start_worker()
    await engine.submit("blocked", "key", "block:blocked-a note:blocked-b")
    assert await ended(engine, "blocked") == ["answered"]
    assert effects(engine, "blocked") == ["blocked-a", "blocked-b"]
    assert told_unknown(engine, "blocked") == 0
    _end(worker)


async def _check_left(engine: Engine, session: str, number: signal.Signals) -> int:
    """Returns how the first worker ended."""
    first = engine.start_worker()
    await engine.submit(session, "key", f"slow:{session}-a note:{session}-b")
    await until(lambda: bool(effects(engine, session)))
    second = engine.start_worker()
    first.send_signal(number)
    await until(lambda: f"{session}-b" in effects(engine, session))
    assert await ended(engine, session) == ["answered"]
    if number == signal.SIGSTOP:
        first.send_signal(signal.SIGCONT)
        (engine.folder / "go").touch()
        await engine.submit(session, "later", f"note:{session}-c")
        assert await ended(engine, session, turns=2) == ["answered"] * 2
    assert set(Counter(effects(engine, session)).values()) == {1}
    assert told_unknown(engine, session) == 1
    code = 0 if number == signal.SIGSTOP else await asyncio.to_thread(first.wait)
    _end(second, *([first] if number == signal.SIGSTOP else []))
    return code


async def ended(engine: Engine, session: str, *, turns: int = 1) -> list[str]:
    """Wait until so many turns of the session have ended, and return how."""
    await until(lambda: len(stops(engine, session)) >= turns)
    return stops(engine, session)


def stops(engine: World, session: str) -> list[str]:
    """How the turns of the session ended that have ended, in order."""
    found = engine.journal.known_session(session)
    return [turn.stop_reason.value for turn in (found.turns if found else ()) if turn.stop_reason is not None]


def effects(engine: World, session: str) -> list[str]:
    """The effects of the session's turns, in order."""
    path = engine.folder / "effects"
    lines = path.read_text().split() if path.exists() else []
    return [line for line in lines if line.startswith(f"{session}-")]


def told_unknown(engine: World, session: str) -> int:
    """How often the model was told that a call may have run."""
    entries = [entry for turn in engine.journal.find_session(session).turns for entry in engine.journal.events(turn.id)]
    return sum(repr(entry).count(UNKNOWN) for entry in entries)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until it is so. Raises AssertionError if it does not come to be so."""
    give_up = time.monotonic() + WAIT_S
    while not await asyncio.to_thread(is_so):
        assert time.monotonic() < give_up, "it did not happen"
        await asyncio.sleep(LOOK_S)


def _end(*workers: WorkerProcess) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
