"""Words in mid-turn: what somebody types while the model works is given to it before its next request."""

import asyncio
import contextlib
import difflib
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Protocol

from turnwise.coding_agent.interruptible_run import InterruptibleRun
from turnwise.coding_agent.mentions import PromptPart
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.terminal.prompt_ends import PromptLeft, PromptPutAside, PromptStopped
from turnwise.terminal.screen import Screen
from turnwise.terminal.terminal import Terminal

# What is a command in a session, and not a word for the model: `/` and a name, and the few words that mean one of them.


COMMANDS = {
    "/help": "show this",
    "/usage": "what the session has used: money, tokens, requests by purpose",
    "/undo": "take back the last turn's changes to files; again: the turn before",
    "/model": "show the model and others; `/model NAME` changes to that one",
    "/new": "begin a new session",
    "/sessions": "the last sessions of this folder",
    "/permissions": "the rules that hold, in their order",
    "/quit": "leave; so do `exit`, `quit` and Ctrl-D",
}
OTHER_NAMES = {
    "?": "/help",
    "help": "/help",
    "/cost": "/usage",
    "/clear": "/new",
    "/exit": "/quit",
    "exit": "/quit",
    "quit": "/quit",
}
RESUME = "/resume"
HOW_TO_RESUME = "leave, then `turnwise --continue` goes on with the last session here, `turnwise --session ID` with any"
_NAMED = re.compile(r"/[a-z]+(?=\s|$)")


def command_of(line: str) -> tuple[str, str] | None:
    """The command's own name, and what follows it; None: the line is words for the model."""
    text = line.strip()
    name, _, rest = text.partition(" ")
    if name in OTHER_NAMES and (name.startswith("/") or not rest):
        return OTHER_NAMES[name], rest.strip()
    return (name, rest.strip()) if text.startswith("/") else None


def is_command_in_passing(line: str) -> bool:
    """Whether a line is a command while the model works: a path or a comment, as it may be pasted then, is none."""
    text = line.strip()
    return "\n" not in text and (text in OTHER_NAMES or _NAMED.match(text) is not None)


def unknown_said(name: str) -> str:
    """What is said to a command that there is not."""
    if name == RESUME:
        return HOW_TO_RESUME
    near = difflib.get_close_matches(name, [*COMMANDS, *[other for other in OTHER_NAMES if other[:1] == "/"]], n=1)
    hint = f"did you mean `{near[0]}`?" if near else "there are " + ", ".join(COMMANDS)
    return f"no command `{visible_line(name)[:40]}`; {hint}"


PROMPT = "» "


class PartsOf(Protocol):
    def __call__(self, typed: str, *, tell: Callable[[str], object]) -> Awaitable[Sequence[PromptPart]]: ...


# What arrow and function keys send, and every other control character: nobody has typed a word by them.
_NO_WORDS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?|[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class TypedWords:
    """The first key opens a prompt, and the screen waits until it is closed. A line that comes as a whole is taken at once.
    `parts` puts in the files that a line names. A line that `begins_turn` is kept for the prompt after this one."""

    def __init__(
        self,
        terminal: Terminal,
        *,
        run: InterruptibleRun,
        screen: Screen,
        parts: PartsOf,
        begins_turn: Callable[[str], bool],
    ) -> None:
        self._terminal = terminal
        self._run = run
        self._screen = screen
        self._parts = parts
        self._begins_turn = begins_turn
        self._begun = ""  # typed before its prompt was there
        self._heard: list[str] = []  # lines that are not said yet, in order
        self._saying: asyncio.Task[None] | None = None
        self._unsent: list[str] = []
        self._typing: asyncio.Task[None] | None = None
        self._is_over = False
        self.commands: list[str] = []  # typed for the session: they wait for the end of the turn

    @contextlib.contextmanager
    def heeded(self) -> Generator[None]:
        with self._terminal.heeding(self._typed, keep=self._keep):
            try:
                yield
            finally:
                self._is_over = True

    async def ended(self) -> str:
        """The turn has ended: what was typed for it and not taken up. To be awaited while still `heeded`."""
        if self._saying is not None and not self._saying.done():
            self._saying.cancel()
            await asyncio.wait([self._saying])
        self._unsent += self._heard
        if self._typing is not None and not self._typing.done():
            self._unsent.append(self._terminal.typed or self._begun)
            self._typing.cancel()
            await asyncio.wait([self._typing])
        elif self._begun:
            self._unsent.append(self._begun)
        return "\n".join(self._unsent)

    def _typed(self, given: str) -> None:
        *lines, rest = (self._begun + _NO_WORDS.sub("", given.replace("\r", "\n"))).split("\n")
        said = [line for line in lines if line.strip()]
        for line in said:
            if len(said) == 1:
                self._take(line)
            else:  # pasted: all of it is meant for the model
                self._say(line)
        self._begun = rest
        self._open_prompt()

    def _keep(self, given: str) -> None:
        """It was typed when something was asked: it stands at the prompt after that, and is sent with Enter."""
        self._begun += _NO_WORDS.sub("", given.replace("\r", "\n"))
        self._open_prompt()

    def _open_prompt(self) -> None:
        if self._begun.strip("\n") and not self._is_over and (self._typing is None or self._typing.done()):
            self._typing = asyncio.create_task(self._type(), name="word in mid-turn")

    async def _type(self) -> None:
        try:
            text = await self._line()
        except PromptStopped:
            self._run.interrupt()
        except PromptLeft:
            return
        else:
            self._take(text)

    async def _line(self) -> str:
        """What is typed, over as many asks as come meanwhile. Raises PromptStopped, PromptLeft."""
        while True:
            async with self._terminal.taken(for_text=True):
                begun, self._begun = self._begun.strip("\n"), ""
                try:
                    return await self._terminal.line(lambda: PROMPT, default=begun, gives_way=True)
                except PromptPutAside as aside:
                    self._begun = aside.typed + self._begun

    def _take(self, line: str) -> None:
        """A line that somebody typed: words for the model, or a command, which waits for the end of the turn."""
        if self._begins_turn(line):
            self._unsent.append(line)
            self._screen.tell(
                f"`{visible_line(line.strip())}` begins a turn: it waits at the prompt for the end of this one"
            )
            return
        if not is_command_in_passing(line):
            self._say(line)
            return
        self.commands.append(line)
        command, _ = command_of(line) or ("", "")
        if command == "/quit":
            self._run.interrupt()
            self._screen.tell("leaving: the turn ends with what is there")
        else:
            self._screen.tell(f"`{visible_line(line.strip())}` waits for the end of the turn")

    def _say(self, line: str) -> None:
        if not line.strip():
            return
        self._heard.append(line)
        if self._saying is None or self._saying.done():
            self._saying = asyncio.create_task(self._say_heard(), name="say in mid-turn")

    async def _say_heard(self) -> None:
        while self._heard:
            line = self._heard[0]
            notes: list[str] = []
            parts = await self._parts(line, tell=notes.append)
            try:
                if self._run.say(parts):
                    notes.insert(0, f"{PROMPT}{line}")
                else:
                    self._unsent.append(line)
            except CallerError as error:
                notes.append(str(error))
            del self._heard[0]
            for note in notes:
                self._screen.tell(note)
