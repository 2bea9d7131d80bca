"""What happens at the start of each turn of the command line: the model is told where it works, which instructions of folders it
knows already, and what has changed of those of its own folder."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from pathlib import Path

import msgspec

from turnwise.agent.agent_groups import OpeningSource
from turnwise.base.clock import Clock
from turnwise.base.unasked_files import LeftOut
from turnwise.coding_agent.agents_md_record import FileMark, KeptMarks, load_marks, mark_of, save_marks
from turnwise.coding_agent.folder import reading_said, reread_agents_md
from turnwise.coding_agent.workplace_note import Surroundings
from turnwise.journal.journal import Session
from turnwise.rules.compaction import is_summary
from turnwise.running.approvals import Approver, Asking, put
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.instructions import NAME, begin_telling
from turnwise.tools.workspace.shell import Shell
from turnwise.turn.approvals import OneAsk
from turnwise.vocab import Message, Text, ToolCall, ToolResult, notes_of

NOTE = "folder_instructions"  # the mark of the note in a history
HEAD = "[AGENTS.md, the instructions of this folder, has changed. From now on this text holds in place of the earlier one.]\n\n"
TAIL = "\n\n[End of AGENTS.md]\n\n"
GONE = "[AGENTS.md, the instructions of this folder, is gone. Its instructions do not hold any more.]\n\n"
ONLY_READ = frozenset({"read", "list", "search", "read_result"})
OF_FILES = ONLY_READ | {"write", "edit", "apply_patch"}  # what these change is known
FOLLOW, LEAVE = "Follow it from now on", "Leave it out"
DROP, KEEP = "They hold no more", "They still hold"


class Present(msgspec.Struct, kw_only=True):
    """The person before whom a turn runs: who is told, and who asks them; None: nobody can be asked. `at_end` is called with the
    time when the turn is over."""

    tell: Callable[[str], object]
    approver: Approver | None
    ask_s: float
    at_end: Callable[[float], None] | None = None


_present: ContextVar[Present | None] = ContextVar("turnwise_present", default=None)


@contextlib.contextmanager
def runs_before(
    tell: Callable[[str], object], *, approver: Approver | None, ask_s: float, clock: Clock
) -> Generator[None]:
    """In this task and what is begun in it, the start of a turn tells and asks this person; the turn ends with the context."""
    present = Present(tell=tell, approver=approver, ask_s=ask_s)
    _present.set(present)
    try:
        yield
    finally:
        if present.at_end is not None:
            present.at_end(clock.now())


class FolderInstructions:
    """AGENTS.md of the folder, over a session. `began` is the text that stands among the instructions, and stays there; what
    changed of it stands in front of the user's next message. `before` is the session until now; what its tools changed is
    kept in `changes`."""

    def __init__(
        self, folder: Path, *, began: str | None, before: Session | None, changes: FileChanges, kept: Path
    ) -> None:
        self._path = folder / NAME
        self._began = began
        turns = () if before is None else before.turns
        self._turns = frozenset([turn.id for turn in turns])
        self._ends = [turn.finished for turn in turns]
        self._changes = changes
        self._kept = kept  # the file of the folder's marks
        self._marks: KeptMarks | None = None  # None: no turn of this process has begun
        self._note: Text | None = None  # what was told last, if not `began`

    async def note(self, messages: Sequence[Message]) -> Text | None:
        """What a session has not been told yet. A sub-agent is told what its session knows: the file is read at the start of a
        user's turn alone."""
        if self._marks is not None and not messages:
            return self._note
        notes = [note for message in messages if message.role == "user" for note in notes_of(message)]
        self._note = next((note for note in reversed(notes) if note.note == NOTE), None)
        present = _present.get()
        found = reread_agents_md(self._path.parent)
        is_first = self._marks is None
        mark = mark_of(self._path, text=found)
        marks = self._begin(mark, present=present)
        if isinstance(found, LeftOut):
            _tell(present, f"AGENTS.md is not read again: it {found.why}")
            return None
        before = self._told()
        if found == before:
            if is_first and found is not None and self._turns:
                _tell(present, reading_said(found))
            return None
        if marks.refused == mark.text:
            return None
        is_named = self._is_own_work(messages)
        if (is_named or (_has_run_commands(messages) and marks.is_doubtful(mark))) and not await self._is_followed(
            present, before=before, found=found, is_named=is_named
        ):
            return None
        changed = _lines_said(before or "", found or "")
        gone = (
            "is gone: the model is told so"
            if found is None
            else f"has changed ({changed}): the model is told the new text"
        )
        _tell(present, f"AGENTS.md {gone}")
        self._note = Text(GONE if found is None else f"{HEAD}{found}{TAIL}", note=NOTE)
        return self._note

    def _begin(self, mark: FileMark, *, present: Present | None) -> KeptMarks:
        """The marks at the start of a turn. What is new since the last turn ended is a person's work; if a turn of the session
        was killed, or ran without marks, nobody can know."""
        kept = load_marks(self._kept)
        ended_s = None if kept is None else kept.ended_s
        is_known = ended_s is not None and (
            self._marks is not None or all(end is not None and end <= ended_s for end in self._ends)
        )
        is_new = kept is None and not self._turns
        marks = (kept or KeptMarks(last=mark if is_new else FileMark())).seen(mark, in_turn=not is_known)
        self._save(msgspec.structs.replace(marks, ended_s=None))
        if present is not None:
            present.at_end = self._end
        return marks

    def _end(self, ended_s: float) -> None:
        """A turn is over: what is new in the file may be its work."""
        if self._marks is not None:
            now = mark_of(self._path, text=reread_agents_md(self._path.parent))
            self._save(msgspec.structs.replace(self._marks.seen(now, in_turn=True), ended_s=ended_s))

    def _save(self, marks: KeptMarks) -> None:
        self._marks = marks
        save_marks(self._kept, marks)

    async def _is_followed(
        self, present: Present | None, *, before: str | None, found: str | None, is_named: bool
    ) -> bool:
        """Whether the person has a file followed that the session has written or removed, or may have. A no holds until the text
        is another."""
        lines = _lines_said(before or "", found or "")
        said = await _answered(present, lines=lines, is_gone=found is None)
        if said in (FOLLOW, DROP):
            return True
        if said in (LEAVE, KEEP) and self._marks is not None:
            self._save(msgspec.structs.replace(self._marks, refused=self._marks.last.text))
        may = "was" if is_named else "may have been"
        what = "was removed" if found is None else f"{may} changed by this session ({lines})"
        if self._marks is not None and self._marks.is_made_link(self._marks.last):
            what = f"leads to another file since this session, which has changed ({lines})"
        held = "its instructions still hold" if found is None else "is not followed"
        why = "you left it out" if said in (LEAVE, KEEP) else "nobody allowed it"
        _tell(present, f"AGENTS.md {what}, and {held}: {why}")
        return False

    def _told(self) -> str | None:
        """The text that the session knows."""
        if self._note is None:
            return self._began
        text = self._note.text
        return text[len(HEAD) : -len(TAIL)] if text.startswith(HEAD) else None

    def _is_own_work(self, messages: Sequence[Message]) -> bool:
        """Whether tools of this session have written the file, or may have: a command that names it."""
        failed = {
            part.call_id
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult) and part.is_error
        }
        named = any(
            NAME.lower() in part.arguments.lower() and part.name not in ONLY_READ and part.id not in failed
            for message in messages
            for part in message.parts
            if isinstance(part, ToolCall)
        )
        return named or any(
            self._changes.has_changed(one, groups=self._turns)
            for one in {self._path, Path(os.path.realpath(self._path))}
        )


