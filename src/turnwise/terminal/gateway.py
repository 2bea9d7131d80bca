"""`turnwise gateway`: the server between other programs and their models, and the keys of its clients."""

import importlib
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from turnwise._version import __version__
from turnwise.base.extras import require_extras
from turnwise.terminal.command_options import FiniteRange, json_option
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import Failure, as_one_line
from turnwise.terminal.gateway_keys import add_key_commands, database_option
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.wire.profiles import FamilyName

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from turnwise.gateway.accounts import GatewayCounts
    from turnwise.gateway.config import GatewayConfig
    from turnwise.gateway.reloading import RenewableService
    from turnwise.gateway.serve import BoundSocket, ServedPage
    from turnwise.gateway.shared_clients import SharedClients

# Modules that are otherwise loaded late. In a gateway, all clients would wait 0.5 s for the first request that needs them.
AT_FIRST_REQUEST = (
    "turnwise.endpoints.aiohttp_transport",
    "turnwise.endpoints.bounded_connector",
    "turnwise.assembly.text_calls.frames",
    "jsonschema_rs",
)
LONGEST_GRACE_S = 3600.0
LONGEST_WAIT_S = 3600.0
MOST_WORKERS = 64
LAB_PORT = 8788  # as in docs/lab.md: the gateway's setting stays the same from check to check

GATEWAY_EPILOG = """\b
Examples:
  turnwise gateway --upstream openai:gpt-6.1-sol
  turnwise gateway --upstream 'ollama:*' --port 8484
  turnwise gateway --upstream http://127.0.0.1:8080/v1
  turnwise gateway --config gateway.toml --json
  turnwise gateway keys add laptop

\b
Then give your client its base URL:
  OpenAI      http://127.0.0.1:8484/v1
  Anthropic   http://127.0.0.1:8484
  Gemini      http://127.0.0.1:8484

SIGTERM and Ctrl-C let open answers end; a second Ctrl-C ends at once. SIGHUP reads the file again. Exit codes: 0 ended; 2 wrong
use, a bad file, no key, the extra is missing; 130 after a second Ctrl-C."""

CHECK_EPILOG = """\b
Examples:
  turnwise gateway check http://127.0.0.1:8484
  turnwise gateway check http://127.0.0.1:4000 --key-env LITELLM_MASTER_KEY --family openai_chat
  turnwise gateway check http://127.0.0.1:8080 --model my-model --case no-index --case shared-index

\b
With a --model without `{case}`, the lab plays each case under every name.
Exit codes:
  0    no answer is broken
  1    some are, or the output could not be written
  2    wrong use, no key, or no lab
  6    the gateway does not pass on a healthy stream
  130  Ctrl-C or SIGTERM (what was found is shown)"""

REPORT_EPILOG = """\b
Examples:
  turnwise gateway report
  turnwise gateway report --provider openrouter --since 7d > issue.md
  turnwise gateway report --model gpt-6.1-sol --since 2026-11-01
  turnwise gateway report --json | jq '.models[].repairs[].kind'

The report is Markdown, to paste into an issue. Its examples show how a stream was built: texts, names, ids and arguments are
replaced by their lengths and by placeholders. Days are of UTC. Exit codes: 0 shown, also if nothing was mended; 2 wrong use, or a
journal that cannot be read."""


