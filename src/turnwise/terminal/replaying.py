"""A recorded session on the screen, or as JSON lines, as it looked when it ran, with the points where today's code decides
differently; or the session as one file, which another person can replay."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from turnwise.agent.formatting import many
from turnwise.agent.results import run_result
from turnwise.base.clock import SystemClock, Timer
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.last_exchange import prompt_of, started_of
from turnwise.coding_agent.progress_line import WaitBounds
from turnwise.coding_agent.run_events import FailedModel
from turnwise.coding_agent.text import clean, clean_line, short_id, shortened, style, visible_line
from turnwise.errors import CallerError
from turnwise.replay.playback import Difference, SessionPlayer, TurnPlayer, step_of
from turnwise.replay.redacted_session import without_secrets
from turnwise.replay.replayed_events import PersonSpoke, TurnTeller
from turnwise.replay.session_file import RecordedSession, read_recorded, read_session_file, write_session
from turnwise.rules.answer_room import exit_code
from turnwise.rules.pricing import Cost
from turnwise.terminal.databases import read_journal
from turnwise.terminal.events import JsonLines, write_line
from turnwise.terminal.exit_codes import REPLAY_DIFFERS
from turnwise.terminal.rows import say
from turnwise.terminal.screen import Screen
from turnwise.terminal.single_run import note, show_end
from turnwise.turn.config import Approval
from turnwise.turn.events import FinishTurn
from turnwise.turn.machine import SessionSoFar

ADVICE = "it holds the prompts, the answers and what tools read: look through it before you give it away"
UNLIKE = "the file does not replay to the same commands: a text that was replaced decides something; hide a longer one"
NOWHERE = "the session does not hold it, so nothing was replaced for it: check how it is written"
MOST_PAUSE_S = 10.0  # a person may have been away for the night; nobody watches a still screen for longer
TOLD_PAUSE_S = 1.0  # a pause that is shortened by less is not mentioned
ASKED = 100  # characters of a question, and of an answer in words
VERDICTS = {"allow": "allowed", "deny": "denied", "later": "left for later"}
Pause = Callable[[float], object]


class ReplayView(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown, and how. `turn` counts from 1; None: all turns."""

    turn: int | None = None
    until: int | None = None
    live: bool = False
    as_json: bool = False
    plain: bool = False


class StillClock:
    """The machine's time, without timers: while a recorded turn is shown, nothing draws by itself."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def now(self) -> float:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Timer:
        return _NoTimer()


class _NoTimer:
    def cancel(self) -> None:
        pass


def show_again(session_or_file: str, *, view: ReplayView, pause: Pause = time.sleep) -> bool:
    """Show the session; return whether today's code decides as recorded. Raises CallerError."""
    recorded = recorded_of(session_or_file)
    try:
        return _Replay(recorded, view=view, pause=pause).run()
    except RecursionError:  # the file may come from anybody
        raise CallerError(f"`{session_or_file}` holds JSON that is nested too deeply to be replayed") from None


def recorded_of(session_or_file: str) -> RecordedSession:
    """The session with this id, or the session in a file: a name with a `/` or `.` in it is a file's. Raises CallerError."""
    path = Path(session_or_file)
    if (
        session_or_file
        and not session_or_file.isalnum()
        and (path.exists() or "/" in session_or_file or "." in session_or_file)
    ):
        return read_session_file(path)
    try:
        recorded, _ = read_journal(
            lambda journal: read_recorded(journal, journal.find_session_by_part(session_or_file))
        )
        return recorded
    except CallerError as error:
        if path.is_file():
            raise CallerError(f"{error}; for the file of that name write `./{session_or_file}`") from None
        raise


