"""What `turnwise undo` does: it shows, asks, and takes back."""

import os
import sys
from pathlib import Path

from turnwise.base.clock import SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.undo_changes import (
    TurnBack,
    find_turn_back,
    is_of_diff,
    lines_of,
    question_of,
    results_of,
    take_back,
)
from turnwise.coding_agent.workplace import find_session
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, journal_path
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import USAGE, complain, write_json
from turnwise.terminal.rows import say
from turnwise.terminal.terminal import Terminal

NOT_ALL = 3
NEEDS_YES = "nothing was taken back, as nobody can be asked here: add --yes"


def undo(session: str | None, *, folder: Path, yes: bool, as_json: bool) -> int:
    """The exit code. Raises CallerError, and ToolFault where the disk refuses; nothing is changed then."""
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        found = find_session(
            journal,
            folder=folder,
            go_on=session is None,
            session=session and journal.find_session_by_part(session).row.id,
        )
        assert found is not None, "one of both was wanted"
        back = find_turn_back(journal, found, folder=folder, env=os.environ, now_s=clock.now())
    is_asked = not yes and not back.is_done
    if not as_json or is_asked:
        for line in lines_of(back, now_s=clock.now()):
            say(line, as_it_is=is_of_diff(line))
    if is_asked and not is_attended():
        if not as_json:
            raise CallerError(NEEDS_YES)
        complain(NEEDS_YES)
        _write_json(back, happened=False, error=NEEDS_YES, exit_code=USAGE)
        return USAGE
    if is_asked and not run_to_end(is_confirmed(Terminal(), back, now_s=clock.now())):
        say("nothing was taken back")
        if as_json:
            _write_json(back, happened=False, exit_code=CANCELLED)
        return CANCELLED
    take_back(back)
    if as_json:
        _write_json(back, happened=True)
    else:
        for line in results_of(back):
            say(line, stream=sys.stdout)
    return NOT_ALL if back.kept else 0


async def is_confirmed(terminal: Terminal, back: TurnBack, *, now_s: float) -> bool:
    """Whether the person says yes, below the short lines: to all of what would happen, which they have seen."""
    shown, whole = lines_of(back, now_s=now_s), lines_of(back, now_s=now_s, whole=True)
    return await terminal.says_yes(lambda: question_of(back), shown=shown, whole=whole)


def _write_json(back: TurnBack, *, happened: bool, **more: object) -> None:
    files = [
        {
            "path": _name(file.path),
            "outcome": file.outcome,
            "why": file.why,
            "saved": None if file.saved is None else _name(file.saved),
        }
        for file in back.undoing.files
    ]
    told: dict[str, object] = {
        "session": back.session.row.id,
        "turn": back.turn.id,
        "began": back.turn.created,
        "prompt": back.prompt,
        "commands": back.commands,
        "taken_back": happened,
        "files": files,
        **more,
    }
    write_json(told)


def _name(path: Path) -> str:
    """Bytes that are no UTF-8 are written out as `\\udcff`: JSON cannot carry them, and another sign would be another name."""
    return str(path).encode("utf-8", "backslashreplace").decode()
