"""`turnwise replay`: a session again, out of its journal or a file. The options only: what does it is imported then."""

import sys
from pathlib import Path

import click

from turnwise.terminal.completion import complete_sessions
from turnwise.terminal.exit_codes import REPLAY_DIFFERS
from turnwise.terminal.failures import as_one_line
from turnwise.terminal.last_line import EndsWithLine, write_no_replay

MOST_STEP = 10_000
REPLAY_EPILOG = f"""\b
Examples:
  turnwise replay 3f2a9c1e
  turnwise replay 3f2a9c1e --turn 2 --until 3
  turnwise replay 3f2a9c1e --live
  turnwise replay 3f2a9c1e --json | tail -1
  turnwise replay 3f2a9c1e --export bug.jsonl --hide "Jane Doe"
  turnwise replay bug.jsonl

\b
Exit codes:
  0    the same commands as recorded; or the file was written
  1    the output could not be written, or something else failed
  2    wrong use, no such session, a file that cannot be read
  {REPLAY_DIFFERS}    today's code decides differently somewhere
  130  cancelled"""


@click.command(cls=EndsWithLine, ends_with=write_no_replay, epilog=REPLAY_EPILOG)
@click.argument("session", metavar="SESSION|FILE", shell_complete=complete_sessions)
@click.option("--turn", type=click.IntRange(min=1), help="Show this turn only; 1 is the first.")
@click.option(
    "--until",
    type=click.IntRange(1, MOST_STEP),
    metavar="STEP",
    help="Stop behind this step of the turn (the last turn, unless --turn names one).",
)
@click.option("--live", is_flag=True, help="Show it at its original speed; long pauses are shortened.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line; the last says whether all was the same.")
@click.option("--plain", is_flag=True, help="Show answers as they are, not rendered.")
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the session with its sub-agents into one new file, secrets replaced, and show nothing.",
)
@click.option("--hide", multiple=True, metavar="TEXT", help="With --export: replace this text, too. Repeatable.")
def replay_command(
    session: str,
    turn: int | None,
    until: int | None,
    live: bool,
    as_json: bool,
    plain: bool,
    export: Path | None,
    hide: tuple[str, ...],
) -> None:
    """Run a session again from its journal, without a request and without a tool, and show it as it looked.

    SESSION is an id, or its first or last letters; FILE is one that --export wrote. It shows where today's code decides
    differently from the recording.
    """
    if export is not None and not export.name:
        raise click.UsageError("--export needs the name of a file")
    if export is not None and (turn or until or live):
        raise click.UsageError("--export writes the whole session: leave out --turn, --until and --live")
    if hide and export is None:
        raise click.UsageError("--hide belongs to --export: nothing is hidden from yourself")
    with as_one_line():
        from turnwise.terminal.replaying import ReplayView, export_session, show_again

        if export is not None:
            export_session(session, file=export, hide=hide, as_json=as_json)
            return
        view = ReplayView(turn=turn, until=until, live=live, as_json=as_json, plain=plain)
        same = show_again(session, view=view)
    sys.exit(0 if same else REPLAY_DIFFERS)
