"""`turnwise worker`: run the turns that wait in a database."""

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from turnwise.agent.agent import Agent
from turnwise.agent.written_lines import WrittenLines
from turnwise.base.extras import require_extras
from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.terminal.command_options import FiniteRange, json_option
from turnwise.terminal.databases import checked_dsn, database_option
from turnwise.terminal.engines import OF_WORKERS, EngineOptions, engine_options, refuse_for_engine, work_on_engine
from turnwise.terminal.failures import as_one_line

# The agents on a worker's command line: `name=package.module:agent`.


LOOKS = "`--agent` is `NAME=PACKAGE.MODULE:AGENT`"


def load_agents(given: Sequence[str]) -> dict[str, Agent[Any, Any]]:
    """The agents by name. After `:` comes an Agent, or a function that makes one. Modules are also looked for in this folder.

    Raises CallerError if there is no such agent, or if its module raises: with the place, but without the error's text, which may
    hold a secret.
    """
    agents: dict[str, Agent[Any, Any]] = {}
    for text in given:
        name, _, place = text.partition("=")
        if not name or not place.partition(":")[2]:
            raise CallerError(f"{LOOKS}, and not `{text}`")
        if name in agents:
            raise CallerError(f"`--agent {name}` is given twice")
        agents[name] = _load_or_say(place, option=text)
    return agents


def _load_or_say(place: str, *, option: str) -> Agent[Any, Any]:
    try:
        return _load(place, option=option)
    except CallerError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever the module raises)
        module_name = place.partition(":")[0]
        raise CallerError(
            f"`--agent {option}`: `{module_name}` raised {type(error).__name__} at {_place_of(error)}"
        ) from None


def _place_of(error: BaseException) -> str:
    """The last line of this folder that led to the error, otherwise the last line of all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    here = [frame for frame in frames if Path(frame.filename).is_relative_to(Path.cwd())]
    last = (here or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def _load(place: str, *, option: str) -> Agent[Any, Any]:
    module_name, _, path = place.partition(":")
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109 (as `python -m` does)
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise CallerError(f"`--agent {option}`: `{module_name}` needs the module `{error.name}`") from None
        raise CallerError(f"`--agent {option}`: there is no module `{error.name}` here or among the packages") from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise CallerError(f"`--agent {option}`: `{module_name}` has no `{path}`")
        found = getattr(found, part)
    made = _made_of(found)
    if not isinstance(made, Agent):
        raise CallerError(
            f"`--agent {option}`: `{path}` is a {type(made).__name__}, and neither an Agent nor makes one"
        )
    return cast("Agent[Any, Any]", made)


def _made_of(found: Any) -> object:
    """The agent as it is, or the agent that the function makes."""
    return cast("object", found) if isinstance(found, Agent) or not callable(found) else found()


def _address_of(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise click.BadParameter("give a port, or a host and a port: `9464`, `0.0.0.0:9464`")
    return host or "127.0.0.1", int(port)


LAST_PORT = 65535
MOST_TURNS = 1000
LONGEST_LEASE_S = 3600.0

WORKER_EPILOG = """\b
Examples:
  turnwise worker --agent helper=my_agents:helper
  turnwise worker --agent helper=my_agents:helper --agent coder=my_agents:make_coder --concurrency 20
  turnwise worker --agent coder=my_agents:coder --offers folder:/srv/x --json
  turnwise worker --agent helper=my_agents:helper --metrics 9464
  turnwise worker --engine temporal --agent helper=my_agents:helper

AGENT is an `Agent` or a function that makes one; modules are found in this folder, too. Nothing else is imported: a turn only
names one of these agents.

\b
SIGTERM and Ctrl-C hand over the turns that run. Exit codes:
  0   ended
  1   the database failed
  2   wrong use, no such agent, or no such database
  70  its leases could not be renewed; others go on with its turns"""


@click.command(epilog=WORKER_EPILOG)
@database_option
@click.option(
    "--agent",
    "agents",
    multiple=True,
    required=True,
    metavar="NAME=MODULE:AGENT",
    help="An agent, and the name by which turns ask for it. May be repeated.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, MOST_TURNS),
    default=10,
    metavar="N",
    help="How many turns run at once. [default: 10]",
)
@click.option("--offers", multiple=True, metavar="WHAT", help="What turns may need, `folder:/srv/x`. May be repeated.")
@click.option(
    "--allow-model", "models", multiple=True, metavar="NAME", help="A model that turns may ask for. May be repeated."
)
@click.option("--allow-instructions", is_flag=True, help="Turns may add instructions after the agent's own.")
@click.option(
    "--lease",
    "lease_s",
    type=FiniteRange(1, LONGEST_LEASE_S),
    metavar="S",
    help="Seconds after which the turns of a worker that does not answer go to another one. [default: 30]",
)
@click.option(
    "--grace",
    "grace_s",
    type=FiniteRange(0, LONGEST_LEASE_S),
    default=20.0,
    metavar="S",
    help="Seconds that steps have to end after SIGTERM. [default: 20]",
)
@click.option(
    "--metrics",
    callback=_address_of,
    metavar="[HOST:]PORT",
    help="Serve gauges of the whole queue for Prometheus at `/metrics`. [HOST default: 127.0.0.1]",
)
@engine_options(*OF_WORKERS)
@json_option("Log in JSON lines.")
def worker_command(
    database: str | None,
    agents: tuple[str, ...],
    concurrency: int,
    offers: tuple[str, ...],
    models: tuple[str, ...],
    allow_instructions: bool,
    lease_s: float | None,
    grace_s: float,
    metrics: tuple[str, int] | None,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Run the turns that wait in a database, with the agents named here."""
    if engine.engine == "temporal":
        refuse_for_engine(
            offers=offers, allow_model=models, allow_instructions=allow_instructions, metrics=metrics, lease=lease_s
        )
    with as_one_line():
        dsn = checked_dsn(database)
        require_extras("postgres", *(["temporal"] if engine.engine == "temporal" else []))
        from turnwise.workers.worker import LEASE_S, Worker, WorkerAllows, WorkerEvent

        def line_of(event: WorkerEvent) -> str:
            if as_json:
                return msgspec.json.encode(event).decode()
            return visible_line(
                " ".join([part for part in (event.happening, event.session, event.agent, event.text) if part])
            )

        found = load_agents(agents)

        def tell(event: WorkerEvent) -> None:
            lines.put(line_of(event))

        async def work() -> None:
            if engine.engine == "temporal":
                await work_on_engine(engine, dsn=dsn, agents=found, concurrency=concurrency, grace_s=grace_s, tell=tell)
                return
            worker = Worker(
                dsn,
                agents=found,
                concurrency=concurrency,
                offers=offers,
                allows=WorkerAllows(models=models, instructions=allow_instructions),
                lease_s=lease_s or LEASE_S,
                grace_s=grace_s,
                tell=tell,
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            await worker.run()

        # A log without a reader blocks no turn.
        lines = WrittenLines(sys.stderr, dropped_line=lambda why: line_of(WorkerEvent(happening="waits", text=why)))
        with contextlib.ExitStack() as stack:
            stack.callback(lines.close)
            if metrics is not None:
                from turnwise.workers.metrics import QueueMetrics

                host, port = metrics
                served = stack.enter_context(QueueMetrics(dsn, host=host, port=port))
                lines.put(line_of(WorkerEvent(happening="metrics", text=served.url)))
            run_to_end(work(), new_loop=quickest_loop)
