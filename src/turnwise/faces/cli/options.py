"""The options that a single run and an interactive session share."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from turnwise.drivers.settings import MOST, MOST_STEPS, read_usd
from turnwise.errors import CallerError
from turnwise.faces.cli.completion import complete_models, complete_sessions
from turnwise.rules.retries import RetryPolicy
from turnwise.rules.subagents import MAX_SUBAGENT_REQUESTS, MAX_SUBAGENTS
from turnwise.turn.config import MAX_STEPS, Deadlines, Recover

MOST_ASK_S = 86_400.0  # a day: nobody waits longer at a terminal

Command = TypeVar("Command", bound=Callable[..., object])


class Given(TypedDict):
    """What was given of them; None where it was not."""

    model: str | None
    base_url: str | None
    api_key_env: str | None
    max_steps: int | None
    max_requests: int | None
    max_tokens: int | None
    max_cost: Decimal | None
    max_time: float | None
    max_output_tokens: int | None
    max_subagents: int | None
    max_subagent_requests: int | None
    context_window: int | None
    recover: Recover | None
    retries: int | None
    fallback: tuple[str, ...]
    script: bool | None
    cwd: Path | None
    go_on: bool
    session: str | None
    system: str | None
    allow: tuple[str, ...]
    ask_timeout: float | None
    no_sandbox: bool
    network: bool
    no_agents_md: bool
    no_environment: bool
    no_stream: bool
    plain: bool


class Dollars(click.ParamType[Decimal]):
    """An amount of US dollars, exactly as it was written."""

    name = "usd"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            return value if isinstance(value, Decimal) else read_usd(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _checked(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        return value
    from turnwise.faces.cli.permissions import allowed_rules  # half as much again as all that this module needs

    try:
        for text in value:
            allowed_rules(text)
    except CallerError as error:
        raise click.BadParameter(str(error), ctx=context, param=option) from None
    return value


_OF_THE_MODEL = (
    click.option(
        "-m",
        "--model",
        shell_complete=complete_models,
        help="PROVIDER:NAME, or FAMILY:NAME with --base-url. [env: TURNWISE_MODEL]",
    ),
    click.option("--base-url", metavar="URL", help="Address of the endpoint. [env: TURNWISE_BASE_URL]"),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the key."),
)
OF_LIMITS = (
    click.option(
        "--max-steps",
        type=click.IntRange(1, MOST_STEPS),
        metavar="N",
        help=f"Model steps at most; the last one must answer. [default: {MAX_STEPS}]",
    ),
    click.option(
        "--max-requests",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="HTTP requests at most; the last one is the answer.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Tokens at most, prompts and answers of all requests.",
    ),
    click.option(
        "--max-cost",
        type=Dollars(),
        metavar="USD",
        help="US dollars at most, where the price of the model is known.",
    ),
    click.option(
        "--max-time",
        type=click.FloatRange(0, MOST, min_open=True),
        metavar="SECONDS",
        help="Time at most, the answer included.",
    ),
    click.option(
        "--max-output-tokens",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Tokens at most of one response, reasoning included.",
    ),
    click.option(
        "--context-window",
        type=click.IntRange(1, MOST),
        metavar="N",
        help="Tokens of prompt and answer that the model takes, where turnwise knows it not or wrongly.",
    ),
    click.option(
        "--recover",
        type=click.Choice(["continue", "split", "off"]),
        help="Where the output limit cuts: go on there, ask for smaller pieces, or do nothing. [default: continue]",
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, 20),
        metavar="N",
        help=f"Further attempts at a request that failed. [default: {RetryPolicy().attempts - 1}]",
    ),
    click.option(
        "--fallback", multiple=True, metavar="NAME", help="Another model of the endpoint, if one fails. Repeatable."
    ),
    click.option(
        "--script/--no-script",
        default=None,
        help="Let the model write small programs that call its tools, many calls in one request, or not. "
        "[default: where the plan bills by the request]",
    ),
)
_OF_THE_TREE = (
    click.option(
        "--max-subagents",
        type=click.IntRange(0, MOST),
        metavar="N",
        help=f"Sub-agents at most, those that they start included. [default: {MAX_SUBAGENTS}]",
    ),
    click.option(
        "--max-subagent-requests",
        type=click.IntRange(0, MOST),
        metavar="N",
        help=f"HTTP requests at most of all sub-agents together. [default: {MAX_SUBAGENT_REQUESTS}]",
    ),
)
_OF_THE_PLACE = (
    click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Work in this folder."),
    click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the last session of this folder."),
    click.option(
        "--session",
        metavar="ID",
        shell_complete=complete_sessions,
        help="Continue this session (see `turnwise sessions list`).",
    ),
    click.option("--system", metavar="TEXT", help="Instructions in place of turnwise's own."),
    click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md, here or below, as instructions."),
    click.option(
        "--no-environment", is_flag=True, help="Do not tell the model about the folder, the date and git's state."
    ),
    click.option("--no-stream", is_flag=True, help="Ask for whole responses instead of streams."),
)
_OF_PERMISSIONS = (
    click.option(
        "--allow",
        multiple=True,
        metavar="WHAT",
        callback=_checked,
        help="Without asking: `write` (files), `bash` (commands), or calls by a pattern: `bash(git push *)`, "
        "`edit(src/**)`. Repeatable.",
    ),
    click.option(
        "--ask-timeout",
        type=click.FloatRange(0, MOST_ASK_S, min_open=True),
        metavar="SECONDS",
        help=f"How long you are waited for when something is asked; then it is denied. [default: {Deadlines().ask_s:g}]",
    ),
    click.option("--network", is_flag=True, help="Let commands use the network."),
    click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox."),
)
_OF_THE_SCREEN = (
    click.option(
        "--plain", is_flag=True, help="Show answers as they were written, not rendered. Pipes get them so anyway."
    ),
)
SHARED = (*_OF_THE_MODEL, *OF_LIMITS, *_OF_THE_TREE, *_OF_THE_PLACE, *_OF_THE_SCREEN, *_OF_PERMISSIONS)


def shared_options(command: Command) -> Command:
    for option in reversed(SHARED):
        command = option(command)
    return command
