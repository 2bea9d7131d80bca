"""`turnwise cancel`: end the turns of a session, wherever they run."""

import sys

import click
import msgspec

from turnwise.agent.formatting import many
from turnwise.terminal.databases import database_option, open_queue
from turnwise.terminal.failures import FAILED, as_one_line
from turnwise.terminal.last_line import EndsWithLine

CANCEL_EPILOG = """\b
Examples:
  turnwise cancel 019aa1b2c3d4e5f60718293a4b

Waiting turns end at once. A running turn is ended by its worker. Exit codes: 0 done; 1 no turn of the session was open, or the
database failed; 2 wrong use."""


@click.command(cls=EndsWithLine, epilog=CANCEL_EPILOG)
@click.argument("session")
@database_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cancel_command(session: str, database: str | None, as_json: bool) -> None:
    """Cancel the turns of SESSION that wait or run."""
    with as_one_line(), open_queue(database) as queue:
        count = queue.cancel(session)
        said = {"session": session, "cancelled": count}
        sys.stdout.write(f"{msgspec.json.encode(said).decode() if as_json else many(count, 'turn')}\n")
    if not count:
        sys.exit(FAILED)
