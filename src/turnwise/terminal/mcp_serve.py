"""`turnwise mcp serve`: turnwise as an MCP server, with the tools `run` and `decode`."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec

from turnwise.base.serving_depth import enter
from turnwise.terminal.command_options import options_of_serving
from turnwise.terminal.completion import complete_models
from turnwise.terminal.failures import Failure, as_one_line
from turnwise.terminal.lines import say

if TYPE_CHECKING:
    from turnwise.coding_agent.options import Given

INSTALL = "`turnwise mcp serve` needs an extra: pip install 'turnwise[mcp]'"

EPILOG = """\b
Examples:
  turnwise mcp serve -m anthropic:claude-sonnet-5 --root ~/projects
  turnwise mcp serve -m ollama:qwen3:8b --max-requests 20 --max-time 600
  turnwise mcp serve -m openai:gpt-6.1-sol --allow-model openai:gpt-6.1-terra --allow write

\b
An MCP client starts this command and speaks with it over its standard input and output. Its entry there:
  {"mcpServers": {"turnwise": {"command": "turnwise", "args": ["mcp", "serve", "--root", "/path/to/projects"]}}}
docs/mcp.md has the rest. Exit codes: 0 the client has ended it; 1 something failed; 2 wrong use, the extra is
missing, or a run of another `turnwise mcp serve` has started it."""


@click.command("serve", epilog=EPILOG)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Runs work in this folder and below. [default: this folder]",
)
@click.option(
    "--allow-model",
    "models",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_models,
    help="Let the client choose this model, too. Repeatable.",
)
@options_of_serving
def serve(root: Path | None, models: tuple[str, ...], **options: object) -> None:
    """Serve an MCP client: `run` gives a prompt to an agent in a folder, `decode` reads a recorded stream.

    The options hold for each run. The client can lower limits and permissions, and raise none. What needs an approval is put to
    the client's user, if the client can ask them (elicitation); otherwise it is denied at once.
    """
    if importlib.util.find_spec("mcp") is None:
        raise Failure(INSTALL)
    with as_one_line():
        enter(os.environ)
        from turnwise.base.clock import SystemClock
        from turnwise.base.own_loop import run_to_end
        from turnwise.editors.mcp.runs import ServeMeans
        from turnwise.editors.mcp.service import serve as serve_client
        from turnwise.journal.journal import Journal, journal_path

        folder = (root or Path.cwd()).resolve()
        if sys.stdin.isatty():
            say(f"an MCP client starts this command (Ctrl-C ends it); its entry there: {_entry(folder, root=root)}")
        given = cast("Given", {**options, "cwd": None, "go_on": False, "session": None, "plain": True})
        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            means = ServeMeans(given=given, root=folder, models=models, journal=journal, clock=clock, env=os.environ)
            run_to_end(serve_client(means))


def _entry(folder: Path, *, root: Path | None) -> str:
    """What a client's settings say, to start this very command."""
    words = [*sys.argv[1:], *([] if root else ["--root", str(folder)])]
    return msgspec.json.encode({"mcpServers": {"turnwise": {"command": "turnwise", "args": words}}}).decode()