def export_session(session_or_file: str, *, file: Path, hide: Sequence[str], as_json: bool) -> None:
    """Write the file, and say what was replaced. Raises CallerError."""
    hidden = without_secrets(recorded_of(session_or_file), env=os.environ, texts=hide)
    write_session(file, hidden.session, replaced=hidden.secrets)
    size = file.stat().st_size
    for number, times in enumerate(hidden.times, start=1):
        if not times:
            say(style(f"--hide, text {number} of {len(hide)}: {NOWHERE}", "yellow", stream=sys.stderr))
    if as_json:
        said = {
            "event": "export",
            "file": str(file),
            "bytes": size,
            "replaced": hidden.secrets,
            "hidden": list(hidden.times),
        }
        write_line({**said, "same": hidden.replays_alike, "exit_code": 0})
        return
    say(f"wrote {visible_line(str(file))}: {size:,} bytes, {many(hidden.secrets, 'secret')} replaced; {ADVICE}")
    if not hidden.replays_alike:
        say(style(UNLIKE, "yellow", stream=sys.stderr))


class _Replay:
    """One session, shown once."""

    def __init__(self, session: RecordedSession, *, view: ReplayView, pause: Pause) -> None:
        self._session = session
        self._view = view
        self._pause = pause
        self._player = SessionPlayer(session)
        self._players = [self._player]  # and those of sub-agents, as they come
        self._face = JsonLines() if view.as_json else Screen(plain=view.plain, clock=StillClock())
        self._before_s: float | None = None  # when the event on the screen happened
        self._told: set[Difference] = set()

    def run(self) -> bool:
        turns, view = len(self._session.turns), self._view
        if not turns:
            raise CallerError(f"session `{self._session.row.id}` has no turns: there is nothing to replay")
        if view.turn is not None and view.turn > turns:
            raise CallerError(
                f"session `{self._session.row.id}` has {many(turns, 'turn')}: there is no turn {view.turn}"
            )
        last = view.turn or turns
        if view.live:
            self._face.tell(f"at the speed that it had; a pause takes {MOST_PAUSE_S:g} s at most")
        for player in self._player.turns():
            if view.turn is None or player.number == view.turn:
                self._show_turn(player, until=view.until if player.number == last else None)
            else:
                for _ in player.play():
                    pass
            self._tell_differences()
            if player.number == last:
                break
        self._face.close()
        return self._sum_up()

    def _show_turn(self, player: TurnPlayer, *, until: int | None) -> None:
        self._head(player)
        if isinstance(self._face, Screen):
            self._face.begin(WaitBounds())
        for seen in TurnTeller(player, players=self._players).tell(until_step=until):
            if self._view.live:
                self._wait(seen.time)
            if isinstance(seen.seen, PersonSpoke):
                self._tell_person(seen.seen)
            else:
                self._face(seen.seen)
        self._foot(player, until=until)

    def _head(self, player: TurnPlayer) -> None:
        for entry in player.recorded.entries[:1]:
            self._before_s = entry.time if self._before_s is None else self._before_s
        started = started_of(player.recorded.events)
        prompt = "" if started is None else prompt_of(started)
        row = player.recorded.row
        if self._view.as_json:
            write_line({"event": "turn", "turn": player.number, "id": row.id, "status": row.status, "prompt": prompt})
            return
        note(style(f"turn {player.number} of {len(self._session.turns)}", "bold", stream=sys.stderr))
        for line in prompt.splitlines():
            note(f"> {clean(line)}")

    def _tell_person(self, spoke: PersonSpoke) -> None:
        if self._view.as_json:
            asked = [
                {"id": ask.call.id, "name": ask.call.name, "kind": ask.kind, "subject": ask.subject, "answer": answer}
                for ask, answer in spoke.asked
            ]
            write_line({"event": "person", "asked": asked, "words": spoke.words, "path": spoke.path})
            return
        of = "".join([f"{name} › " for name in spoke.path])
        for ask, answer in spoke.asked:
            about = ask.subject if ask.kind == "question" else f"{ask.call.name} {ask.subject}"
            self._face.tell(f"? {of}{shortened(about, limit=ASKED)}: {_answered(answer)}")
        for line in spoke.words.splitlines():
            self._face.tell(f"> {line}")

    def _wait(self, at_s: float) -> None:
        before, self._before_s = self._before_s, at_s
        seconds = 0.0 if before is None else max(0.0, at_s - before)
        if seconds > MOST_PAUSE_S + TOLD_PAUSE_S:
            self._face.tell(f"{seconds:,.0f} s passed here")
        if seconds:
            self._pause(min(seconds, MOST_PAUSE_S))

    def _foot(self, player: TurnPlayer, *, until: int | None) -> None:
        command, config = player.command, None if player.started is None else player.started.config
        if not isinstance(command, FinishTurn) or config is None:
            self._face.close()
            self._face.tell(_why_no_end(player, until=until))
            return
        result = run_result(command.result, output=None, before=SessionSoFar(), session=self._session.row.id)
        if isinstance(self._face, JsonLines):  # the cost is in the ledger, which is not replayed
            sent = result.requests
            code = exit_code(result.stop_reason, complete=result.complete)
            self._face.finish(msgspec.structs.replace(result, cost=Cost(requests=sent, unknown=sent)), code=code)
            return
        entries = player.recorded.entries
        choice = Choice(model=f"{config.profile}:{config.model}")
        seconds = entries[-1].time - entries[0].time
        show_end(result, seconds=seconds, misfit=False, asked=FailedModel(choice=choice))

    def _tell_differences(self) -> None:
        for player in self._players:
            for one in player.differences:
                if one in self._told:
                    continue
                self._told.add(one)
                if self._view.as_json:
                    write_line({"event": "difference", **msgspec.structs.asdict(one)})
                else:
                    note(style(self._said(one), "yellow", stream=sys.stderr))

    def _said(self, one: Difference) -> str:
        of = f"session {short_id(one.session)}, " if one.session != self._session.row.id else ""
        where = f"record {one.record}" if one.record else "its end"
        return f"✗ {of}turn {one.turn}, {where}: recorded: {clean_line(one.recorded)}; today: {clean_line(one.now)}"

    def _sum_up(self) -> bool:
        played = [turn for player in self._players for turn in player.played]
        same = not self._told
        commands = sum([turn.commands for turn in played])
        unknown = sum([turn.bodies_unknown for turn in played])
        if self._view.as_json:
            write_line(
                {
                    "event": "replay",
                    "session": self._session.row.id,
                    "turns": len(self._player.played),
                    "subagents": len(self._players) - 1,
                    "commands": commands,
                    "bodies_compared": sum([turn.bodies_compared for turn in played]),
                    "bodies_unknown": unknown,
                    "differences": len(self._told),
                    "same": same,
                    "exit_code": 0 if same else REPLAY_DIFFERS,
                }
            )
            return same
        children = f" (and {many(len(self._players) - 1, 'sub-agent')})" if len(self._players) > 1 else ""
        what = f"replayed {many(len(self._player.played), 'turn')}{children}: {many(commands, 'command')}"
        left = f"; the bytes of {many(unknown, 'request')} could not be compared" if unknown else ""
        if same:
            note(style(f"{what}, all as recorded{left}", "dim", stream=sys.stderr))
        else:
            note(
                style(
                    f"{what}; today's code decides otherwise at {many(len(self._told), 'place')}{left}",
                    "yellow",
                    stream=sys.stderr,
                )
            )
        return same


def _why_no_end(player: TurnPlayer, *, until: int | None) -> str:
    if player.is_refused:
        return "the replay of this turn ends here: today's code cannot take the next record"
    if until is not None and step_of(player.command) > until:
        return f"stopped behind step {until}"
    return "the turn was interrupted here" if player.recorded.row.status == "lost" else "the turn has not ended yet"


def _answered(answer: Approval | None) -> str:
    """How an ask was answered, and by whom."""
    if answer is None:
        return "nobody answered, so the default stood"
    by = "" if answer.by == "person" else f" ({answer.by})"
    words = f": {shortened(answer.text, limit=ASKED)}" if answer.text else ""
    return f"{VERDICTS[answer.verdict]}{by}{words}"
