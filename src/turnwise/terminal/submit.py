"""`turnwise submit`: have a worker run a turn."""

import sys
from collections.abc import Sequence
from typing import get_args

import click
import msgspec

from turnwise.settings.options import RunSettings
from turnwise.terminal.command_options import options_of_limits
from turnwise.terminal.databases import database_option, open_queue
from turnwise.terminal.failures import Failure, as_one_line
from turnwise.terminal.last_line import EndsWithLine
from turnwise.turn.config import Effect

HIGHEST = 1_000_000

SUBMIT_EPILOG = """\b
Examples:
  turnwise submit --agent helper "sum up the report"
  turnwise submit --agent helper --session "$SESSION" "and in French?"
  turnwise submit --agent coder --needs folder:/srv/x --priority 5 "fix the tests"
  turnwise submit --agent helper --label user=42 "what did I order?"
  turnwise submit --agent coder --effect read --max-cost 0.20 "what is slow here?"

These options can only narrow what the agent may do. If no worker accepts the turn, it waits, and `turnwise status` says why.

\b

It prints the session's id and does not wait: `turnwise status SESSION --follow` does.
Exit codes: 0 submitted; 1 the database failed; 2 wrong use, or no such session."""


@click.command(cls=EndsWithLine, epilog=SUBMIT_EPILOG)
@click.argument("prompt")
@database_option
@click.option("--agent", required=True, metavar="NAME", help="The agent, as workers call it.")
@click.option("--session", default="", metavar="ID", help="Continue this session. [default: a new one]")
@click.option(
    "--priority",
    type=click.IntRange(-HIGHEST, HIGHEST),
    default=0,
    metavar="N",
    help="Turns with a higher priority begin first. [default: 0]",
)
@click.option(
    "--needs", multiple=True, metavar="WHAT", help="Only workers that offer this run the turn. May be repeated."
)
@click.option(
    "--model", default="", metavar="NAME", help="Another model of the agent's provider, if a worker allows it."
)
@click.option(
    "--instructions",
    default="",
    metavar="TEXT",
    help="Instructions to add after the agent's own, if a worker allows it.",
)
@click.option(
    "--effect",
    "effects",
    multiple=True,
    type=click.Choice(get_args(Effect)),
    help="Only tools with this effect, or with none, may run. May be repeated.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=TEXT",
    help="A label that a new session keeps; the agent's `DepsFactory` gets it. May be repeated.",
)
@options_of_limits
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def submit_command(
    prompt: str,
    database: str | None,
    agent: str,
    session: str,
    priority: int,
    needs: tuple[str, ...],
    model: str,
    instructions: str,
    effects: tuple[Effect, ...],
    labels: tuple[str, ...],
    settings: RunSettings,
    as_json: bool,
) -> None:
    """Submit PROMPT as a turn that a worker runs, and print its session."""
    if not prompt.strip():
        raise Failure("the prompt is empty")
    with as_one_line(), open_queue(database) as queue:
        from turnwise.workers.turn_status import TurnWishes

        wishes = TurnWishes(
            model=model,
            instructions=instructions,
            effects=effects or None,
            max_steps=settings.max_steps,
            max_requests=settings.max_requests,
            max_tokens=settings.max_tokens,
            max_cost=settings.max_cost,
            max_time=settings.max_time,
            max_tool_calls=settings.max_tool_calls,
        )
        found = queue.submit(
            prompt, agent=agent, session=session, priority=priority, needs=needs, wishes=wishes, labels=_labels(labels)
        )
        text = msgspec.json.encode({"session": found}).decode() if as_json else found
        sys.stdout.write(f"{text}\n")


def _labels(given: Sequence[str]) -> dict[str, str]:
    """`user=42` each. Raises Failure for one without a name, and for a name that comes twice."""
    labels = dict[str, str]()
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise Failure(f"`--label {one}` names no text: write `--label NAME=TEXT`, `--label user=42`")
        if name in labels:
            raise Failure(f"`--label {name}=...` was given twice")
        labels[name] = value
    return labels
