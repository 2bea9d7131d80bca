"""The modes of a session: what runs without asking, as one table; and the mode of one session, which only a person chooses.

No file of a project, no text of a model and no answer of a tool comes here: `choose` is called for a key, a command or an option
of the person. The judge (`rules/permissions`) says what a mode means for a call, and the shell what a command finds read-only.
"""

import contextlib
import difflib
import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import msgspec

from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.rules.guarded_names import is_secret, runs_later
from turnwise.rules.permission_facts import MODES, CallFacts, Mode, tightest
from turnwise.running.run_context import Inspector, in_mode
from turnwise.tools.sandbox import CannotGuard
from turnwise.tools.sandbox.guarded_files import GuardedFiles
from turnwise.tools.workspace.shell import Shell
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import PlannedCall
from turnwise.vocab import Message, Text, notes_of

NOTE = "mode"  # the mark of the note in a history
CARRY_OUT = "Carry out the plan."


class ModeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a mode means, for people in one line, and for the model."""

    name: str
    meaning: str
    told: str


TABLE: dict[Mode, ModeRow] = {
    "plan": ModeRow(
        name="Plan",
        meaning="Nothing is changed: commands find the folder read-only, and the answer is a plan that you may have carried out.",
        told="The session is in plan mode: nothing is changed now, and calls that would change something are refused. Look at "
        "what you need, then write the whole plan as your answer: what you would change and where, and how you would check it. "
        "Only the user ends plan mode.",
    ),
    "ask": ModeRow(
        name="Ask",
        meaning="Your rules hold; otherwise you are asked before files change and commands run.",
        told="The session is in ask mode: you may change files and run commands; the user is asked about it.",
    ),
    "edits": ModeRow(
        name="Edits",
        meaning="Files in the folder are changed without asking; you are still asked about commands and guarded files.",
        told="The session is in edits mode: file tools change files in the folder without asking; the user is asked about "
        "commands.",
    ),
    "sandbox": ModeRow(
        name="Sandbox",
        meaning="As in edits mode, and commands run without asking: they write in the folder only, have no network, and cannot "
        "change guarded files. A command can read your other files; what it prints goes to the model.",
        told="The session is in sandbox mode: file tools change files in the folder and commands run without asking. Commands "
        "have no network and find guarded files (secrets, settings, hooks, instructions) read-only.",
    ),
}
# The order of Shift-Tab. Nothing runs in a mode that is only passed, as a mode holds from the next turn on.
CYCLE: tuple[Mode, ...] = ("ask", "edits", "sandbox", "plan")


def read_mode(name: str) -> Mode:
    """The mode of this name. Raises CallerError."""
    for mode in MODES:
        if mode == name.strip().casefold():
            return mode
    near = difflib.get_close_matches(name.strip().casefold(), MODES, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(MODES)}"
    raise CallerError(f"there is no mode `{visible_line(name)[:40]}`: {hint}")


def _nowhere() -> str:
    return "it is not known what commands can reach"


class SessionMode:
    """The mode of one session. A tighter choice holds at once, a wider one from the next turn on. `why_no_sandbox` says why
    sandbox mode is not offered; empty if it is. `tell` is told if the session leaves sandbox mode by itself."""

    def __init__(self, first: Mode = "ask") -> None:
        self.chosen: Mode = first
        self.why_no_sandbox: Callable[[], str] = _nowhere
        self.tell: Callable[[str], object] = str
        self._turn: Mode | None = None  # the mode in which the current turn began
        self._worked: Mode = "ask" if first == "plan" else first  # in the last turn that could change something

    def now(self) -> Mode:
        """The mode that calls are judged in now."""
        return self.chosen if self._turn is None else tightest(self._turn, self.chosen)

    @property
    def said(self) -> str:
        """The mode in a few words: `plan mode`."""
        later = f", {self.chosen} mode from the next turn on" if self.chosen != self.now() else ""
        return f"{self.now()} mode{later}"

    def check(self) -> None:
        """Leave sandbox mode where it is not offered any more."""
        if self.chosen == "sandbox" and (why := self.why_no_sandbox()):
            self.lose(why)

    @contextlib.contextmanager
    def of_turn(self, mode: Mode) -> Generator[None]:
        """Inside this block a turn runs that began in this mode."""
        self._turn = tightest(mode, self.chosen)
        self._worked = self._worked if self._turn == "plan" else self._turn
        try:
            with in_mode(self.now):
                yield
        finally:
            self._turn = None

    def choose(self, mode: Mode) -> None:
        """The person's choice. Raises CallerError for sandbox mode where it is not offered; then nothing has changed."""
        if mode == "sandbox" and (why := self.why_no_sandbox()):
            raise CallerError(f"sandbox mode is not offered here: {why}")
        self.chosen = mode

    def next(self) -> None:
        """The mode that follows for Shift-Tab."""
        mode = CYCLE[(CYCLE.index(self.chosen) + 1) % len(CYCLE)]
        if mode == "sandbox" and self.why_no_sandbox():
            mode = CYCLE[CYCLE.index(mode) + 1]
        self.chosen = mode

    def carry_out(self) -> None:
        """Leave plan mode for the mode in which the session worked before."""
        self.choose(self.before_plan)

    @property
    def before_plan(self) -> Mode:
        """Where a plan is carried out: never in a wider mode than the session worked in before."""
        return "ask" if self._worked == "sandbox" and self.why_no_sandbox() else self._worked

    def lose(self, why: str) -> None:
        """Nothing keeps commands in any more: the session asks again, from the current call on."""
        if self.chosen == "sandbox":
            self.chosen = "ask"
            self.tell(f"sandbox mode has ended, and you are asked again: {why}")

    def stamped(self, inspect: Inspector) -> Inspector:
        """The inspector whose facts also say in which mode the session is."""

        async def look(calls: Sequence[PlannedCall]) -> Sequence[CallFacts]:
            facts = await inspect(calls)
            return [msgspec.structs.replace(one, mode=self.now()) for one in facts]

        return look

    def note(self, messages: Sequence[Message]) -> Text | None:
        """What the model has not been told yet, behind what it was told before."""
        told = [note.text for message in messages for note in notes_of(message) if note.note == NOTE]
        now = f"[{TABLE[self.now()].told}]\n\n"
        return None if now == (told[-1] if told else f"[{TABLE['ask'].told}]\n\n") else Text(now, note=NOTE)


