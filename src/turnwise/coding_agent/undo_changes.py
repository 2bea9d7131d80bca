"""What `turnwise undo` and `/undo` do: find the session's last turn whose changes stand, show them, and take them back."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.agent.formatting import many
from turnwise.coding_agent.last_exchange import prompt_of, started_of, when_said
from turnwise.coding_agent.text import shortened, style, visible, visible_line
from turnwise.coding_agent.workplace import changes_folder, recovered_changes
from turnwise.errors import CallerError, ToolFault
from turnwise.journal.journal import Journal, Session, TurnRow
from turnwise.journal.turn_writer import ToolsStarted
from turnwise.tools.workspace.changes import FileChanges, Undoing, Undone, UndoOutcome
from turnwise.tools.workspace.diffs import diff_of
from turnwise.tools.workspace.previews import CHANGING, shortly
from turnwise.turn.events import Interrupted, ResponseReceived, ScriptCalled, ToolEnded, ToolsFinished
from turnwise.vocab import ToolResult, calls_of
from turnwise.vocab.file_names import given_name, shown_name

COMMAND = "bash"
MOST_SESSIONS = 1_000_000
SEARCHED_SESSIONS = 500  # the latest, for another one with changes: a month of work
OF_A_DIFF = "    "  # in front of its lines, and of no others
SHOWN_LINES = 40  # at first, of the diffs of all files together; of a longer one the counts are told
# What happens to a file, and what has happened to it.
VERBS: dict[UndoOutcome, str] = {
    "restored": "restore",
    "recreated": "create anew",
    "removed": "remove",
    "unchanged": "as before",
    "kept": "leave",
}


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How many commands began in a turn, and how many calls changed files; those of its sub-agents are among them."""

    commands: int = 0
    changes: int = 0


class TurnBack(msgspec.Struct, frozen=True, kw_only=True):
    """A turn whose changes are to be taken back. `later` counts the turns after it that ran commands and changed nothing by a
    tool; `notes` are sentences to tell before."""

    session: Session
    turn: TurnRow
    prompt: str
    folder: Path
    store: FileChanges
    undoing: Undoing
    commands: int
    later: int
    notes: tuple[str, ...]

    @property
    def kept(self) -> int:
        """Files that are not as they were before the turn, and stay so."""
        return sum(file.outcome == "kept" for file in self.undoing.files)

    @property
    def is_done(self) -> bool:
        """Every file is as it was before: nothing has to be asked."""
        return not self.undoing.changes and not self.kept


def find_turn_back(
    journal: Journal, session: Session, *, folder: Path, env: Mapping[str, str], now_s: float
) -> TurnBack:
    """The session's last turn whose changes were not taken back yet. Raises CallerError where there is none, a turn is
    running, or what it changed is not kept any more."""
    name = session.row.id[-8:]
    if any(turn.status == "running" for turn in session.turns):
        raise CallerError(f"a turn of session {name} is running: wait for its end, then take its changes back")
    stores = _Stores(session, folder=folder, env=env)
    later = 0
    for place in range(len(session.turns) - 1, -1, -1):
        turn = session.turns[place]
        done = _done_in(journal, turn.id)
        found = stores.of(turn.id)
        if found is None and not done.changes:
            later += bool(done.commands)
            continue
        store, count = found or (stores.folder, 0)
        notes = recovered_changes(store) if found is not None else ()
        changes = FileChanges(store)
        undoing = changes.undoing(turn.id) if found is not None else None
        if undoing is None and found is not None:
            continue  # it was taken back already
        if undoing is None or count < done.changes:
            raise CallerError(_gone(journal, session, turn=turn, some=bool(count), folder=stores.folder, now_s=now_s))
        return TurnBack(
            session=session,
            turn=turn,
            prompt=_asked_for(journal, session.turns[: place + 1]),
            folder=folder,
            store=changes,
            undoing=undoing,
            commands=done.commands,
            later=later,
            notes=notes,
        )
    ran = f"; {_later_said(later)}" if later else ""
    raise CallerError(
        f"nothing to take back: session {name} has changed no file, or all its changes were taken back{ran}"
        f"{_elsewhere(journal, session, folder=folder, stores=stores, now_s=now_s)}"
    )


