"""`turnwise sessions fork`: a new session that goes on from a step of another one."""

import os
import sys

import msgspec

from turnwise.drivers.clock import SystemClock
from turnwise.drivers.ids import TimeOrderedIds
from turnwise.drivers.journal.journal import Journal, journal_path
from turnwise.drivers.replaying.forking import fork
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.text import visible_line


def fork_session(session: str, *, turn: int | None, step: int | None, as_json: bool) -> None:
    """Begin it, and say how to go on. Raises CallerError."""
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        found = journal.find_session_by_part(session)
        new = fork(journal, found, new_id=TimeOrderedIds(clock).new, turn=turn, step=step)
    if as_json:
        told = {"session": new.session, "of": found.row.id, "turn": new.turn, "step": new.step}
        sys.stdout.buffer.write(msgspec.json.encode({**told, "folder": found.row.folder}) + b"\n")
        return
    say(new.session, stream=sys.stdout)
    say(
        f"a new session with all up to step {new.step} of turn {new.turn} of {found.row.id[-8:]}, in"
        f" {visible_line(found.row.folder)}; "
        f'go on there with `turnwise run --session {new.session[-8:]} "..."`'
    )
