"""`turnwise completion`: what a shell needs to complete turnwise's commands, options, models and sessions."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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
# Bash breaks words at a colon, and every model's name has one.
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
    """Their names; behind a colon, models."""
    from turnwise.wire.profiles import builtin_profiles

    if ":" in incomplete:
        return complete_models(context, parameter, incomplete)
    return [name for name in builtin_profiles() if name.startswith(incomplete)]


def complete_sessions(context: click.Context, parameter: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The last ones, by the end of their id, with their titles. Without a journal none; none is made."""
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
