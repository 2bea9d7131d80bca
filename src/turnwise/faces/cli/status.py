"""`turnwise status`: the turns that were submitted, and what they wait for."""

import sys
import time
from typing import Any

import click
import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.dispatch.turn_status import TurnStatus
from turnwise.drivers.journal.journal import Journal
from turnwise.faces.agent import read_session
from turnwise.faces.cli.asks_elsewhere import asks_said
from turnwise.faces.cli.databases import checked_dsn, database_option, open_queue
from turnwise.faces.cli.failures import FAILED, Failure, as_one_line
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.text import clean
from turnwise.vocab import Refusal, Text

LOOK_AGAIN_S = 0.5
SHOWN = 50
OPEN = ("queued", "running")

EPILOG = """\b
Examples:
  turnwise status
  turnwise status 019aa1b2c3d4e5f60718293a4b
  turnwise status 019aa1b2c3d4e5f60718293a4b --follow --json

With --follow it waits until no turn of the session is open, writes a line whenever something changes, and then the answer.

\b
Exit codes:
  0  shown; with --follow: the last turn is complete
  1  the database failed; with --follow: the last turn is not complete
  2  wrong use, or no such session"""


@click.command(epilog=EPILOG)
@click.argument("session", default="")
@database_option
@click.option("--follow", is_flag=True, help="Wait for the end of the session's turns, and write the answer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a turn, on one line each.")
def command(session: str, database: str | None, follow: bool, as_json: bool) -> None:
    """Show the turns that were submitted, the latest first, or those of SESSION."""
    if follow and not session:
        raise Failure("`--follow` needs a session")
    with as_one_line(), open_queue(database, as_json=as_json) as queue:
        turns = queue.status(session, limit=SHOWN)
        if session and not turns:
            raise Failure(f"no turn of a session `{session}` was submitted")
        _show_all(turns, as_json=as_json)
        while follow and any(is_open(turn) for turn in turns):
            time.sleep(LOOK_AGAIN_S)
            before, turns = turns, queue.status(session, limit=SHOWN)
            if turns != before:
                _show_all([turn for turn in turns if turn not in before], as_json=as_json)
    if session and not any(is_open(turn) for turn in turns):
        with as_one_line():
            answer = _answer(checked_dsn(database), session)
        if as_json or answer:
            _write({"session": session, "answer": answer} if as_json else answer)
        if follow and not turns[0].complete:
            sys.exit(FAILED)


def is_open(turn: TurnStatus) -> bool:
    """Whether something of it is still to come: what waits for a person goes on by itself when the time is over."""
    return turn.status in OPEN or bool(turn.asks)


def _show_all(turns: list[TurnStatus], *, as_json: bool) -> None:
    if not turns and not as_json:
        say("no turn was submitted yet: `turnwise submit` does it")
    for turn in turns:
        _write(turn if as_json else _line(turn))
        for line in [] if as_json else asks_said(turn):
            _write(line)


def _line(turn: TurnStatus) -> str:
    said = [turn.session, turn.agent, turn.stop_reason or turn.status]
    if turn.waits_for:
        said.append(f"waits for {turn.waits_for}")
    if turn.worker:
        said.append(f"at {turn.worker}")
    if turn.cancel and turn.status == "running":
        said.append("is being cancelled")
    if turn.problem:
        said.append(turn.problem)
    return clean("  ".join(said))


def _answer(dsn: str, session: str) -> str:
    with Journal.open(dsn, clock=SystemClock()) as journal:
        messages = read_session(journal, journal.find_session(session)).messages
    if not messages or messages[-1].role != "assistant":
        return ""
    return "".join([part.text for part in messages[-1].parts if isinstance(part, Text | Refusal)])


def _write(value: Any) -> None:
    line = clean(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
