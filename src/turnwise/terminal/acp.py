"""`turnwise acp`: the agent of an editor that speaks the Agent Client Protocol."""

import os
import sys
from typing import TYPE_CHECKING, cast

import click

from turnwise.base.extras import require_extras
from turnwise.terminal.command_options import options_of_editors
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.rows import say

if TYPE_CHECKING:
    from turnwise.coding_agent.options import Given

ACP_EPILOG = """\b
Examples:
  turnwise acp -m anthropic:claude-sonnet-5
  turnwise acp -m ollama:qwen3:8b --ask-timeout 600

\b
An editor starts this command and speaks with it over its standard input and output. docs/acp.md has the settings
of Zed, JetBrains and Neovim. Exit codes: 0 the editor has ended it; 2 wrong use, or the extra is missing."""


@click.command(epilog=ACP_EPILOG)
@options_of_editors
def acp_command(**options: object) -> None:
    """Serve an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim and others).

    The options hold for each session that the editor opens. The editor says where each one works, and asks you before files
    change and commands run.
    """
    with as_one_line():
        require_extras("editors", "workspace")
        from turnwise.base.clock import SystemClock
        from turnwise.base.threads import run_to_end
        from turnwise.editors.acp.service import serve
        from turnwise.journal.journal import Journal, journal_path
        from turnwise.telemetry.telemetry import telemetry_of

        telemetry_of(os.environ)  # what is missing for it is said now, and not to each session
        if sys.stdin.isatty():
            say("an editor starts this command; waiting for its messages on standard input (Ctrl-C ends it)")
        given = cast("Given", {**options, "cwd": None, "go_on": False, "session": None, "plain": True})
        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            run_to_end(serve(given=given, journal=journal, clock=clock, env=os.environ))
