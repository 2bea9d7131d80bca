"""A worker of Temporal that runs turns: the activity for a leg of a turn, and where it runs.

The event loop of Temporal's worker runs no turn: turns run on loops of other threads, so a tool that blocks its loop stops no
heartbeat.
"""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import msgspec

from turnwise.agent.agent import Agent, inside
from turnwise.agent.resume_lookup import asks_in
from turnwise.agent.run_setup import TypedRunOptions
from turnwise.agent.runs import Run
from turnwise.base.threads import run_to_end
from turnwise.errors import (
    CallerError,
    JournalFailed,
    JournalRefused,
    SessionBusy,
    TurnRefused,
    TurnwiseBug,
    TurnwiseError,
    UnreadableTurn,
)
from turnwise.journal.journal import Journal
from turnwise.journal.turn_keys import KeyedTurn
from turnwise.running.approvals import leave_for_later
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import StopReason
from turnwise.workers.temporal_sessions import (
    HEARTBEAT_S,
    LEG,
    TASK_QUEUE,
    LegEnd,
    LegOrder,
    SessionWorkflow,
    last_leg,
    leg_key,
)
from turnwise.workers.worker import CONCURRENCY, GRACE_S, Happening, WorkerEvent, check_agents

from temporalio import activity  # isort: skip (the module above says what to install where it is missing)
from temporalio.client import Client  # isort: skip
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory  # isort: skip
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker as EngineWorker  # isort: skip

BEATS = 3  # in the time of one heartbeat
THROTTLE = timedelta(seconds=2)  # heartbeats bring the word that a turn is cancelled
STICKY = timedelta(seconds=1)  # how long a session waits for a worker that is gone
# A frozen worker may still be given as many turns as it has polls. Each of them comes back when its heartbeat is late.
POLLS = PollerBehaviorSimpleMaximum(2)
SETTLE_S = 5.0  # for a turn that is handed over
LOOPS = 4


class _TurnLoop:
    """An event loop in a thread of its own, in which these agents are open."""

    def __init__(self, agents: Sequence[Agent[Any, Any]]) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ends = asyncio.Event()
        self._thread = threading.Thread(
            target=lambda: run_to_end(self._serve(agents)), name="turnwise turns", daemon=True
        )
        self._thread.start()

    async def _serve(self, agents: Sequence[Agent[Any, Any]]) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                for agent in agents:
                    await stack.enter_async_context(agent)
                self._ready.set_result(asyncio.get_running_loop())
                await self._ends.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def opened(self) -> None:
        self.loop = await asyncio.wrap_future(self._ready)

    def end(self) -> None:
        if self._ready.done() and self._ready.exception() is None:
            self._ready.result().call_soon_threadsafe(self._ends.set)
        self._thread.join(SETTLE_S)


class _Leg:
    """A leg that runs. `end` may come before its run has begun. Used in the turn's loop only."""

    def __init__(self, order: LegOrder, *, is_again: bool) -> None:
        self.order, self.is_again = order, is_again
        self.how: Literal["", "cancel", "hand_over"] = "cancel" if order.cancels else ""
        self._run: Run[Any] | None = None

    def begin(self, run: Run[Any]) -> Run[Any]:
        self._run = run
        if self.how:
            self.end(self.how)
        return run

    def end(self, how: Literal["cancel", "hand_over"]) -> None:
        self.how = how
        if self._run is not None:
            (self._run.interrupt if how == "cancel" else self._run.hand_over)()


