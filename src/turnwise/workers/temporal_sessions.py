"""Sessions on Temporal: their workflow, and what programs say to it. The engine holds ids; the journal holds the turns.

A session is a workflow, and a leg of a turn is an activity (`temporal.py`). A leg is all that a turn does without waiting for a
person. It begins, continues or reads the turn by its key, so a leg that runs twice is one turn.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from turnwise.base.extras import require_extras
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.journal.session_rows import NO_LABELS, Labels
from turnwise.journal.turn_keys import check_new_id
from turnwise.turn.config import Approval, TurnResult
from turnwise.vocab import StopReason

require_extras("temporal")

from temporalio import workflow  # noqa: E402
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest  # noqa: E402
from temporalio.client import Client  # noqa: E402
from temporalio.common import Priority, RetryPolicy  # noqa: E402
from temporalio.envconfig import ClientConfig  # noqa: E402
from temporalio.exceptions import ActivityError, CancelledError  # noqa: E402
from temporalio.runtime import Runtime  # noqa: E402
from temporalio.service import RPCError, RPCStatusCode  # noqa: E402

TASK_QUEUE = "turnwise"
SECRET_VARIABLES = ("TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA", "TEMPORAL_CODEC_AUTH", "TEMPORAL_GRPC_META_")
LEG = "turnwise_leg"
HEARTBEAT_S = 30.0  # at 3 to 5 s, the engine gave up a third of the turns of busy workers
LONGEST_S = 24 * 3600.0  # of one leg: an activity needs a limit
AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=4))  # after the heartbeat
TASK = timedelta(
    seconds=5
)  # of the workflow, which takes milliseconds: after it, another worker than a frozen one gets it
LONGEST_KEY = 110  # a leg after an answer has a longer one
ANSWERED_AS = "{}:answer-{}"  # the key of the turn that answers the asks of another one


@dataclass(frozen=True)
class EngineTurn:
    """A turn of a session: its key, and the agent that runs it. With a `prompt`, the first leg keeps it in the journal; a
    schedule needs that. Without heartbeats for `heartbeat_s` seconds, the engine gives the turn to another worker. A turn that is
    `cancelled` ends without having begun."""

    agent: str
    key: str
    prompt: str = ""
    heartbeat_s: float = HEARTBEAT_S
    longest_s: float = LONGEST_S
    cancelled: bool = False


@dataclass(frozen=True)
class LegOrder:
    """What an activity does: leg `number` of the turn, with the `answers` to the asks of the leg before it (JSON)."""

    session: str
    turn: EngineTurn
    number: int = 0
    answers: str = ""
    cancels: bool = False


@dataclass(frozen=True)
class LegEnd:
    """How leg `number` ended: a stop reason, `refused`, `failed`, or `dropped` (the session has continued without it)."""

    number: int
    state: str
    problem: str = ""


@dataclass
class EngineStatus:
    """What a session does now: the key and the state of its turn (`running`, or as it ended), and the keys that wait."""

    key: str = ""
    state: str = ""
    problem: str = ""
    queued: tuple[str, ...] = ()


@workflow.defn(name="turnwise_session", sandboxed=False)  # a sandbox would import turnwise again for each session
class SessionWorkflow:
    """The turns of one session, in order. Its id is the session's. It ends when no turn is left."""

    def __init__(self) -> None:
        self._queue: list[EngineTurn] = []
        self._status = EngineStatus()
        self._answers: list[str] = []
        self._leg: workflow.ActivityHandle[LegEnd] | None = None
        self._cancels = False

    @workflow.run
    async def run(self, turns: list[EngineTurn]) -> EngineStatus:
        self._queue[:0] = turns
        while self._queue:
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._queue)
            await self._work(self._queue.pop(0))
            if _is_cancelled_by_engine():  # the session's other turns do not begin
                self.cancel("")
        if _is_cancelled_by_engine():
            raise asyncio.CancelledError
        return self._status

    # An argument that is missing would stop the session for ever: so each signal has defaults that do nothing.

    @workflow.signal
    def submit(self, turn: EngineTurn | None = None) -> None:
        """Put the turn behind the others, unless it is among them."""
        if turn is not None and turn.key not in self._open_keys():
            self._queue.append(turn)

    @workflow.signal
    def answer(self, key: str = "", approvals: str = "") -> None:
        """Answer what the turn asks, or will ask."""
        if approvals and key == self._status.key:
            self._answers.append(approvals)

    @workflow.signal
    def cancel(self, key: str | None = None) -> None:
        """End this turn; with an empty key, all turns of the session. A turn that waits ends when it would begin, so that the
        journal hears of it."""
        if key is None:
            return
        self._queue = [replace(turn, cancelled=turn.cancelled or key in ("", turn.key)) for turn in self._queue]
        if key in ("", self._status.key):
            self._cancels = True
            if self._leg is not None:
                self._leg.cancel()

    @workflow.query
    def status(self) -> EngineStatus:
        queued = tuple([turn.key for turn in self._queue])
        return EngineStatus(self._status.key, self._status.state, self._status.problem, queued)

    def _open_keys(self) -> list[str]:
        current = [] if self._leg is None else [self._status.key]
        return current + [turn.key for turn in self._queue]

    async def _work(self, turn: EngineTurn) -> None:
        session = workflow.info().workflow_id
        self._status, self._answers, self._cancels = EngineStatus(turn.key, "running"), [], turn.cancelled
        end = await self._run_leg(LegOrder(session, turn, cancels=turn.cancelled))
        while end.state == StopReason.WAITING.value:
            self._status = EngineStatus(turn.key, end.state, end.problem)
            try:
                await workflow.wait_condition(lambda: bool(self._answers) or self._cancels)
            except asyncio.CancelledError:
                self._cancels = True
            if self._cancels:
                end = await self._run_leg(LegOrder(session, turn, end.number, cancels=True))
                break
            self._status = EngineStatus(turn.key, "running")
            answers, number = self._answers.pop(0), end.number + 1
            end = await self._run_leg(LegOrder(session, turn, number, answers))
            if end.state == "refused":  # wrong answers change nothing
                end = LegEnd(number - 1, StopReason.WAITING.value, end.problem)
        self._leg = None
        self._status = EngineStatus(turn.key, end.state, end.problem)

    async def _run_leg(self, order: LegOrder) -> LegEnd:
        self._leg = workflow.start_activity(
            LEG,
            order,
            result_type=LegEnd,
            heartbeat_timeout=_as_time(order.turn.heartbeat_s),
            start_to_close_timeout=_as_time(order.turn.longest_s),
            retry_policy=AGAIN,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=order.turn.key,
        )
        try:
            return await self._leg
        except ActivityError as error:
            if order.cancels:
                return LegEnd(order.number, StopReason.CANCELLED.value)
            if not (isinstance(error.cause, CancelledError) or self._cancels or _is_cancelled_by_engine()):
                return LegEnd(order.number, "failed", str(error.cause or error))
        # Its worker did not say how it ended: the journal has to hear of it, too.
        return await self._run_leg(LegOrder(order.session, order.turn, order.number, order.answers, cancels=True))