@click.group(invoke_without_command=True, epilog=GATEWAY_EPILOG)
@click.option(
    "--upstream",
    metavar="MODEL-or-URL",
    help="One upstream for every model: `openai:gpt-6.1-sol`, `openai:*`, or a URL.",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Routes, bounds and doors. [default: gateway.toml in `turnwise` in XDG_CONFIG_HOME or ~/.config]",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    help="The address to listen on. Any other than loopback needs keys. [default: 127.0.0.1]",
)
@click.option("--port", type=click.IntRange(0, 65_535), help="0 takes a free one. [default: 8484]")
@click.option(
    "--admin",
    metavar="ADDRESS",
    help="Where the page and `/admin` are served instead, for people with an admin key: 127.0.0.1:8485.",
)
@json_option("Print the address as one JSON line, and log in JSON lines.")
@click.option("--quiet", is_flag=True, help="Log errors only. Otherwise each request has a line on standard error.")
@database_option
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    default=1,
    metavar="N",
    help="Processes that serve the address together, on one machine. [default: 1]",
)
@click.option("--forward-key", is_flag=True, help="Send the client's own key upstream instead of yours.")
@click.option(
    "--grace",
    "grace_s",
    type=FiniteRange(0, LONGEST_GRACE_S),
    default=30.0,
    metavar="S",
    help="Seconds that open answers have after SIGTERM. [default: 30]",
)
@click.option(
    "--drain",
    "drain_s",
    type=FiniteRange(0, LONGEST_GRACE_S),
    default=0.0,
    metavar="S",
    help="Seconds after SIGTERM in which /readyz says no, and connections are still accepted. [default: 0]",
)
@click.pass_context
def gateway_command(
    ctx: click.Context,
    upstream: str | None,
    config_path: Path | None,
    host: str | None,
    port: int | None,
    as_json: bool,
    quiet: bool,
    forward_key: bool,
    grace_s: float,
    drain_s: float,
    database: str | None,
    workers: int,
    admin: str | None,
) -> None:
    """Serve your models to any client of the four API families; broken streams arrive whole."""
    if ctx.invoked_subcommand is not None:
        return
    with as_one_line():
        require_extras("gateway")
        from turnwise.base.clock import SystemClock
        from turnwise.gateway.accounts import GatewayCounts, logging_to
        from turnwise.gateway.client_bounds import key_file
        from turnwise.gateway.config import config_file
        from turnwise.gateway.reloading import ConfigReading
        from turnwise.gateway.serve import GatewayMeans, bind, run_gateway
        from turnwise.gateway.shared_clients import open_shared

        config = _config(upstream, config_path, host=host, port=port, admin=admin)
        reading = None
        if upstream is None:
            read = partial(_config, None, config_path, host=host, port=port, admin=admin)
            reading = ConfigReading(read=read, path=config_path or config_file(os.environ))
        from turnwise.terminal.databases import checked_dsn

        dsn = None if database is None else checked_dsn(database)
        at = _bind_page(config)
        tells = partial(_tell, as_json=as_json, page="" if at is None else at.url)
        listening, seat = None, None
        if workers > 1:
            from turnwise.gateway.workers import WorkerProcesses

            listening = bind(config)
            seat = WorkerProcesses(
                workers,
                config=config,
                reading=reading,
                tells=partial(tells, listening),
                closes=listening.close,
                ends_s=grace_s + drain_s,
            ).run()
            config = seat.config  # and this is one of the workers
        with (
            logging_to(sys.stderr, as_json=as_json, quiet=quiet, first="" if seat is None else seat.news),
            open_shared(
                os.environ, clock=SystemClock(), database=dsn, goes_on_s=config.unreachable_store.goes_on_s
            ) as shared,
        ):
            counts = GatewayCounts(file=None if seat is None else seat.counts, fullness=shared.fullness)
            opens = partial(_open_service, forward_key=forward_key, database=dsn, holder=shared.holder, counts=counts)
            means = GatewayMeans(
                config=config,
                opens=opens,
                tells=tells if seat is None else lambda own: seat.ready(),
                keys=key_file(os.environ),
                shared=shared,
                page=None if at is None else _page(at, shared=shared, database=dsn),
                forward_key=forward_key,
                grace_s=grace_s,
                drain_s=drain_s,
                reading=reading,
                listening=listening,
                seat=seat,
            )
            ending = run_gateway(means)
    sys.exit(CANCELLED if ending.at_once else 0)


def _bind_page(config: "GatewayConfig") -> "BoundSocket | None":
    """The page's address, if there is one; before processes part, so that all of them serve it. Raises CallerError."""
    if not config.admin:
        return None
    from turnwise.gateway.page_server import bind_page

    return bind_page(config)


def _page(at: "BoundSocket", *, shared: "SharedClients", database: str | None) -> "ServedPage":
    from turnwise.base.clock import SystemClock
    from turnwise.gateway.page_server import page_beside
    from turnwise.journal.journal import Journal, journal_path

    clock = SystemClock()
    opens = partial(Journal, database or journal_path(os.environ), clock=clock)
    return partial(page_beside, listening=at, shared=shared, opens=opens, clock=clock)


def _open_service(
    config: "GatewayConfig", *, forward_key: bool, database: str | None, holder: str, counts: "GatewayCounts"
) -> "AbstractAsyncContextManager[RenewableService]":
    """Imported last: an error in a file is reported before the transport and the codecs of four families are loaded."""
    from turnwise.gateway.service import open_service
    from turnwise.wire.family import MODULES
    from turnwise.wire.relay_facts import relay_facts

    for name in AT_FIRST_REQUEST:
        importlib.import_module(name)
    for name in MODULES:
        relay_facts(name)
    return open_service(
        config, env=os.environ, forward_key=forward_key, database=database, holder=holder, counts=counts
    )