def first_mode(wanted: str | None, *, last: TurnConfig | None) -> tuple[SessionMode, str]:
    """The mode in which a session starts, and what a person is told of it. Plan mode outlives a restart, others do not."""
    before: Mode = "ask" if last is None or last.policy is None else last.policy.mode
    if wanted is not None:
        return SessionMode(read_mode(wanted)), ""
    if before in ("plan", "ask"):
        return SessionMode(before), f"the session is in {before} mode, as before" if before == "plan" else ""
    return SessionMode(), f"the session was in {before} mode; a restart ends that: it is in ask mode now"


def why_no_sandbox_mode(shell: Shell, *, folder: Path, home: Path) -> str:
    """Why commands may not run unasked in the resolved `folder`; empty if they may."""
    home = home.resolve()
    top = next((one for one in (folder, *folder.parents) if os.path.lexists(one / ".git")), None)
    if home.is_relative_to(folder):
        return "your home folder is in this folder"
    if runs_later(str(folder), home=str(home)) or is_secret(str(folder), home=str(home)):
        return "this folder itself is guarded: programs obey what lies in it, or it may hold secrets"
    if top is None or home.is_relative_to(top):
        return "this folder is in no git repository of its own, so nobody could see what commands changed (`git init` makes one)"
    if not shell.sandbox.confines:
        return "it needs bubblewrap, and commands run without it here (`apt-get install bubblewrap`)"
    if shell.has_network:
        return "commands have the network (start without `--network`)"
    if not shell.sandbox.still_works():
        return "the sandbox does not work any more"
    try:
        GuardedFiles(folder)
    except CannotGuard as error:
        return str(error)
    return ""


def mode_lines(mode: SessionMode) -> list[str]:
    """The modes, each with its meaning; a star marks the one that is chosen."""
    why = mode.why_no_sandbox()
    return [
        f"{'*' if name == mode.chosen else ' '} {name:<8} "
        f"{f'not offered here: {why}' if name == 'sandbox' and why else row.meaning}"
        for name, row in TABLE.items()
    ]
