"""`turnwise submit`: have a worker run a turn."""

import sys

import click
import msgspec

from turnwise.faces.cli.databases import database_option, open_queue
from turnwise.faces.cli.failures import Failure, as_one_line

HIGHEST = 1_000_000

EPILOG = """\b
Examples:
  turnwise submit --agent helper "sum up the report"
  turnwise submit --agent helper --session "$SESSION" "and in French?"
  turnwise submit --agent coder --needs folder:/srv/x --priority 5 "fix the tests"

It prints the session's id and does not wait: `turnwise status SESSION --follow` does.
Exit codes: 0 submitted; 1 the database failed; 2 wrong use, or no such session."""


@click.command(epilog=EPILOG)
@click.argument("prompt")
@database_option
@click.option("--agent", required=True, metavar="NAME", help="The agent, as workers call it.")
@click.option("--session", default="", metavar="ID", help="Go on with this session. [default: a new one]")
@click.option(
    "--priority",
    type=click.IntRange(-HIGHEST, HIGHEST),
    default=0,
    metavar="N",
    help="Turns with a higher one begin first. [default: 0]",
)
@click.option(
    "--needs", multiple=True, metavar="WHAT", help="Only workers that offer it run the turn. May be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    prompt: str,
    database: str | None,
    agent: str,
    session: str,
    priority: int,
    needs: tuple[str, ...],
    as_json: bool,
) -> None:
    """Submit PROMPT as a turn that a worker runs, and print its session."""
    if not prompt.strip():
        raise Failure("the prompt is empty")
    with as_one_line(), open_queue(database, as_json=as_json) as queue:
        found = queue.submit(prompt, agent=agent, session=session, priority=priority, needs=needs)
        text = msgspec.json.encode({"session": found}).decode() if as_json else found
        sys.stdout.write(f"{text}\n")
