"""`turnwise resume`: go on with turns that a dead process has left. The options only: what runs is imported when it does."""

import sys
from pathlib import Path

import click

from turnwise.terminal.command_options import ALLOW, ASK_SECONDS, MCP_FILES
from turnwise.terminal.completion import complete_sessions
from turnwise.terminal.exit_codes import EXIT_CODES
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine, write_no_resume

RESUME_EPILOG = f"""\b
Examples:
  turnwise resume
  turnwise resume 3f2a9c1e
  turnwise resume 3f2a9c1e --json | tail -1
  turnwise resume 3f2a9c1e --take-over
  turnwise resume --all
  turnwise resume --all --unattended
  turnwise run --continue "and now add a test"

Finished requests and calls are not repeated. A request that was under way is sent again and may be billed twice. If a call
may have run, the model is told so, unless running it twice does no harm. An open question is asked again for the rest of its
time, and then denied. Without a terminal it is left for later: `turnwise run --session ID --approve all` shows it and how to
allow it; or --deny.

\b
Exit codes:
{EXIT_CODES}

2 too if there is nothing to resume, or the session is running. With --all: 0 if there was nothing to resume, else the code of the
first turn that did not end with 0; a folder that is gone and a session that somebody else has resumed do not count."""


@click.command(cls=EndsWithLine, ends_with=write_no_resume, epilog=RESUME_EPILOG)
@click.argument("session", required=False, shell_complete=complete_sessions)
@click.option("--all", "takes_all", is_flag=True, help="Every interrupted session, one after the other.")
@click.option(
    "--take-over",
    is_flag=True,
    help="The process is gone, though turnwise cannot see it: it ran before the last boot, or in another container.",
)
@click.option("--base-url", metavar="URL", help="Endpoint URL, if it has moved or had a query (which is not saved).")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key, if it is another one now.")
@ALLOW
@click.option(
    "--ask-timeout",
    type=ASK_SECONDS,
    metavar="SECONDS",
    help="How long you are waited for at questions that were open. [default: what is left of their time]",
)
@click.option("--network", is_flag=True, help="Let commands use the network.")
@click.option("--no-sandbox", is_flag=True, help="Run commands without a sandbox.")
@MCP_FILES
@click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md of folders below as instructions.")
@click.option("--unattended", is_flag=True, help="Leave questions for later, even at a terminal.")
@click.option("--plain", is_flag=True, help="Show answers as they were written, not rendered.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line; the last is the result, with --all the summary."
)
def resume_command(
    session: str | None,
    takes_all: bool,
    take_over: bool,
    base_url: str | None,
    api_key_env: str | None,
    allow: tuple[str, ...],
    ask_timeout: float | None,
    network: bool,
    no_sandbox: bool,
    mcp: tuple[Path, ...],
    no_agents_md: bool,
    unattended: bool,
    plain: bool,
    as_json: bool,
) -> None:
    """Finish the turn of SESSION (an id, or its first or last letters) whose process died. Without SESSION it is this
    folder's last interrupted session. After a restart of the machine, add --take-over.

    The turn keeps its own model, limits, rules and folder; --allow adds to them. The other options are not saved with a session.
    """
    with as_one_line():
        from turnwise.terminal.resuming import ResumeGiven, resume

        given = ResumeGiven(
            base_url=base_url,
            api_key_env=api_key_env,
            allow=allow,
            ask_timeout=ask_timeout,
            network=network,
            no_sandbox=no_sandbox,
            mcp=mcp,
            no_agents_md=no_agents_md,
            unattended=unattended,
            plain=plain,
            as_json=as_json,
            take_over=take_over,
        )
        code = resume(session, takes_all=takes_all, given=given)
    sys.exit(code)
