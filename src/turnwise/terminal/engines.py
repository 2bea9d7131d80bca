"""`--engine temporal`: what `turnwise worker` and `turnwise submit` do on an engine."""

import asyncio
import contextlib
import functools
import logging
import signal
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import click
import msgspec

from turnwise.agent.agent import Agent
from turnwise.base.clock import SystemClock, TimeOrderedIds
from turnwise.base.extras import require_extras
from turnwise.journal.journal import Journal
from turnwise.terminal.command_options import Command, FiniteRange
from turnwise.terminal.failures import FAILED, Failure

if TYPE_CHECKING:
    from temporalio.runtime import Runtime

    from turnwise.workers.worker import WorkerEvent

LONGEST_HEARTBEAT_S = 3600.0
LONGEST_TEXT = 500  # of what the SDK logs


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that has the turns, and what it is told. Everything but the first belongs to Temporal."""

    engine: Literal["own", "temporal"] = "own"
    address: str | None = None
    namespace: str | None = None
    task_queue: str | None = None
    max_turns_per_second: float | None = None
    key: str | None = None
    heartbeat: float | None = None
    priority_key: int | None = None
    fairness_key: str | None = None


# The type, the metavar and the help of each option.
_OPTIONS: Mapping[str, tuple[Any, str | None, str]] = {
    "engine": (
        click.Choice(["own", "temporal"]),
        None,
        "Who has the turns: the database itself, or Temporal. [default: own]",
    ),
    "address": (str, "HOST:PORT", "Temporal's address. [default: TEMPORAL_ADDRESS, or localhost:7233]"),
    "namespace": (str, "NAME", "Temporal's namespace. [default: TEMPORAL_NAMESPACE, or default]"),
    "task_queue": (str, "NAME", "Temporal's task queue. [default: turnwise]"),
    "max_turns_per_second": (
        FiniteRange(0, min_open=True),
        "N",
        "Temporal begins at most so many turns a second, over all workers of the task queue.",
    ),
    "key": (str, "KEY", "The turn's own name in its session: the same key twice is one turn. [default: a new one]"),
    "heartbeat": (
        FiniteRange(1, LONGEST_HEARTBEAT_S),
        "S",
        "Seconds without a sign of the worker after which Temporal gives the turn to another one. [default: 30]",
    ),
    "priority_key": (click.IntRange(1), "N", "Temporal's priority of the session: 1 comes first."),
    "fairness_key": (
        str,
        "NAME",
        "Sessions of one name, such as a tenant, share Temporal's attention with other names.",
    ),
}
_SHARED = ("engine", "address", "namespace", "task_queue")
OF_WORKERS = (*_SHARED, "max_turns_per_second")
OF_SUBMIT = (*_SHARED, "key", "heartbeat", "priority_key", "fairness_key")


def engine_options(*names: str) -> Callable[[Command], Command]:
    """The command with these options; it gets their values as `engine`."""

    def taking_options(command: Command) -> Command:
        @functools.wraps(command)
        def taking(**values: Any) -> object:
            said = {name: found for name in names if (found := values.pop(name)) is not None}
            options = EngineOptions(**said)
            if options.engine == "own" and (more := [name for name in said if name != "engine"]):
                raise Failure(f"`--{more[0].replace('_', '-')}` needs `--engine temporal`")
            return command(**values, engine=options)

        found = cast("Command", taking)
        for name in reversed(names):
            kind, metavar, help = _OPTIONS[name]
            found = click.option(f"--{name.replace('_', '-')}", name, type=kind, metavar=metavar, help=help)(found)
        return found

    return taking_options


def refuse_for_engine(**given: object) -> None:
    """Raise for options that only the own engine has."""
    if said := [name for name, value in given.items() if value]:
        option = said[0].replace("_", "-")
        raise Failure(f"`--{option}` is for turnwise's own workers: leave it out with `--engine temporal`")


async def work_on_engine(
    options: EngineOptions,
    *,
    dsn: str,
    agents: Mapping[str, Agent[Any, Any]],
    concurrency: int,
    grace_s: float,
    tell: "Callable[[WorkerEvent], None]",
) -> None:
    """Run turns until SIGTERM or Ctrl-C."""
    from turnwise.workers.temporal import session_worker, turnwise_activities
    from turnwise.workers.temporal_sessions import TASK_QUEUE, connect_engine
    from turnwise.workers.worker import WorkerEvent

    with as_engine_failure():
        client = await connect_engine(
            address=options.address, namespace=options.namespace, runtime=_told_by(tell, WorkerEvent)
        )
    ends = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ends.set)
    with Journal(dsn, clock=SystemClock(), durability="full") as journal:
        async with turnwise_activities(agents, journal=journal, tell=tell) as activities:
            worker = session_worker(
                client,
                activities=activities,
                task_queue=options.task_queue or TASK_QUEUE,
                concurrency=concurrency,
                grace_s=grace_s,
                max_task_queue_activities_per_second=options.max_turns_per_second,
            )
            async with worker:
                tell(WorkerEvent(happening="ready", text=client.identity))
                await ends.wait()


def _told_by(tell: "Callable[[WorkerEvent], None]", event: "type[WorkerEvent]") -> "Runtime":
    """What the SDK logs comes through the worker's log: in its form, cleaned, and without tracebacks."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(event(happening="waits", text=f"Temporal: {record.getMessage()[:LONGEST_TEXT]}"))

    logger = logging.getLogger("temporalio")
    logger.addHandler(Told())
    logger.propagate = False
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    forwarding = LogForwardingConfig(logger=logger, append_log_fields_to_message=False)
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels, forwarding=forwarding)))


@contextlib.contextmanager
def as_engine_failure() -> Generator[None]:
    """An engine that cannot be reached, or refuses what it is asked, is no wrong use."""
    from temporalio.service import RPCError

    try:
        yield
    except ConnectionError as error:
        raise Failure(str(error), exit_code=FAILED) from None
    except RPCError as error:
        raise Failure(f"Temporal says: {error}", exit_code=FAILED) from None


def submit_to_engine(
    options: EngineOptions, *, dsn: str, agent: str, session: str, prompt: str, labels: Mapping[str, str]
) -> tuple[str, str]:
    """Returns the session and the key of the turn."""
    require_extras("postgres", "temporal")
    from turnwise.workers.temporal_sessions import HEARTBEAT_S, TASK_QUEUE, EngineTurn, TemporalTurns, connect_engine

    ids = TimeOrderedIds(SystemClock())
    session, key = session or ids.new(), options.key or ids.new()
    turn = EngineTurn(agent, key, heartbeat_s=options.heartbeat or HEARTBEAT_S)

    async def submit() -> None:
        client = await connect_engine(address=options.address, namespace=options.namespace)
        with Journal(dsn, clock=SystemClock(), durability="full") as journal:
            turns = TemporalTurns(client, journal=journal, task_queue=options.task_queue or TASK_QUEUE)
            await turns.submit(
                session,
                turn,
                prompt,
                labels=labels,
                priority_key=options.priority_key,
                fairness_key=options.fairness_key,
            )

    with as_engine_failure():
        asyncio.run(submit())
    return session, key
