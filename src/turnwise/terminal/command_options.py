"""The options of commands, the completions of their values with Tab, and `turnwise completion`, which sets up a shell for
them."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from turnwise.coding_agent.options import MODES_AT_START, packed
from turnwise.errors import CallerError
from turnwise.settings.options import OptionRow, RunSettings, rows_from, rows_of_limits
from turnwise.settings.settings import read_usd
from turnwise.turn.config import Deadlines

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# `turnwise completion`: what a shell needs to complete turnwise's commands, options, models and sessions.


SHELLS = {
    "bash": "in ~/.bashrc",
    "zsh": "in ~/.zshrc, after `autoload -Uz compinit && compinit`",
    "fish": "or save it as ~/.config/fish/completions/turnwise.fish",
}
COMPLETION_EPILOG = """\b
Examples:
  eval "$(turnwise completion bash)"       # in ~/.bashrc
  eval "$(turnwise completion zsh)"        # in ~/.zshrc, after compinit
  turnwise completion fish | source        # in ~/.config/fish/config.fish"""
# Bash splits words at a colon, and every model's name has one.
_WITHOUT_COLON = 'COMP_WORDBREAKS="${COMP_WORDBREAKS//:/}"\n'
MAX_SESSIONS = 50


@click.command(epilog=COMPLETION_EPILOG)
@click.argument("shell", type=click.Choice(list(SHELLS)), required=False)
def completion_command(shell: str | None) -> None:
    """Print what your shell must read to complete turnwise's words with Tab. Without a name it is for the shell that you use."""
    from click.shell_completion import get_completion_class

    from turnwise.terminal.group import group

    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise click.UsageError(f"which shell? Give one of {', '.join(SHELLS)}")
    found = get_completion_class(name)
    assert found is not None
    click.echo((_WITHOUT_COLON if name == "bash" else "") + found(group, {}, "turnwise", "_TURNWISE_COMPLETE").source())


def complete_models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Providers first; behind the colon, the models that the table of limits knows."""
    from turnwise.coding_agent.model_names import models_begun

    return models_begun(incomplete)


def complete_providers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of providers; after a colon, models."""
    from turnwise.wire.profiles import builtin_profiles

    if ":" in incomplete:
        return complete_models(context, parameter, incomplete)
    return [name for name in builtin_profiles() if name.startswith(incomplete)]


def complete_sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The last sessions, by the end of their id, with their titles. Without a journal there are none, and no journal is made."""
    from click.shell_completion import CompletionItem

    from turnwise.base.clock import SystemClock
    from turnwise.coding_agent.text import shortened
    from turnwise.errors import CallerError
    from turnwise.journal.journal import Journal, journal_path

    path = journal_path(os.environ)
    if not path.exists():
        return []
    try:
        with Journal.open_to_read(path, clock=SystemClock()) as journal:
            rows = journal.sessions(limit=MAX_SESSIONS)
    except CallerError:
        return []
    return [
        CompletionItem(row.id[-8:], help=shortened(row.title, limit=60))
        for row in rows
        if row.id[-8:].startswith(incomplete)
    ]


# Numbers on the command line.


class FiniteRange(click.FloatRange):
    """A finite number within bounds. click accepts `nan`, because it is neither below a bound nor above it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
MOST_ASK_S = 86_400.0  # a day: nobody waits longer at a terminal

Command = TypeVar("Command", bound=Callable[..., object])


def json_option(help: str) -> Callable[[Command], Command]:
    """`--json`, with a help text about its output."""
    return click.option("--json", "as_json", is_flag=True, help=help)