class _Legs:
    """The activity that runs legs, and the loops on which they run."""

    def __init__(
        self, agents: Mapping[str, Agent[Any, Any]], *, journal: Journal, tell: Callable[[WorkerEvent], None]
    ) -> None:
        self._agents, self._journal, self._tell = agents, journal, tell
        self.loops: list[_TurnLoop] = []
        self._numbers = itertools.count()

    @activity.defn(name=LEG)
    async def leg(self, order: LegOrder) -> LegEnd:
        """Only this runs on the worker's loop."""
        info = activity.info()
        beat_s = (info.heartbeat_timeout or timedelta(seconds=HEARTBEAT_S)).total_seconds() / BEATS
        leg, loop = _Leg(order, is_again=info.attempt > 1), self.loops[next(self._numbers) % len(self.loops)].loop
        done = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(leg), loop))
        give_up_s = float("inf")
        clock = asyncio.get_running_loop().time
        while not done.done() and clock() < give_up_s:
            try:
                await asyncio.wait([done], timeout=min(beat_s, give_up_s - clock()))
                activity.heartbeat()
            except asyncio.CancelledError:
                why = activity.cancellation_details()
                is_cancelled = why is not None and why.cancel_requested
                loop.call_soon_threadsafe(leg.end, "cancel" if is_cancelled else "hand_over")
                give_up_s = give_up_s if is_cancelled else clock() + SETTLE_S
        if not done.done():
            raise _try_again("the turn is handed over as it is")
        return done.result()

    async def _run(self, leg: _Leg) -> LegEnd:
        """In the turn's loop."""
        order, turn = leg.order, leg.order.turn
        number = order.number
        try:
            number, found, asks = await self._journal.beside(partial(self._place, leg))
            agent = self._agents.get(turn.agent)
            is_unknown, has_begun = found is None and not asks, found is not None and found.state != "accepted"
            if order.cancels and (is_unknown or (agent is None and not has_begun)):
                return LegEnd(number, StopReason.CANCELLED.value)
            if agent is None:
                raise _try_again(f"this worker has no agent `{turn.agent}`")
            key = leg_key(turn.key, number)
            options: TypedRunOptions = {"session": order.session, "key": key, "journal": self._journal}
            if inside(agent).lacks_approver():
                options["safety"] = {"approver": leave_for_later}  # a person's answer is waited for without a process
            if asks:
                options["approvals"] = [Approval(call_id=ask.call.id, verdict="deny", by="program") for ask in asks]
            elif order.answers and number == order.number and not order.cancels:
                options["approvals"] = _approvals_in(order.answers)
            if leg.is_again:
                options["wait"] = turn.heartbeat_s  # for a process of this machine that works: it may freeze meanwhile
            self._say("resumed" if leg.is_again else "claimed", order)
            result = await leg.begin(agent.start(**options))
            if result.stop_reason is StopReason.JOURNAL_FAILED:
                raise _try_again("the journal failed")
            end = LegEnd(number, result.stop_reason.value)
            if result.stop_reason is StopReason.WAITING and not await self._journal.beside(
                lambda: self._is_last(order.session, key)
            ):
                end = LegEnd(number, "dropped", "the session has continued without it")
        except asyncio.CancelledError:
            self._say("handed_over", order)
            raise _try_again("the turn is handed over") from None
        except (JournalFailed, JournalRefused, TurnRefused, UnreadableTurn, SessionBusy, TurnwiseBug) as error:
            self._say("lost", order, text=str(error))
            raise _try_again(str(error)) from None
        except CallerError as error:
            end = LegEnd(number, "refused", str(error))
        except ApplicationError:
            raise
        except Exception as error:  # noqa: BLE001 (of an agent's own code; its text is not shown, because it may hold a secret)
            told = str(error) if isinstance(error, TurnwiseError) else f"the agent raised `{type(error).__name__}`"
            end = LegEnd(number, "failed", told)
        self._say("ended", order, text=end.problem or end.state)
        return end

    def _place(self, leg: _Leg) -> tuple[int, KeyedTurn | None, tuple[OneAsk, ...]]:
        """The leg at which the turn stands, which is a later one if the engine has forgotten some, what the journal has of it,
        and the asks that a cancel denies. The engine gives a leg out again only if it has given up the process before, so the
        turn is taken from its process. So is a turn that is cancelled."""
        order, turn, journal = leg.order, leg.order.turn, self._journal
        if turn.prompt:
            journal.accept(order.session, turn.key, turn.prompt)
        number = last_leg(journal, order.session, turn.key, first=0 if order.cancels else order.number)
        key = leg_key(turn.key, number)
        found = journal.find_key(order.session, key)
        is_waiting = found is not None and found.stop_reason is StopReason.WAITING
        if order.cancels and is_waiting and self._is_last(order.session, key):
            return number + 1, None, asks_in(journal, order.session)
        if found is not None and found.state == "running" and (order.cancels or leg.is_again):
            with contextlib.suppress(SessionBusy):  # it lives, and works: its result is ours, too
                journal.take_over(order.session)
        return number, found, ()

    def _is_last(self, session: str, key: str) -> bool:
        return self._journal.find_session(session).turns[-1].key == key

    def _say(self, happening: Happening, order: LegOrder, *, text: str = "") -> None:
        self._tell(WorkerEvent(happening=happening, session=order.session, agent=order.turn.agent, text=text))


def _try_again(why: str) -> ApplicationError:
    """The engine gives the leg to a worker once more."""
    return ApplicationError(why, type="TurnGoesOn", category=ApplicationErrorCategory.BENIGN)


def _approvals_in(text: str) -> tuple[Approval, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[Approval, ...])
    except msgspec.DecodeError:
        raise CallerError("the answer has a form that this worker does not know") from None


@contextlib.asynccontextmanager
async def turnwise_activities(
    agents: Mapping[str, Agent[Any, Any]],
    *,
    journal: Journal,
    loops: int = LOOPS,
    tell: Callable[[WorkerEvent], None] = lambda event: None,
) -> AsyncGenerator[list[Callable[[LegOrder], Coroutine[Any, Any, LegEnd]]]]:
    """The activities with which your own Temporal worker runs turns of these agents; `SessionWorkflow` is the workflow. Turns run
    on `loops` event loops in threads of their own, and each of them opens the agents. Leave the block after the worker's end."""
    check_agents(agents)
    legs = _Legs(dict(agents), journal=journal, tell=tell)
    try:
        legs.loops = [_TurnLoop([*agents.values()]) for _ in range(loops)]
        for loop in legs.loops:
            await loop.opened()
        yield [legs.leg]
    finally:
        for loop in legs.loops:
            await asyncio.to_thread(loop.end)


def session_worker(
    client: Client,
    *,
    activities: Sequence[Callable[..., Any]],
    task_queue: str = TASK_QUEUE,
    concurrency: int = CONCURRENCY,
    grace_s: float = GRACE_S,
    **options: Any,
) -> EngineWorker:
    """Temporal's worker with the settings that turns need. `options` are its own, such as
    `max_task_queue_activities_per_second`."""
    return EngineWorker(
        client,
        task_queue=task_queue,
        workflows=[SessionWorkflow],
        activities=activities,
        max_concurrent_activities=concurrency,
        graceful_shutdown_timeout=timedelta(seconds=grace_s),
        sticky_queue_schedule_to_start_timeout=STICKY,
        max_heartbeat_throttle_interval=THROTTLE,
        workflow_task_poller_behavior=POLLS,
        activity_task_poller_behavior=POLLS,
        **options,
    )