def _has_run_commands(messages: Sequence[Message]) -> bool:
    """Whether the session has called anything that may write a file unseen; also where a summary stands for older calls."""
    return any(is_summary(message) for message in messages) or any(
        part.name not in OF_FILES for message in messages for part in message.parts if isinstance(part, ToolCall)
    )


async def _answered(present: Present | None, *, lines: str, is_gone: bool) -> str | None:
    """What the person answers about a file that the session may have written or removed; None: nothing."""
    if present is None or present.approver is None:
        return None
    wanted, otherwise = (DROP, KEEP) if is_gone else (FOLLOW, LEAVE)
    changed = (
        f"This session may have changed AGENTS.md ({lines}). Is the model to follow its new text as your instructions?"
    )
    removed = "This session may have removed AGENTS.md. Do its instructions still hold?"
    question = OneAsk(
        call=ToolCall(id="agents_md", name=NAME, arguments="{}"),
        arguments="{}",
        kind="question",
        subject=removed if is_gone else changed,
        options=(wanted, otherwise),
        by="tool",
    )
    answers = await put(present.approver, Asking(asks=(question,), deadline_s=present.ask_s))
    return next((answer.text for answer in answers if answer.verdict == "allow"), None)


def _tell(present: Present | None, text: str) -> None:
    if present is not None:
        present.tell(text)


def _lines_said(before: str, now: str) -> str:
    old, new = Counter(before.splitlines()), Counter(now.splitlines())
    return f"+{(new - old).total()} -{(old - new).total()} lines"


def opening_of(
    shell: Shell,
    *,
    folder: Path,
    clock: Clock,
    tells: bool,
    reads_agents_md: bool,
    instructions: FolderInstructions | None,
) -> OpeningSource:
    """`tells`: where it works, at the session's first turn, and at later ones what has changed. `reads_agents_md`: AGENTS.md of
    the folders below, beside the first file that is read there. `instructions` are those of the folder itself."""
    surroundings = _surroundings(shell, folder=folder, clock=clock) if tells else None

    async def opening(messages: Sequence[Message]) -> list[Text]:
        if reads_agents_md:
            begin_telling(messages)
        notes = [
            None if surroundings is None else await surroundings.note(messages),
            None if instructions is None else await instructions.note(messages),
        ]
        return [note for note in notes if note is not None]

    return opening


def _surroundings(shell: Shell, *, folder: Path, clock: Clock) -> Surroundings:
    kind = f"in a sandbox ({shell.sandbox.kind})" if shell.sandbox.files else "without a sandbox"
    return Surroundings(
        folder,
        clock=clock,
        commands=f"{kind}, {'with' if shell.has_network else 'without'} network",
        git=shell.programs.first_apart("git"),
    )