def _elsewhere(journal: Journal, session: Session, *, folder: Path, stores: "_Stores", now_s: float) -> str:
    """The newest other session of the folder that has something to take back, and how; empty where there is none."""
    for row in journal.sessions(limit=SEARCHED_SESSIONS):
        if row.id == session.row.id or row.folder not in (session.row.folder, shown_name(str(folder))):
            continue
        turns = journal.find_session(row.id).turns
        if any(turn.status == "running" for turn in turns):
            continue
        for turn in turns:
            found = stores.of(turn.id)
            if found is not None and FileChanges(found[0]).undoing(turn.id) is not None:
                when = when_said(row.updated, now_s=now_s)
                return f"; session {row.id[-8:]} of {when} has something: `turnwise undo {row.id[-8:]}`"
    return ""


def _asked_for(journal: Journal, turns: Sequence[TurnRow]) -> str:
    """The prompt that the last of these turns worked on. A turn that only approves has no prompt: it continues an earlier one."""
    for turn in reversed(turns):
        started = started_of(journal.events(turn.id))
        if started is not None and (said := prompt_of(started)):
            return said
    return ""


def _gone(journal: Journal, session: Session, *, turn: TurnRow, some: bool, folder: Path, now_s: float) -> str:
    if all(row.id != session.row.id for row in journal.sessions(limit=MOST_SESSIONS)):
        return (
            f"session {session.row.id[-8:]} is a sub-agent's, whose changes belong to the turn that started it: "
            "take the changes of that session back"
        )
    which = "some of the saved copies" if some else "the saved copies"
    return (
        f"the turn of {when_said(turn.created, now_s=now_s)} cannot be taken back: {which} of what it changed are gone from "
        f"`{folder}` (removed, or given way to newer ones)"
    )


class _Stores:
    """The folders of saved copies in which a session's may lie: the session's own, that of the current folder, all others."""

    def __init__(self, session: Session, *, folder: Path, env: Mapping[str, str]) -> None:
        own, here = (changes_folder(Path(each), env=env) for each in (given_name(session.row.folder), folder))
        self.folder = own.parent
        self._near = list(dict.fromkeys([own, here]))
        self._groups: dict[Path, Mapping[str, int]] = {}

    def of(self, turn_id: str) -> tuple[Path, int] | None:
        """Where the copies of that turn lie, and of how many changes, if there are any."""
        others: list[Path] = []
        with contextlib.suppress(OSError):
            others = sorted(self.folder.iterdir())
        for store in dict.fromkeys([*self._near, *others]):
            if store not in self._groups:
                self._groups[store] = FileChanges(store).groups()
            if turn_id in self._groups[store]:
                return store, self._groups[store][turn_id]
        return None


def take_back(back: TurnBack) -> None:
    """Do what was shown. Raises CallerError where a file has changed since it was shown, and ToolFault where the disk refuses;
    nothing is changed then."""
    now = back.store.undoing(back.turn.id)
    _refuse_if_other(back, now)
    assert now is not None
    try:
        back.store.take_back(now)
    except ToolFault:
        _refuse_if_other(back, back.store.undoing(back.turn.id))
        raise


def _refuse_if_other(back: TurnBack, now: Undoing | None) -> None:
    if now is None:
        raise CallerError("nothing was taken back: another turnwise has just done it")
    shown = {change.path: change.stamp for change in back.undoing.changes}
    there = {change.path: change.stamp for change in now.changes}
    if now.files != back.undoing.files or shown != there:
        before = dict(zip([file.path for file in back.undoing.files], back.undoing.files, strict=True))
        changed = [
            file.path
            for file in now.files
            if before.get(file.path) != file or shown.get(file.path) != there.get(file.path)
        ]
        names = ", ".join([f"`{path_said(path, folder=back.folder)}`" for path in changed])
        raise CallerError(f"nothing was taken back: {names or 'a file'} changed at this moment; look again")


def is_of_diff(line: str) -> bool:
    """Whether one of `lines_of` is out of a file, and stays as it is however narrow the terminal is."""
    return line.startswith(OF_A_DIFF)