def _config(
    upstream: str | None, path: Path | None, *, host: str | None, port: int | None, admin: str | None
) -> "GatewayConfig":
    """The file, or the one upstream; addresses of the command line override the file. Raises CallerError."""
    from turnwise.gateway.config import config_file, config_of, read_config

    if upstream is not None and path is not None:
        raise Failure("give --upstream or --config: the routes of the file have upstreams of their own")
    if upstream is not None:
        config = config_of(upstream)
    else:
        own = path or config_file(os.environ)
        if path is None and not own.exists():
            raise Failure(f"give --upstream MODEL-or-URL, or write routes into `{own}`")
        config = read_config(own)
    own = {name: told for name, told in (("host", host), ("port", port), ("admin", admin)) if told is not None}
    try:
        return msgspec.structs.replace(config, **own)
    except ValueError as error:
        raise Failure(str(error)) from None


def _tell(listening: "BoundSocket", *, as_json: bool, page: str) -> None:
    own, url = listening.own, listening.url
    if as_json:
        told = {
            "turnwise": __version__,
            "url": url,
            "host": own.ip,
            "port": own.port,
            **({"admin": page} if page else {}),
        }
        say(msgspec.json.encode(told).decode(), stream=sys.stdout, as_it_is=True)
    else:
        say(f"turnwise gateway on {url}   (OpenAI: {url}/v1, Anthropic and Gemini: {url})", stream=sys.stdout)
        if page:
            say(f"its page on {page}", stream=sys.stdout)


@gateway_command.command("report", cls=EndsWithLine, epilog=REPORT_EPILOG)
@click.option("--provider", metavar="P", help="Only this provider, by its name in the report.")
@click.option("--model", metavar="M", help="Only this model, by the upstream's name for it.")
@click.option("--since", metavar="DATE", help="A date (2026-11-01), a time ago (12h, 7d, 4w), or `all`. [default: all]")
@json_option("Everything as one JSON object.")
def report(provider: str | None, model: str | None, since: str | None, as_json: bool) -> None:
    """Show what the gateway mended, for the vendor."""
    with as_one_line():
        from turnwise.terminal.gateway_check import show_report

        show_report(provider=provider, model=model, since=since, as_json=as_json)


@gateway_command.command("check", cls=EndsWithLine, epilog=CHECK_EPILOG)
@click.argument("url")
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice(get_args(FamilyName)),
    help="Ask as a client of this API. Repeatable. [default: each that the gateway answers]",
)
@click.option("--key-env", metavar="VAR", help="The variable that holds a key for the gateway.")
@click.option(
    "--model",
    default="{case}",
    metavar="NAME",
    help="The model to ask the gateway for; `{case}` stands for the case's name. [default: {case}]",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="The lab's port on 127.0.0.1; 0 takes a free one. [default: 8788]"
)
@click.option("--lab", "lab_url", metavar="URL", help="Use this running lab and do not start one.")
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help="Try this case only, also `fault-silence` or `fault-stall`. Repeatable.",
)
@click.option(
    "--wait",
    "wait_s",
    type=FiniteRange(0, LONGEST_WAIT_S),
    default=60.0,
    metavar="S",
    help="Seconds to wait until the gateway answers a healthy stream. [default: 60]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(0, LONGEST_WAIT_S, min_open=True),
    default=30.0,
    metavar="S",
    help="Seconds that one answer may take. [default: 30]",
)
@json_option("One JSON object: each case, and what two readers read.")
def check(
    port: int | None,
    lab_url: str | None,
    **options: Any,
) -> None:
    """Send broken streams through any gateway and say which of them reach the client broken.

    URL is the gateway's base URL. Its upstream must be the lab, which this command starts: it prints the setting.
    """
    if lab_url is not None and port is not None:
        raise Failure("give --port or --lab: a lab that runs has a port")
    with as_one_line():
        from turnwise.terminal.gateway_check import GatewayCheckRequest, check_gateway

        wanted = GatewayCheckRequest(port=LAB_PORT if port is None else port, lab_url=lab_url, **options)
        code = check_gateway(wanted)
    sys.exit(code)


add_key_commands(gateway_command)
