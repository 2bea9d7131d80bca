"""The keys of a session besides Enter, Tab, Ctrl-C and Ctrl-D: one table for the prompt and for a running turn."""

import asyncio
import os
import re
import select
import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from turnwise.terminal.pager import PromptStopped

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent


class Key(NamedTuple):
    """`does` names its action. `prompt` holds the keys at the prompt, as prompt_toolkit names them, and `turn` what the terminal
    sends while a turn runs; where one is empty, the key does nothing of ours there."""

    does: str
    said: str
    prompt: tuple[tuple[str, ...], ...] = ()
    turn: str = ""


KEYS = (
    Key("stop", "Esc ends the turn with what is there, at a question too.", turn="\x1b"),
    Key("suspend", "Ctrl-Z suspends turnwise; `fg` goes on.", prompt=(("c-z",),)),  # in a turn, it is a signal
    Key("edit", "Ctrl-G or Ctrl-X Ctrl-E opens the text in $EDITOR.", prompt=(("c-g",), ("c-x", "c-e"))),
    Key("mode", "Shift-Tab changes the mode.", prompt=(("s-tab",),), turn="\x1b[Z"),
    Key("open", "Ctrl-O shows what was folded.", prompt=(("c-o",),), turn="\x0f"),
)
Actions = Mapping[str, Callable[[], Awaitable[None]]]  # of the session, by the names in the table

ESC_S = 0.1  # the rest of an arrow key comes sooner
EDITORS = ("editor", "nano", "pico", "vi", "emacs")  # in which prompt_toolkit opens a text without $VISUAL and $EDITOR
NO_EDITOR = "there is no editor here: name one in $EDITOR"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|[^\x1b])?|[\x00-\x1f]")
_BEGUN = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*|O)?\Z")


class TurnKeys:
    """Finds the keys of the table in what is typed while a turn runs, and calls `act` with what each does. What may be the
    beginning of a longer key waits for `ESC_S`."""

    def __init__(self, act: Callable[[str], object], *, descriptor: int) -> None:
        self._act = act
        self._descriptor = descriptor
        self._begun = ""
        self._timer: asyncio.TimerHandle | None = None
        self._does = {key.turn: key.does for key in KEYS if key.turn}

    def sift(self, given: str) -> str:
        """The rest of what was typed, in which no key of the table is left."""
        self.forget()
        given, self._begun = f"{self._begun}{given}", ""
        if begun := _BEGUN.search(given):
            given, self._begun = given[: begun.start()], begun[0]
            self._timer = asyncio.get_running_loop().call_later(ESC_S, self._settle)
        return _SEQUENCE.sub(self._found, given)

    def forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self) -> None:
        """Nothing follows: it was Esc. On a busy machine the rest may have come, and nobody has read it yet."""
        if not select.select([self._descriptor], [], [], 0)[0]:
            begun, self._begun = self._begun, ""
            if does := self._does.get(begun):
                self._act(does)

    def _found(self, sequence: re.Match[str]) -> str:
        if (does := self._does.get(sequence[0])) is None:
            return sequence[0]
        self._act(does)
        return ""


def keys_said(actions: Actions) -> str:
    """One sentence for each key that does something in this session."""
    return " ".join([key.said for key in KEYS if key.does in actions or key.does in ("stop", "suspend", "edit")])


def text_keys(actions: Actions, *, say: Callable[[str], object]) -> "KeyBindings":
    """The keys at the main prompt. Enter sends, unless the line ends with a backslash; Esc-Enter makes a new line."""
    from prompt_toolkit.application import in_terminal
    from prompt_toolkit.filters import has_completions
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: "KeyPressEvent") -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: "KeyPressEvent") -> None:
        event.current_buffer.insert_text("\n")

    async def apart(action: Callable[[], Awaitable[None]]) -> None:
        """The action has the terminal, and the prompt comes back below what it shows."""
        async with in_terminal():
            await action()

    async def no_editor() -> None:
        say(NO_EDITOR)

    def edit(event: "KeyPressEvent") -> None:
        if any(os.environ.get(name) for name in ("VISUAL", "EDITOR")) or any(map(shutil.which, EDITORS)):
            event.current_buffer.open_in_editor()
        else:
            does(no_editor)(event)

    def does(action: Callable[[], Awaitable[None]]) -> Callable[["KeyPressEvent"], None]:
        def do(event: "KeyPressEvent") -> None:
            event.app.create_background_task(apart(action))

        return do

    own = {"suspend": _suspend, "edit": edit, **{name: does(action) for name, action in actions.items()}}
    for key in KEYS:
        for sequence in key.prompt if key.does in own else ():
            keys.add(*sequence, filter=~has_completions)(own[key.does])
    return keys


def question_keys(*, again: Callable[[], object] | None = None) -> "KeyBindings":
    """Esc at a question is Ctrl-C, and Ctrl-Z suspends there too. `again` shows the question again after `fg`."""
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("c-z")
    def _(event: "KeyPressEvent") -> None:
        _suspend(event)
        if again is not None:
            run_in_terminal(again)

    @keys.add("escape")
    def _(event: "KeyPressEvent") -> None:
        event.app.exit(exception=PromptStopped)

    return keys


def _suspend(event: "KeyPressEvent") -> None:
    event.app.suspend_to_background()
