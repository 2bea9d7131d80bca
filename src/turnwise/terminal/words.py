"""What a person types in a session: `/` commands, MCP servers' prompts, messages for the model in mid-turn; and what Tab
completes."""

import asyncio
import contextlib
import difflib
import os
import re
import shlex
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnwise.coding_agent.interruptible_run import InterruptibleRun
from turnwise.coding_agent.prompts import PromptPart
from turnwise.coding_agent.text import shortened, visible_line
from turnwise.errors import CallerError
from turnwise.rules.permission_facts import MODES
from turnwise.terminal.pager import PromptLeft, PromptPutAside, PromptStopped
from turnwise.terminal.screen import Screen
from turnwise.terminal.terminal import Terminal

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

    from turnwise.agent.mcp_servers import ServerToolset
    from turnwise.tools.mcp.offered_tools import OfferedPrompt

# How a command in a session differs from text for the model: it begins with `/` and a name, or it is one of a few words.


COMMANDS = {
    "/help": "show this",
    "/usage": "what the session has used: money, tokens, requests by purpose",
    "/undo": "take back the last turn's changes to files; again: the turn before",
    "/model": "show the model and others; `/model NAME` changes to that one",
    "/mode": "the modes (plan, ask, edits, sandbox); `/mode NAME` changes to that one",
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
SHELL = "!"
# What people type who know other programs, and what to do here.
ELSEWHERE = {
    "/resume": "leave, then `turnwise --continue` goes on with the last session here, `turnwise --session ID` with any",
    "/login": "leave, then `turnwise auth add` stores a key",
    "/logout": "leave, then `turnwise auth remove` removes a stored key",
    "/compact": "turnwise shortens the history by itself before it fills the model's window; `/new` begins without it",
    "/context": "while the model works, the line at the bottom says how much of its window is left, where that is known",
    "/diff": "`/undo` shows what the last turn changed, and asks before it takes anything back",
    "/rewind": "`/undo` takes back the last turn's changes to files",
    "/plan": "`/mode plan` changes nothing until you have the plan carried out; so does Shift-Tab",
    "/init": "write what the model should always know into AGENTS.md in this folder",
    "/memory": "write what the model should always know into AGENTS.md in this folder",
    "/mcp": "leave, then `turnwise mcp` lists, adds and tests MCP servers",
    "/config": "leave, then `turnwise doctor` says which files and settings hold",
    SHELL: "turnwise runs no commands for you: Ctrl-Z leads to your shell, and `fg` back. For the model, begin with a blank",
}
_NAMED = re.compile(r"/[a-z]+(?=\s|$)")


def command_of(line: str) -> tuple[str, str] | None:
    """The command's own name, and what follows it; None: the line is text for the model."""
    if line.startswith(SHELL):
        return SHELL, ""
    text = line.strip()
    name, _, rest = text.partition(" ")
    if name in OTHER_NAMES and (name.startswith("/") or not rest):
        return OTHER_NAMES[name], rest.strip()
    return (name, rest.strip()) if text.startswith("/") else None


def is_command_in_passing(line: str) -> bool:
    """Whether a line is a command while the model works. A path or a comment, which may be pasted then, is not."""
    text = line.strip()
    return "\n" not in text and (text in OTHER_NAMES or _NAMED.match(text) is not None)


def unknown_said(name: str) -> str:
    """The message for an unknown command."""
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    near = difflib.get_close_matches(name, [*COMMANDS, *[other for other in OTHER_NAMES if other[:1] == "/"]], n=1)
    hint = f"did you mean `{near[0]}`?" if near else "there are " + ", ".join(COMMANDS)
    return f"no command `{visible_line(name)[:40]}`; {hint}"


PROMPT = "» "


class PartsOf(Protocol):
    def __call__(self, typed: str, *, tell: Callable[[str], object]) -> Awaitable[Sequence[PromptPart]]: ...


# What arrow and function keys send, and every other control character: such keys type no word.
_NO_WORDS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?|[\x00-\x09\x0b-\x1f\x7f-\x9f]")


class TypedWords:
    """The first key opens a prompt, and the screen waits until it is closed. A line that comes as a whole is taken at once.
    `parts` adds the files that a line names. A line that `begins_turn` is kept for the next prompt. `stop` ends the turn."""

    def __init__(
        self,
        terminal: Terminal,
        *,
        run: InterruptibleRun,
        screen: Screen,
        parts: PartsOf,
        begins_turn: Callable[[str], bool],
        stop: Callable[[], object],
    ) -> None:
        self._terminal = terminal
        self._stop = stop
        self._run = run
        self._screen = screen
        self._parts = parts
        self._begins_turn = begins_turn
        self._begun = ""  # typed before its prompt was there
        self._heard: list[str] = []  # lines that wait to be sent, in order
        self._saying: asyncio.Task[None] | None = None
        self._unsent: list[str] = []
        self._typing: asyncio.Task[None] | None = None
        self._is_over = False
        self.commands: list[str] = []  # typed for the session: they wait for the end of the turn

    @contextlib.contextmanager
    def heeded(self) -> Generator[None]:
        with self._terminal.heeding(self._typed, keep=self._keep, draft=lambda: self._begun, stop=self._stop):
            try:
                yield
            finally:
                self._is_over = True

    async def ended(self) -> str:
        """The turn has ended. Returns the text that was typed for it but not used. Await this while still `heeded`."""
        await self._terminal.acted()
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
            else:  # pasted: all of it is for the model
                self._say(line)
        self._begun = rest
        self._open_prompt()

    def _keep(self, given: str) -> None:
        """Keep what was typed when a question came: it comes back at the next prompt, and Enter sends it."""
        self._begun += _NO_WORDS.sub("", given.replace("\r", "\n"))
        self._open_prompt()

    def _open_prompt(self) -> None:
        if self._begun.strip("\n") and not self._is_over and (self._typing is None or self._typing.done()):
            self._typing = asyncio.create_task(self._type(), name="word in mid-turn")

    async def _type(self) -> None:
        try:
            text = await self._line()
        except PromptStopped as stopped:
            self._begun = stopped.typed
            self._stop()
        except PromptLeft:
            return
        else:
            self._take(text)

    async def _line(self) -> str:
        """The typed line; several asks may come meanwhile. Raises PromptStopped, PromptLeft."""
        while True:
            async with self._terminal.taken(for_text=True):
                begun, self._begun = self._begun.strip("\n"), ""
                try:
                    return await self._terminal.line(lambda: PROMPT, default=begun, gives_way=True)
                except PromptPutAside as aside:
                    self._begun = aside.typed + self._begun

    def _take(self, line: str) -> None:
        """A line that somebody typed: text for the model, or a command, which waits for the end of the turn."""
        if self._begins_turn(line):
            self._unsent.append(line)
            self._screen.tell(
                f"`{visible_line(line.strip())}` begins a turn: it waits at the prompt for the end of this one"
            )
            return
        if not is_command_in_passing(line):
            self._say(line)
            return
        command, _ = command_of(line) or ("", "")
        if command == "/mode":  # it may be pasted: a person sends it
            self._unsent.append(line)
            self._screen.tell("the mode waits at the prompt for the end of this turn; Shift-Tab changes it now")
            return
        self.commands.append(line)
        if command == "/quit":
            self._stop()
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


# Prompts of MCP servers as commands of a session: `/server:prompt name=value`.


SUMMARY = 80
_COMMAND = re.compile(r"/(?P<server>[A-Za-z][A-Za-z0-9_-]*):(?P<prompt>\S+)\s*(?P<rest>.*)", re.DOTALL)


def prompt_lines(servers: "Sequence[ServerToolset]") -> Iterator[str]:
    """One line for each prompt: how to type it, and its purpose."""
    for server in servers:
        listing = server.listing
        for one in () if listing is None else listing.prompts:
            arguments = "".join([f" {name}=..." for name in one.arguments])
            yield f"  /{server.name}:{one.own_name}{arguments}  {shortened(one.description, limit=SUMMARY)}"


def prompt_names(servers: "Sequence[ServerToolset]") -> dict[str, str]:
    """The commands, each with its purpose, as far as the servers have told."""
    named: dict[str, str] = {}
    for server in servers:
        for one in () if server.listing is None else server.listing.prompts:
            named[f"/{server.name}:{one.own_name}"] = shortened(one.description, limit=SUMMARY)
    return named


def is_prompt(line: str, *, servers: "Sequence[ServerToolset]") -> bool:
    """Whether the line names a prompt of one of the servers, valid or not."""
    found = _COMMAND.fullmatch(line.strip())
    return found is not None and any(one.name == found["server"] for one in servers)


async def filled_prompt(line: str, *, servers: "Sequence[ServerToolset]") -> str | None:
    """The text of the prompt that the line names; None if it names none. Raises CallerError for an unknown prompt or a missing
    argument, and ToolFault if the server fails."""
    found = _COMMAND.fullmatch(line.strip())
    server = None if found is None else next((one for one in servers if one.name == found["server"]), None)
    if found is None or server is None:
        return None
    listing = server.listing
    prompts = {one.own_name: one for one in (() if listing is None else listing.prompts)}
    prompt = prompts.get(found["prompt"])
    if prompt is None:
        there = ", ".join([f"`/{server.name}:{name}`" for name in prompts]) or "none"
        raise CallerError(f"`{server.name}` has no prompt `{found['prompt']}`; there are {there}")
    return await server.prompt(prompt.own_name, _arguments(found["rest"], prompt=prompt))


def _arguments(text: str, *, prompt: "OfferedPrompt") -> dict[str, str]:
    """The arguments: `branch=main depth="two words"`. For a prompt with one argument, all of the text."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if len(prompt.arguments) == 1 and words and not words[0].startswith(f"{prompt.arguments[0]}="):
        return {prompt.arguments[0]: text}
    pairs = [word.partition("=") for word in words if "=" in word]
    given = {name: value for name, _, value in pairs}
    strange = [name for name in given if name not in prompt.arguments] or [word for word in words if "=" not in word]
    missing = [name for name in prompt.required if name not in given]
    if strange or missing:
        why = f"`{strange[0]}` is none of its arguments" if strange else f"`{missing[0]}` is missing"
        wanted = " ".join([f"{name}=..." for name in prompt.arguments]) or "nothing more"
        raise CallerError(f"`{prompt.own_name}`: {why}; type {wanted}")
    return given


# What Tab completes in a session: `/` commands at the beginning of a line, models after `/model`, and paths after `@`. At the
# first start: models.


MAX_SHOWN = 200
_MENTION = re.compile(r"""(?<![\w@./\\-])@((?:\\.|[^\s"'`,;()\[\]{}<>|\\])*)$""")
_MODEL = re.compile(r"/model +(\S*)")
_MODE = re.compile(r"/mode +([a-z]*)")
_BLANKS = re.compile(r"""([\s"'`,;()\[\]{}<>|\\])""")


class Models(Protocol):
    """The models of the session: `ask` asks the current provider, then `begun` gives the names that begin so."""

    async def ask(self) -> None: ...

    def begun(self, begun: str) -> Iterable[str]: ...


def endings(
    line: str,
    *,
    commands: Collection[str],
    folder: Path,
    others: Collection[str] = (),
    models: Callable[[str], Iterable[str]] = lambda _: (),
) -> list[tuple[str, int]]:
    """The possible replacements of the end of `line`, and how many of its characters they replace. `others` are other names of
    `commands`, for people who know only those."""
    if model := _MODEL.fullmatch(line):
        return [(name, len(model[1])) for name in list(models(model[1]))[:MAX_SHOWN]]
    if mode := _MODE.fullmatch(line):
        return [(name, len(mode[1])) for name in MODES if name.startswith(mode[1])]
    if line.startswith("/") and " " not in line:
        found = [name for name in commands if name.startswith(line)]
        return [(name, len(line)) for name in found or [other for other in others if other.startswith(line)]]
    mention = _MENTION.search(line)
    return [] if mention is None else [(name, len(mention[1])) for name in _paths(mention[1], folder=folder)]


def _paths(begun: str, *, folder: Path) -> Iterator[str]:
    """Names in the folder that `begun` leads to, in the form to type; hidden ones if a dot was typed."""
    above, _, name = re.sub(r"\\(.)", r"\1", begun).rpartition("/")
    try:
        with os.scandir(folder / Path(above).expanduser() if above or not begun.startswith("/") else "/") as entries:
            found = sorted(
                [
                    f"{entry.name}/" if entry.is_dir() else entry.name
                    for entry in entries
                    if entry.name.startswith(name) and (name or not entry.name.startswith("."))
                ]
            )
    except (OSError, ValueError, RuntimeError):
        return
    head = f"{above}/" if above or begun.startswith("/") else ""
    for path in found[:MAX_SHOWN]:
        if path.isprintable():
            yield _BLANKS.sub(r"\\\1", head + path)


def completer(
    *,
    commands: Mapping[str, str],
    others: Mapping[str, str],
    folder: Path,
    models: Models,
    prompts: Callable[[], Mapping[str, str]] = dict,
) -> "Completer":
    """A completer of `commands`, each with its purpose, and of the `prompts` that MCP servers offer now. `others` says which
    command another name stands for."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Typed(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            line = document.current_line_before_cursor
            known = {**prompts(), **commands}
            for text, replaced in endings(line, commands=known, others=others, folder=folder, models=models.begun):
                meaning = visible_line(known.get(others.get(text, text), ""))
                yield Completion(text, start_position=-replaced, display=visible_line(text), display_meta=meaning)

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion]:
            if complete_event.completion_requested and _MODEL.fullmatch(document.current_line_before_cursor):
                await models.ask()
            for completion in self.get_completions(document, complete_event):
                yield completion

    return Typed()


def model_completer(begun: Callable[[str], Iterable[str]]) -> "Completer":
    """A completer for a model alone: `begun` gives the names that begin so."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class TypedModel(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            line = document.text_before_cursor
            for name in [] if " " in line else list(begun(line))[:MAX_SHOWN]:
                yield Completion(name, start_position=-len(line), display=visible_line(name))

    return TypedModel()