def lines_of(back: TurnBack, *, now_s: float, whole: bool = False) -> list[str]:
    """What would happen, for a person; all of it safe to print. The `whole` of every diff, without colours, or the short ones. A
    file that is removed holds what the turn wrote, and nothing else: its name and its size tell all."""
    said = f': "{shortened(back.prompt, limit=60)}"' if back.prompt else ""
    lines = [*back.notes]
    if back.later:
        lines.append(_later_said(back.later))
    lines.append(f"session {back.session.row.id[-8:]}, the turn of {when_said(back.turn.created, now_s=now_s)}{said}")
    diffs = {change.path: diff_of(change) for change in back.undoing.changes}
    left = SHOWN_LINES
    for file in back.undoing.files:
        diff = diffs.get(file.path, [])
        name = path_said(file.path, folder=back.folder)
        lines.append(f"  {VERBS[file.outcome]:<11} {name}{_why(file)}{_counts(diff)}")
        if not diff or file.outcome == "removed":
            continue
        shown = [visible(line) for line in diff[2:]]
        if whole:
            lines += [f"{OF_A_DIFF}{line}" for line in shown]
        elif len(diff) <= left:
            lines += [f"{OF_A_DIFF}{_coloured(line)}" for line in shortly(shown)]
            left -= len(diff)
    if back.kept and not back.undoing.changes:
        lines.append("nothing of this turn can be taken back")
    if back.commands:
        lines.append(f"{many(back.commands, 'command')} ran in it: what commands change cannot be taken back")
    return lines


def results_of(back: TurnBack) -> list[str]:
    """What has happened to each file."""
    return [
        f"  {path_said(file.path, folder=back.folder)}: "
        f"{'as it was before' if file.outcome == 'unchanged' else file.outcome}{_why(file)}"
        for file in back.undoing.files
    ]


def question_of(back: TurnBack) -> str:
    count = len(back.undoing.changes)
    if not count:
        return "leave it, and let the next undo take the turn before? [y/N] "
    rest = f" and leave {back.kept} as {'it is' if back.kept == 1 else 'they are'}" if back.kept else ""
    return f"take {many(count, 'file')} back{rest}? [y/N] "


def path_said(path: Path, *, folder: Path) -> str:
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    return visible_line(str(shown).encode("utf-8", "backslashreplace").decode())


def _why(file: Undone) -> str:
    if not file.why:
        return ""
    copy = f"; what it held before: {visible_line(str(file.saved))}" if file.saved is not None else ""
    return f" ({file.why}{copy})"


def _counts(diff: list[str]) -> str:
    """` (+1 -2)` of the lines below the head; nothing of what is no diff."""
    added, gone = (sum(line.startswith(sign) for line in diff[2:]) for sign in "+-")
    return f" (+{added} -{gone})" if diff else ""


def _coloured(line: str) -> str:
    colours = {"+": "green", "-": "red", "@": "cyan"}
    colour = colours.get(line[:1])
    return style(line, colour, stream=sys.stderr) if colour else line


def _later_said(turns: int) -> str:
    return f"{many(turns, 'turn')} after it ran commands only: what commands change cannot be taken back"


def _done_in(journal: Journal, turn_id: str) -> Done:
    """By the journal, which knows calls that were killed, too."""
    names: dict[str, str] = {}
    commands = changes = 0
    for entry in journal.entries(turn_id):
        match entry.record:
            case ResponseReceived(response=response):
                names |= {call.id: call.name for call in calls_of(response.message)}
            case ScriptCalled(calls=calls):
                names |= {call.id: call.name for call in calls}
            case ToolsStarted(call_ids=ids):
                commands += sum(names.get(id) == COMMAND for id in ids)
            case ToolsFinished(results=results) | Interrupted(results=results):
                changes += sum(map(_has_changed, results))
            case ToolEnded(result=result):
                changes += _has_changed(result)
            case _:
                pass
    for _, child in journal.children(turn_id):
        for turn in child.turns:
            below = _done_in(journal, turn.id)
            commands, changes = commands + below.commands, changes + below.changes
    return Done(commands=commands, changes=changes)


def _has_changed(result: ToolResult) -> bool:
    return result.name in CHANGING and not result.is_error