def _as_time(seconds: float) -> timedelta:
    """Within what the engine takes: a time that it refuses would stop the session for ever."""
    return timedelta(seconds=min(LONGEST_S, max(1.0, seconds)))


def _is_cancelled_by_engine() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def connect_engine(
    *, address: str | None = None, namespace: str | None = None, runtime: Runtime | None = None
) -> Client:
    """By Temporal's own variables and file (`TEMPORAL_ADDRESS`, `TEMPORAL_API_KEY`, TLS), and what is given over them. Raises
    ConnectionError, and CallerError for settings of a wrong form."""
    try:
        found: dict[str, Any] = {"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()}
        found |= {"target_host": address} if address else {}
        found |= {"namespace": namespace} if namespace else {}
        client = await Client.connect(**found, runtime=runtime)
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except (RuntimeError, RPCError) as error:
        raise ConnectionError(f"Temporal cannot be reached: {error}") from None
    except (OSError, ValueError) as error:
        raise CallerError(f"the settings of Temporal cannot be used: {error}") from None
    for name in [one for one in os.environ if one.startswith(SECRET_VARIABLES)]:
        del os.environ[name]  # programs that tools start do not inherit it
    return client


def leg_key(key: str, number: int) -> str:
    """The journal's key of this leg."""
    return ANSWERED_AS.format(key, number) if number else key


def last_leg(journal: Journal, session: str, key: str, *, first: int = 0) -> int:
    """The last leg of the turn that has begun, from leg `first` on."""
    while journal.find_key(session, leg_key(key, first + 1)) is not None:
        first += 1
    return first


class TemporalTurns:
    """What a program says to the sessions of a task queue. `journal` is that of the workers."""

    def __init__(self, client: Client, *, journal: Journal, task_queue: str = TASK_QUEUE) -> None:
        self._client, self._journal, self._task_queue = client, journal, task_queue

    async def submit(
        self,
        session: str,
        turn: EngineTurn,
        prompt: str,
        *,
        labels: Labels = NO_LABELS,
        priority_key: int | None = None,
        fairness_key: str | None = None,
        **options: Any,
    ) -> None:
        """Keep the turn in the journal, and have it run after the session's other turns.

        `priority_key` and `fairness_key` are those of Temporal, and `options` those of its `start_workflow`. A session that has a
        turn already keeps its own. Raises KeyReused.
        """
        if len(check_new_id(turn.key, what="the key")) > LONGEST_KEY:
            raise CallerError(f"the key has more than {LONGEST_KEY} characters")
        await self._journal.beside(partial(self._journal.accept, session, turn.key, prompt, labels=labels))
        await self._client.start_workflow(
            SessionWorkflow.run,
            list[EngineTurn](),
            id=session,
            task_queue=self._task_queue,
            task_timeout=TASK,
            start_signal="submit",
            start_signal_args=[turn],
            priority=Priority(priority_key=priority_key, fairness_key=fairness_key),
            **options,
        )

    async def answer(self, session: str, key: str, approvals: Sequence[Approval]) -> None:
        """Answer what the turn asks (`agent.open_asks(session)`). It goes on as soon as a worker has it. Raises CallerError if
        the engine has no turn of the session."""
        said = msgspec.json.encode(approvals).decode()
        if not await self._tell(session, SessionWorkflow.answer, key, said):
            raise CallerError(f"no turn of the session `{session}` waits for an answer on the engine")

    async def cancel(self, session: str, key: str = "") -> bool:
        """End this turn; without a key, all turns of the session. False: the engine has no turn of it, and nothing ends."""
        return await self._tell(session, SessionWorkflow.cancel, key)

    async def _tell(self, session: str, signal: Callable[..., None], *words: str) -> bool:
        """False if its workflow has ended."""
        try:
            await self._client.get_workflow_handle(session).signal(signal, args=words)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def status(self, session: str) -> EngineStatus:
        """What the session does. A worker must live to say so."""
        return await self._client.get_workflow_handle(session).query(SessionWorkflow.status)

    async def result(self, session: str, key: str) -> TurnResult | None:
        """How the turn ended, also if it was continued after answers. None: it has not begun, or it goes on. Needs no worker.
        Raises CallerError if the session has no turn of that key."""
        journal = self._journal
        return await journal.beside(lambda: journal.result(session, leg_key(key, last_leg(journal, session, key))))
