"""What `turnwise resume` does: continue the turn of one session, or of all that were interrupted."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from turnwise.agent.formatting import many
from turnwise.base.clock import Clock, SystemClock
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.last_exchange import exchange_line, last_exchange
from turnwise.coding_agent.left_turns import FolderGone, find_left, folder_of, furnish_left, interrupted_rows, left_line
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.run_events import FailedModel
from turnwise.coding_agent.run_servers import servers_of_run
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session, SessionRow, journal_path
from turnwise.terminal.events import JsonLines
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import USAGE, complain
from turnwise.terminal.screen import Screen
from turnwise.terminal.single_run import Face, TurnUnderFace, note, run_shown, show_ran, terminal_for
from turnwise.terminal.terminal import confirm_at_terminal
from turnwise.vocab.file_names import shown_name


class ResumeGiven(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `turnwise resume`; `of_run` are those of any run."""

    of_run: Given
    unattended: bool
    as_json: bool
    take_over: bool


class SessionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one session of several. `why` says why it was not resumed; empty if it was."""

    session: str
    code: int
    stop_reason: str = ""
    complete: bool = False
    why: str = ""


def resume(session: str | None, *, takes_all: bool, given: ResumeGiven) -> int:
    """Resume the turn, and show it; return the exit code. Raises CallerError."""
    if takes_all and session is not None:
        raise CallerError("give either SESSION or --all, not both")
    if takes_all and (given.of_run["base_url"] or given.of_run["api_key_env"]):
        raise CallerError("--base-url and --api-key-env are for one SESSION: leave them out, or --all")
    if takes_all and given.take_over:
        raise CallerError("--take-over is for one SESSION: leave it out, or --all")
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        if takes_all:
            return _All(journal, given=given, clock=clock).resume()
        found = _the_last(journal) if session is None else journal.find_session_by_part(session)
        if given.take_over:
            found = journal.take_over(found.row.id)
        return _One(journal, given=given, clock=clock).resume(found).code


def _the_last(journal: Journal) -> Session:
    """The last interrupted session of this folder, whatever came after it (a fork of it, another run); otherwise the last
    session, if it is running or damaged. Raises CallerError if there is none."""
    folder = Path.cwd().resolve()
    rows = interrupted_rows(journal)
    if here := [row for row in rows if row.folder == shown_name(str(folder))]:
        return journal.find_session(here[-1].id)
    found = journal.last_session(folder)
    if found is not None and found.row.status in ("lost", "running"):
        return found
    others = len(rows)
    more = f"; {many(others, 'other session')} can be resumed (`turnwise resume --all`, `turnwise sessions list`)"
    what = (
        f"there is no session of `{folder}`"
        if found is None
        else f"no session of this folder was interrupted (the last is `{found.row.id[-8:]}`)"
    )
    raise CallerError(f"nothing to resume: {what}{more if others else ''}")


class _One:
    """Resumes the turn of one session."""

    def __init__(self, journal: Journal, *, given: ResumeGiven, clock: Clock, is_one_of_all: bool = False) -> None:
        self._journal, self._given, self._clock = journal, given, clock
        self._is_one_of_all = is_one_of_all

    def resume(self, session: Session) -> SessionOutcome:
        """Raises CallerError if the turn cannot be resumed."""
        found = find_left(self._journal, session)
        given, attended = self._given.of_run, not self._given.unattended and is_attended()
        config = found.left.config
        servers = servers_of_run(
            {**given, "cwd": folder_of(config, row=session.row)},
            asks=confirm_at_terminal if attended and not self._given.as_json else None,
            clock=self._clock,
            session_key=lambda: config.api_key_env or None,
        )
        place = furnish_left(found, given=given, journal=self._journal, clock=self._clock, servers=servers)
        face = self._face(session)
        exchange = last_exchange(self._journal, session)
        said = [] if exchange is None else [exchange_line(exchange, now_s=self._clock.now())]
        for line in (*place.notes, *said, left_line(found, journal=self._journal, now_s=self._clock.now())):
            face.tell(line)
        if servers.waiting_line:
            face.tell(servers.waiting_line)
        began = self._clock.monotonic()
        turn = TurnUnderFace(place, face=face, terminal=terminal_for(face) if attended else None)
        ran = run_shown(turn.resumed_to_end(found), face=face)
        seconds, asked = self._clock.monotonic() - began, FailedModel(choice=place.choice)
        show_ran(ran, face=face, seconds=seconds, expects_output=config.output is not None, asked=asked)
        result = ran.result
        return SessionOutcome(
            session=session.row.id,
            code=ran.exit_code,
            stop_reason=result.stop_reason,
            complete=result.complete,
        )

    def _face(self, session: Session) -> Face:
        if self._given.as_json:
            return JsonLines(within={"session": session.row.id} if self._is_one_of_all else None)
        return Screen(plain=self._given.of_run["plain"], clock=self._clock)


class _All:
    """Resumes each interrupted session, the oldest first."""

    def __init__(self, journal: Journal, *, given: ResumeGiven, clock: Clock) -> None:
        self._journal, self._given = journal, given
        self._one = _One(journal, given=given, clock=clock, is_one_of_all=True)

    def resume(self) -> int:
        rows = interrupted_rows(self._journal)
        done: list[SessionOutcome] = []
        for number, row in enumerate(rows, start=1):
            self._tell(f"{number} of {len(rows)}: session {row.id[-8:]}")
            done.append(self._resumed(row))
            if done[-1].code == CANCELLED:
                break
        code = next((one.code for one in done if one.code), 0)
        self._summarise(done, left=len(rows) - len(done), code=code)
        return code

    def _resumed(self, row: SessionRow) -> SessionOutcome:
        try:
            return self._one.resume(self._journal.find_session(row.id))
        except CallerError as error:
            counts = not isinstance(error, FolderGone) and self._is_left_still(row)
            complain(str(error))
            return SessionOutcome(session=row.id, code=USAGE if counts else 0, why=str(error))
        except (
            KeyboardInterrupt
        ):  # before or after its turn, or for the second time: the outcome of the others is told all the same
            return SessionOutcome(session=row.id, code=CANCELLED, why="stopped by a signal")

    def _is_left_still(self, row: SessionRow) -> bool:
        """False: another process has resumed it in the meantime."""
        try:
            return self._journal.find_session(row.id).row.status == "lost"
        except CallerError:  # the journal cannot be read any more
            return True

    def _tell(self, line: str) -> None:
        if not self._given.as_json:
            note(line)

    def _summarise(self, done: Sequence[SessionOutcome], *, left: int, code: int) -> None:
        failed = len([one for one in done if one.code])
        if self._given.as_json:
            JsonLines().summarise([msgspec.structs.asdict(one) for one in done], failed=failed, code=code)
            return
        if not done:
            note("nothing to resume: no session was interrupted")
            return
        for one in done:
            end = f"not resumed: {one.why}" if one.why else one.stop_reason
            note(f"{one.session[-8:]}  {end}{'' if one.complete or one.why else ', not complete'}")
        more = f", {left} not begun" if left else ""
        note(f"{many(len(done), 'session')}, {failed} with an exit code other than 0{more}")
