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
from turnwise.coding_agent.folder import reread_agents_md
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
    """The person before whom a turn runs: who is told, and who asks them; None: nobody can be asked. `ended_s`: when the turn was
    over."""

    tell: Callable[[str], object]
    approver: Approver | None
    ask_s: float
    ended_s: float | None = None


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
        present.ended_s = clock.now()


class FolderInstructions:
    """AGENTS.md of the folder, over a session. `began` is the text that stands among the instructions, and stays there; what
    changed of it stands in front of the user's next message. `before` is the session until now; what its tools changed is
    kept in `changes`."""

    def __init__(self, folder: Path, *, began: str | None, before: Session | None, changes: FileChanges) -> None:
        self._folder = folder
        self._began = began
        turns = () if before is None else before.turns
        self._turns = frozenset([turn.id for turn in turns])
        ends = [turn.finished for turn in turns]
        self._ended_s = None if None in ends else max([end for end in ends if end is not None], default=None)
        self._last: Present | None = None  # the turn before this one, in this process
        self._changes = changes
        self._has_begun = False
        self._note: Text | None = None  # what was told last, if not `began`

    async def note(self, messages: Sequence[Message]) -> Text | None:
        """What a session has not been told yet. A sub-agent is told what its session knows: the file is read at the start of a
        user's turn alone."""
        if self._has_begun and not messages:
            return self._note
        self._has_begun = True
        notes = [note for message in messages if message.role == "user" for note in notes_of(message)]
        self._note = next((note for note in reversed(notes) if note.note == NOTE), None)
        present = _present.get()
        found = reread_agents_md(self._folder)
        if isinstance(found, LeftOut):
            _tell(present, f"AGENTS.md is not read again: it {found.why}")
            return None
        last, self._last = self._last, present
        before = self._told()
        if found == before:
            return None
        lines = _lines_said(before or "", found or "")
        ended_s = self._ended_s if last is None else last.ended_s
        is_own = self._is_own_work(messages) or (_has_run_commands(messages) and self._is_old(found, ended_s=ended_s))
        if is_own and not await _is_followed(present, lines=lines, is_gone=found is None):
            what = "removed" if found is None else f"changed by this session ({lines})"
            held = "its instructions still hold" if found is None else "is not followed"
            _tell(present, f"AGENTS.md was {what}, and {held}: nobody allowed it")
            return None
        now = GONE if found is None else f"{HEAD}{found}{TAIL}"
        gone = (
            "is gone: the model is told so"
            if found is None
            else f"has changed ({lines}): the model is told the new text"
        )
        _tell(present, f"AGENTS.md {gone}")
        self._note = Text(now, note=NOTE)
        return self._note

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
        path = self._folder / NAME
        return named or any(
            self._changes.has_changed(one, groups=self._turns) for one in {path, Path(os.path.realpath(path))}
        )

    def _is_old(self, found: str | None, *, ended_s: float | None) -> bool:
        """Whether the file became what it is before the session's last turn was over, by the time that no program sets; also
        where nobody knows: it is gone, or the turn has no end."""
        if found is None or ended_s is None:
            return True
        try:
            return (self._folder / NAME).stat().st_ctime <= ended_s
        except OSError:
            return True


def _has_run_commands(messages: Sequence[Message]) -> bool:
    """Whether the session has called anything that may write a file unseen; also where a summary stands for older calls."""
    return any(is_summary(message) for message in messages) or any(
        part.name not in OF_FILES for message in messages for part in message.parts if isinstance(part, ToolCall)
    )


async def _is_followed(present: Present | None, *, lines: str, is_gone: bool) -> bool:
    """What the person says of a file that the session has written or removed itself."""
    if present is None or present.approver is None:
        return False
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
    return any(answer.verdict == "allow" and answer.text == wanted for answer in answers)


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
