"""What happens at the start of each turn of the command line: the model is told where it works, which instructions of folders it
knows already, and what has changed of those of its own folder."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path

import msgspec

from turnwise.drivers.clock import Clock
from turnwise.drivers.journal.journal import Session
from turnwise.drivers.running.approvals import Approver, Asking, put
from turnwise.drivers.running.surroundings import Surroundings
from turnwise.drivers.tools.workspace.changes import FileChanges
from turnwise.drivers.tools.workspace.instructions import NAME, begin_telling
from turnwise.drivers.tools.workspace.shell import Shell
from turnwise.drivers.unasked_files import LeftOut
from turnwise.errors import CallerError
from turnwise.faces.agent_groups import OpeningSource
from turnwise.faces.cli.folder import read_agents_md
from turnwise.turn.approvals import OneAsk
from turnwise.vocab import Message, Text, ToolCall, ToolResult, notes_of

NOTE = "folder_instructions"  # the mark of the note in a history
HEAD = "[AGENTS.md, the instructions of this folder, has changed. From now on this text holds in place of the earlier one.]\n\n"
TAIL = "\n\n[End of AGENTS.md]\n\n"
GONE = "[AGENTS.md, the instructions of this folder, is gone. Its instructions do not hold any more.]\n\n"
ONLY_READ = frozenset({"read", "list", "search", "read_result"})
FOLLOW, LEAVE = "Follow it from now on", "Leave it out"


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """The person before whom a turn runs: who is told, and who asks them; None: nobody can be asked."""

    tell: Callable[[str], object]
    approver: Approver | None
    ask_s: float


_present: ContextVar[Present | None] = ContextVar("turnwise_present", default=None)


def runs_before(tell: Callable[[str], object], *, approver: Approver | None, ask_s: float) -> None:
    """From here on, in this task and what is begun in it, the start of a turn tells and asks this person."""
    _present.set(Present(tell=tell, approver=approver, ask_s=ask_s))


class FolderInstructions:
    """AGENTS.md of the folder, over a session. `began` is the text that stands among the instructions, and stays there; what
    changed of it stands in front of the user's next message. `before` is the session until now; what its tools changed is
    kept in `changes`."""

    def __init__(self, folder: Path, *, began: str | None, before: Session | None, changes: FileChanges) -> None:
        self._folder = folder
        self._began = began
        self._turns = frozenset(() if before is None else [turn.id for turn in before.turns])
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
        try:
            found = read_agents_md(self._folder)
        except CallerError as error:
            found = LeftOut(str(error))
        if isinstance(found, LeftOut):
            _tell(present, f"AGENTS.md is not read again: it {found.why}")
            return None
        before = self._told()
        if found == before:
            return None
        lines = _lines_said(before or "", found or "")
        if found is not None and self._is_own_work(messages) and not await _is_followed(present, lines=lines):
            _tell(present, f"AGENTS.md was changed by this session ({lines}), and is not followed: nobody allowed it")
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
        return named or self._changes.has_changed(self._folder / NAME, groups=self._turns)


async def _is_followed(present: Present | None, *, lines: str) -> bool:
    """What the person says of a file that the session has written itself."""
    if present is None or present.approver is None:
        return False
    question = OneAsk(
        call=ToolCall(id="agents_md", name=NAME, arguments="{}"),
        arguments="{}",
        kind="question",
        subject=f"This session has changed AGENTS.md ({lines}). Is the model to follow its new text as your instructions?",
        options=(FOLLOW, LEAVE),
        by="tool",
    )
    answers = await put(present.approver, Asking(asks=(question,), deadline_s=present.ask_s))
    return any(answer.verdict == "allow" and answer.text == FOLLOW for answer in answers)


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
