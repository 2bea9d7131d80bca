"""`turnwise undo`: take back what a session's last turn changed in files. The options only: what does it is imported then."""

import sys
from pathlib import Path

import click

from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine, write_nothing_taken_back

UNDO_EPILOG = """\b
Examples:
  turnwise undo
  turnwise undo --yes
  turnwise undo 3f2a9c1e
  turnwise undo --json | jq .files

Files that changed since then stay as they are. Changes by commands cannot be undone.

Exit codes: 0 taken back, or as before already; 2 nothing to take back, or --yes is missing; 3 some files were left;
130 you said no."""


@click.command(cls=EndsWithLine, ends_with=write_nothing_taken_back, epilog=UNDO_EPILOG)
@click.argument("session", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask. Needed where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the turn, and what happens to each file.")
@click.option(
    "--cwd",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder whose last session to undo.",
)
def undo_command(session: str | None, yes: bool, as_json: bool, cwd: Path | None) -> None:
    """Undo the changes that tools made to files in SESSION's last turn; repeat it for the turn before.

    SESSION is an id, or its first or last letters; without it the last session of this folder. turnwise shows what will
    happen, and asks you.
    """
    with as_one_line():
        from turnwise.terminal.undoing import undo

        code = undo(session, folder=(cwd or Path.cwd()).resolve(), yes=yes, as_json=as_json)
    sys.exit(code)