class Dollars(click.ParamType[Decimal]):
    """An amount of US dollars, exactly as it was typed."""

    name = "usd"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            return value if isinstance(value, Decimal) else read_usd(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _checked(context: click.Context, option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        return value
    from turnwise.coding_agent.permissions import allowed_rules  # loading it takes half as long as the rest

    try:
        for text in value:
            allowed_rules(text)
    except CallerError as error:
        raise click.BadParameter(str(error), ctx=context, param=option) from None
    return value


def _option(row: OptionRow) -> Callable[[Command], Command]:
    """A row of the table of options as an option of the command line."""
    option = row.option
    help = f"{option.help} [default: {option.default}]" if option.default else option.help
    more: dict[str, Any] = {"metavar": option.metavar} if option.metavar else {}
    if row.name == "model":
        more["shell_complete"] = complete_models
    if row.kind == tuple[str, ...]:
        more["multiple"] = True
    elif row.kind is bool:
        more["default"] = None
    else:
        more["type"] = _type_of(row)
    return click.option(*row.flags, row.name, help=help, **more)


def _type_of(row: OptionRow) -> click.ParamType[Any] | None:
    least, most, above = (None, None, None) if (one := row.bounds) is None else (one.ge, one.le, one.gt)
    if row.kind is int and row.bounds is not None:
        return click.IntRange(None if least is None else int(least), None if most is None else int(most))
    if row.kind is float:
        return FiniteRange(least if above is None else above, most, min_open=above is not None)
    if row.kind is Decimal:
        return Dollars()
    return click.Choice(row.choices) if row.choices else None


_OF_ONE_START = (
    click.option("--cwd", type=FOLDER, help="Work in this folder."),
    click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the last session of this folder."),
    click.option(
        "--session",
        metavar="ID",
        shell_complete=complete_sessions,
        help="Continue this session (see `turnwise sessions list`).",
    ),
)
_OF_INSTRUCTIONS = (
    click.option("--system", metavar="TEXT", help="Instructions in place of turnwise's own."),
    click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md, here or below, as instructions."),
    click.option(
        "--no-environment", is_flag=True, help="Do not tell the model about the folder, the date and git's state."
    ),
    click.option("--no-stream", is_flag=True, help="Ask for whole responses instead of streams."),
)
ASK_SECONDS = FiniteRange(0, MOST_ASK_S, min_open=True)
ALLOW = click.option(
    "--allow",
    multiple=True,
    metavar="WHAT",
    callback=_checked,
    help="Allow without asking: `write` (files), `bash` (commands), or calls by a pattern: `bash(git push *)`, "
    "`edit(src/**)`, `mcp(git.*)`. Repeatable.",
)
MODE = click.option(
    "--mode",
    type=click.Choice(MODES_AT_START),
    help="Begin in this mode: `plan` changes nothing, `edits` changes files in the folder unasked. [default: ask]",
)
_OF_PERMISSIONS = (
    ALLOW,
    click.option(
        "--ask-timeout",
        type=ASK_SECONDS,
        metavar="SECONDS",
        help=f"How long a question waits for you; then the answer is no. [default: {Deadlines().ask_s:g}]",
    ),
    click.option("--network", is_flag=True, help="Let commands use the network."),
    click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox."),
)
MCP_FILES = click.option(
    "--mcp",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Start the MCP servers that this JSON file names, too. Repeatable.",
)
_OF_THE_SCREEN = (
    click.option(
        "--plain",
        is_flag=True,
        help="Show answers as they were written, not rendered. Pipes always get them like this.",
    ),
)
SHARED = (
    *[_option(row) for row in rows_from("command line")],
    *_OF_ONE_START,
    *_OF_INSTRUCTIONS,
    *_OF_THE_SCREEN,
    MODE,
    *_OF_PERMISSIONS,
    MCP_FILES,
)
OF_SERVING = (*[_option(row) for row in rows_from("command line")], *_OF_INSTRUCTIONS, *_OF_PERMISSIONS, MCP_FILES)
OF_EDITORS = (*OF_SERVING[:-1], MODE)
OF_LIMITS = tuple([_option(row) for row in rows_of_limits()])
OF_COMPARE = tuple([_option(row) for row in rows_from("compare")])


def shared_options(command: Command) -> Command:
    return _with(SHARED, command=command)


def options_of_editors(command: Command) -> Command:
    """The options for each session of an editor. The editor itself says where each session works and which it continues."""
    return _with(OF_EDITORS, command=command)


def options_of_serving(command: Command) -> Command:
    """The options for each run that an MCP client asks for. The client names the folder."""
    return _with(OF_SERVING, command=command)


def options_of_limits(command: Command) -> Command:
    """The options that make up a limit."""
    return _with(OF_LIMITS, command=command)


def options_of_compare(command: Command) -> Command:
    """The options that `compare` shares with `run`."""
    return _with(OF_COMPARE, command=command)


def _with(options: Sequence[Callable[[Command], Command]], *, command: Command) -> Command:
    """The command with these options; it gets the values of the table's options as `settings`."""

    @functools.wraps(command)
    def taking(**values: object) -> object:
        return command(**packed(values, over=RunSettings()))

    found = cast("Command", taking)
    for option in reversed(options):
        found = option(found)
    return found
