"""A worker: it claims waiting turns in a database, and its agents run them to their end."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import msgspec

from turnwise.agent.agent import Agent, inside
from turnwise.agent.agent_setup import ALL_EFFECTS
from turnwise.agent.results import RunResult
from turnwise.agent.runs import Run
from turnwise.base.clock import Clock, SystemClock
from turnwise.errors import (
    CallerError,
    JournalFailed,
    JournalRefused,
    TurnRefused,
    TurnwiseBug,
    TurnwiseError,
    UnreadableTurn,
)
from turnwise.journal.journal import DATABASES, Journal
from turnwise.journal.owners import WORKER, Claim
from turnwise.settings.options import limits_in
from turnwise.turn.config import Effect, TurnConfig
from turnwise.vocab import StopReason, Text
from turnwise.workers.leases import Leases, TurnLease
from turnwise.workers.pieces import PieceSender, TurnPieces
from turnwise.workers.queue import TurnQueue, WorkerTerms
from turnwise.workers.turn_status import NO_WISHES, TurnWishes, read_wishes

# The limits of a submitted turn within its agent's own: narrower values, or values of the worker's own list. Anything else is
# refused.


class WorkerAllows(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn may have beyond its agent: other models of the agent's provider, and its own instructions."""

    models: tuple[str, ...] = ()
    instructions: bool = False


def narrowed(agent: Agent, claim: Claim, *, journal: Journal, allows: WorkerAllows) -> Agent:
    """The agent for a claimed turn. Raises TurnRefused, with the reason, for wishes beyond the agent. A turn that continues keeps
    what it began with."""
    wishes = read_wishes(claim.wishes) if claim.is_new else NO_WISHES
    config = narrowed_config(inside(agent).config, wishes, allows=allows)
    return inside(agent).keeping(journal, config=config, effects=_effects(wishes))


def narrowed_config(config: TurnConfig, wishes: TurnWishes, *, allows: WorkerAllows) -> TurnConfig:
    """The agent's configuration within these wishes. Raises TurnRefused, with the reason, for wishes beyond the agent."""
    model = _model(wishes.model, config=config, models=allows.models)
    if wishes.instructions and not allows.instructions:
        raise TurnRefused("the turn brings instructions, and this worker takes none (`--allow-instructions`)")
    allowed = config.allowed
    if wishes.effects is not None:
        if more := [f"`{effect}`" for effect in wishes.effects if effect not in allowed]:
            raise TurnRefused(f"the turn asks for {', '.join(more)}, which its agent does not allow")
        allowed = tuple([effect for effect in allowed if effect in _effects(wishes)])
    limits = config.limits
    for one in limits_in(wishes.most):
        limits = one if limits is None else limits | one
    return msgspec.structs.replace(
        config,
        model=model,
        system=(*config.system, Text(wishes.instructions)) if wishes.instructions else config.system,
        allowed=allowed,
        limits=limits,
        max_steps=min(config.max_steps, wishes.most.max_steps or config.max_steps),
    )


def _effects(wishes: TurnWishes) -> Sequence[Effect]:
    """The allowed effects. Tools without side effects, such as a task for a sub-agent or a question, are always allowed."""
    return ALL_EFFECTS if wishes.effects is None else ("none", *wishes.effects)


def _model(wanted: str, *, config: TurnConfig, models: Sequence[str]) -> str:
    """A model by its name, with or without the provider's name in front."""
    name = wanted.removeprefix(f"{config.profile}:")
    if not name or name == config.model:
        return config.model
    allowed = [model.removeprefix(f"{config.profile}:") for model in models]
    if name not in allowed:
        known = ", ".join([f"`{model}`" for model in (config.model, *allowed)])
        raise TurnRefused(f"this worker does not allow the model `{name}` (it allows {known}; `--allow-model`)")
    return name


LEASE_S = 30.0
SHORTEST_LEASE_S = 1.0
GRACE_S = 20.0
CONCURRENCY = 10
LOOK_S = 5.0  # how often it looks for turns without a ring
SETTLE_S = 2.0  # for cancelled tasks

Outcome = TypeVar("Outcome")
Happening = Literal[
    "ready", "metrics", "claimed", "resumed", "ended", "handed_over", "asks", "refused", "lost", "failed", "waits"
]


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has done, for a log."""

    happening: Happening
    session: str = ""
    agent: str = ""
    text: str = ""


class _Work(msgspec.Struct, frozen=True):
    """One claimed turn that runs here."""

    claim: Claim
    task: "asyncio.Task[None]"
    run: Run
    lease: TurnLease


def check_agents(agents: Mapping[str, Agent[Any, Any]]) -> None:
    """Raise CallerError, before any turn is taken, if there is none, or if the runs of one would fail."""
    if not agents:
        raise CallerError("a worker needs at least one agent")
    for name, agent in agents.items():
        inside(agent).check_key()
        if inside(agent).deps_wanted().lacks_factory:
            raise CallerError(
                f"the agent `{name}` needs `deps`, and nobody gives them to a worker's runs: give it a function that makes "
                "them, `deps_type=DepsFactory(...)`"
            )


class Worker:
    """Runs turns of the database at `dsn` with those of its `agents` that the turns name. `run` it, once.

    A turn whose agent is not among them, or that needs something that is not among `offers`, is left to another worker. Each turn
    runs under a lease of `lease_s` seconds, which is renewed; if that does not work in time, the process ends itself with exit
    code 70. `allows` is what a turn may ask for beyond its agent. After `stop`, a running turn continues until its next request
    and is then handed over; turns that still run after `grace_s` seconds are handed over as they are.
    """

    def __init__(
        self,
        dsn: str,
        *,
        agents: Mapping[str, Agent],
        concurrency: int = CONCURRENCY,
        offers: Sequence[str] = (),
        allows: WorkerAllows = WorkerAllows(),  # noqa: B008 (frozen)
        lease_s: float = LEASE_S,
        grace_s: float = GRACE_S,
        tell: Callable[[WorkerEvent], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not dsn.startswith(DATABASES):
            raise CallerError("a worker needs PostgreSQL: give `postgresql://USER@HOST/DATABASE`")
        check_agents(agents)
        if lease_s < SHORTEST_LEASE_S or concurrency < 1 or grace_s < 0:
            raise CallerError(
                f"`lease_s` must be at least {SHORTEST_LEASE_S:g}, `concurrency` at least 1, and `grace_s` not negative"
            )
        self._dsn, self._agents, self._concurrency, self._grace_s = dsn, dict(agents), concurrency, grace_s
        self._clock, self._allows = clock or SystemClock(), allows
        self._tell: Callable[[WorkerEvent], None] = tell or _tell_nobody
        self._terms = WorkerTerms(
            name=_own_name(), agents=tuple(sorted(self._agents)), offers=tuple(offers), lease_s=lease_s
        )
        self._work: dict[int, _Work] = {}
        self._stops = False
        self._unfit: JournalRefused | None = None  # why it can run no turn
        self._woken = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more, hand over the running turns, and return from `run`. Call this in the event loop's thread."""
        self._stops = True
        self._woken.set()

    async def run(self) -> None:
        """Work until `stop`. Raises CallerError if the database cannot be used."""
        loop = asyncio.get_running_loop()

        def in_loop(told: Callable[[Claim], None]) -> Callable[[Claim], None]:
            return lambda claim: _call_soon(loop, lambda: told(claim))

        self._queue = TurnQueue(self._dsn, clock=self._clock)
        self._leases = Leases(
            self._dsn,
            terms=self._terms,
            clock=self._clock,
            on_lost=in_loop(self._end_lost),
            on_cancel=in_loop(self._cancel),
            on_ring=lambda: _call_soon(loop, self._rung),
            on_trouble=lambda why: _call_soon(loop, lambda: self._tell(WorkerEvent(happening="waits", text=why))),
            on_follower=lambda session: _call_soon(loop, lambda: self._begin_pieces(session)),
            on_followed=lambda numbers: _call_soon(loop, lambda: self._send_pieces(numbers)),
        )
        self._sender = PieceSender(self._dsn, clock=self._clock)
        async with contextlib.AsyncExitStack() as stack:
            self._journal = stack.enter_context(Journal(self._dsn, clock=self._clock, durability="full"))
            stack.callback(self._queue.close)
            # Not the event loop's pool: tools and the name resolver may fill that pool.
            self._clerk = stack.enter_context(ThreadPoolExecutor(1, "turnwise queue"))
            await self._ask(lambda: self._queue.renew((), terms=self._terms))
            for agent in self._agents.values():
                await stack.enter_async_context(agent)
            self._leases.beat()
            self._leases.start()
            beating = asyncio.create_task(self._beat_on(), name="turnwise worker's heartbeat")
            sending = asyncio.create_task(self._sender.run(self._pieces), name="turnwise pieces")
            try:
                self._tell(WorkerEvent(happening="ready", text=self._terms.name))
                try:
                    await self._claim_on()
                except (
                    CallerError
                ):  # a newer turnwise has changed the tables: its workers continue the turns that run here
                    self._stops = True
                    await self._hand_over()
                    raise
                await self._hand_over()
                if self._unfit is not None:
                    raise self._unfit
            finally:
                await asyncio.to_thread(self._leases.stop)
                beating.cancel()
                sending.cancel()
                await asyncio.wait([sending])

    async def _beat_on(self) -> None:
        while True:
            self._leases.beat()
            await asyncio.sleep(self._leases.beats_s)

    async def _claim_on(self) -> None:
        while not self._stops:
            self._woken.clear()
            if len(self._work) < self._concurrency and await self._claim():
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(LOOK_S, self._terms.lease_s / 2)):
                    await self._woken.wait()

    def _pieces(self) -> list[TurnPieces]:
        return [work.lease.pieces for work in self._work.values()]

    def _begin_pieces(self, session: str) -> None:
        for work in self._work.values():
            if work.claim.session == session:
                work.lease.pieces.begin_again()

    def _send_pieces(self, numbers: Collection[int]) -> None:
        for number, work in self._work.items():
            work.lease.pieces.is_followed = number in numbers

    def _rung(self) -> None:
        """There may be a turn, or an answer to a turn that runs here."""
        self._woken.set()
        for work in self._work.values():
            work.lease.below.rung()

    async def _ask(self, question: Callable[[], Outcome]) -> Outcome:
        """Ask the queue, whose thread may have to wait."""
        return await asyncio.get_running_loop().run_in_executor(self._clerk, question)

    async def _claim(self) -> bool:
        try:
            claim = await self._ask(lambda: self._queue.claim(self._terms))
        except (JournalFailed, TurnwiseBug) as error:  # newer tables, or missing rights to use them, end the worker
            self._tell(WorkerEvent(happening="waits", text=str(error)))
            return False
        if claim is None:
            return False
        if not self._leases.hold(claim):
            await self._try_to(lambda: self._queue.release(claim))
            return False
        lease = TurnLease(
            claim,
            leases=self._leases,
            queue=self._queue,
            ends=lambda: self._stops,
            in_thread=self._ask,
            on_asks=lambda path: self._say("asks", claim, text="/".join(path)),
            on_rest=self._woken.set,
            on_pieces=self._sender.wake,
        )
        self._say("claimed" if claim.is_new else "resumed", claim)
        try:
            agent = narrowed(
                self._agents[claim.agent], claim, journal=self._journal.under(claim, lease=lease), allows=self._allows
            )
        except TurnRefused as error:
            await self._refuse(claim, why=str(error))
            return True
        run = agent.start(claim.prompt, session=claim.session) if claim.is_new else agent.start_resume(claim.session)
        task = asyncio.create_task(self._work_on(claim, run=run, lease=lease), name=f"turn of {claim.session}")
        work = self._work[claim.number] = _Work(claim, task, run, lease)
        task.add_done_callback(lambda _: self._forget(work))  # also if it was cancelled before it began
        return True

    async def _refuse(self, claim: Claim, *, why: str) -> None:
        self._leases.drop(claim)
        await self._try_to(lambda: self._queue.refuse(claim, terms=self._terms, problem=why))
        self._say("refused", claim, text=why)

    async def _work_on(self, claim: Claim, *, run: Run, lease: TurnLease) -> None:
        try:
            await self._ended(claim, result=await run, lease=lease)
        except JournalFailed as error:
            await self._left(claim, why=str(error), lease=lease)
        except (TurnRefused, UnreadableTurn) as error:
            await self._refuse(claim, why=str(error))
        except JournalRefused as error:  # another worker may have the rights: this one ends, and the turn continues
            self._unfit = error
            self.stop()
            await self._try_to(lambda: self._queue.release(claim, blameless=True))
            self._say("lost", claim, text=str(error))
        except Exception as error:  # noqa: BLE001 (of an agent's own code: the turn has ended by it, and the worker goes on)
            # The text of a foreign exception is not shown: it may hold a secret.
            problem = str(error) if isinstance(error, TurnwiseError) else f"the agent raised `{type(error).__name__}`"
            self._say("failed", claim, text=problem)
            await self._try_to(lambda: self._queue.fail(claim, problem=problem))

    def _forget(self, work: _Work) -> None:
        work.run.cancel()  # if nobody came to await it
        self._leases.drop(work.claim)
        self._work.pop(work.claim.number, None)
        self._woken.set()

    async def _ended(self, claim: Claim, *, result: RunResult, lease: TurnLease) -> None:
        if result.stop_reason is StopReason.JOURNAL_FAILED:
            await self._left(claim, why="its journal failed", lease=lease)
            return
        self._say("ended", claim, text=result.stop_reason.value)
        await self._try_to(lambda: self._queue.ring(claim.session))  # the session's next turn may run

    async def _left(self, claim: Claim, *, why: str, lease: TurnLease) -> None:
        """The turn has not ended, and continues as soon as a worker claims it."""
        if not lease.is_over:
            await self._try_to(lambda: self._queue.release(claim))
        if lease.asks:
            self._say("asks", claim)
            return
        self._say("handed_over" if lease.is_over else "lost", claim, text="" if lease.is_over else why)

    async def _try_to(self, change: Callable[[], None]) -> None:
        """Try the change. If the database is unreachable, the lease lapses, and another worker finds the turn."""
        try:
            await self._ask(change)
        except TurnwiseError as error:
            self._tell(WorkerEvent(happening="waits", text=str(error)))

    async def _hand_over(self) -> None:
        """End the turns before their next request, or as soon as they only wait. Turns that still run after the grace are handed
        over as they are."""
        clock = asyncio.get_running_loop().time
        end_s = clock() + self._grace_s
        handed_over: set[asyncio.Task[None]] = set()
        while left := [work for work in self._work.values() if work.task not in handed_over]:
            self._woken.clear()
            left_s = end_s - clock()
            if gone := [work for work in left if left_s <= 0 or work.lease.activity.rests]:
                await self._let_go(gone)
                handed_over |= {work.task for work in gone}
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._woken.wait()
        if handed_over:
            await asyncio.wait(handed_over, timeout=SETTLE_S)

    async def _let_go(self, works: Sequence[_Work]) -> None:
        """From the first moment on, nothing more of these turns is done here."""
        for work in works:
            work.lease.is_over = True
        for work in works:
            with contextlib.suppress(TurnwiseError):  # tells the hand-over; without it, the lease lapses
                await self._ask(work.lease.let_go)
            if not work.task.done():  # otherwise it has told that itself
                work.task.cancel()
                self._say("handed_over", work.claim)

    def _end_lost(self, claim: Claim) -> None:
        """End a turn that another worker has."""
        if (work := self._work.get(claim.number)) is not None:
            work.task.cancel()
            self._say("lost", claim, text="another worker has it")

    def _cancel(self, claim: Claim) -> None:
        if (work := self._work.get(claim.number)) is not None:
            work.run.interrupt()

    def _say(self, happening: Happening, claim: Claim, *, text: str = "") -> None:
        self._tell(WorkerEvent(happening=happening, session=claim.session, agent=claim.agent, text=text))


def _tell_nobody(event: WorkerEvent) -> None:
    """For a worker without a log."""


def _own_name() -> str:
    """Unlike a process's name in the journal, this name does not tell whether the worker lives: only the lease does."""
    return f"{WORKER}{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def _call_soon(loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(told)
