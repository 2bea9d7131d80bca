"""What `turnwise` does at a terminal: prompt after prompt, turn after turn."""

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from turnwise._version import __version__
from turnwise.agent.formatting import cost_said, many
from turnwise.agent.resume_lookup import is_left, read_session
from turnwise.agent.run_setup import RunOptions
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.threads import load_beside, run_to_end
from turnwise.coding_agent.asked_calls import dropped_line, is_attended, pending_of
from turnwise.coding_agent.choice import NoModel
from turnwise.coding_agent.interruptible_run import InterruptibleRun, typed_parts
from turnwise.coding_agent.last_exchange import SessionSpent, exchange_lines, last_exchange, when_said
from turnwise.coding_agent.left_turns import find_left, furnish_left, left_line
from turnwise.coding_agent.model_names import Doubts, ModelsAtHand, Offers, another_model, choice_of
from turnwise.coding_agent.modes import CARRY_OUT, TABLE, mode_lines, read_mode
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.permissions import rule_said
from turnwise.coding_agent.plan import last_plan, plan_rows
from turnwise.coding_agent.prompts import CliPrompt, prompt_of
from turnwise.coding_agent.run_events import FailedModel
from turnwise.coding_agent.run_servers import open_servers, servers_of_run
from turnwise.coding_agent.text import clean_row, shortened, visible_line
from turnwise.coding_agent.undo_changes import (
    TurnBack,
    find_turn_back,
    is_of_diff,
    lines_of,
    question_of,
    results_of,
    take_back,
)
from turnwise.coding_agent.workplace import FaceTerms, Workplace, find_session, furnish, session_key, with_whole_id
from turnwise.errors import CallerError, ToolFault
from turnwise.journal.journal import Journal, SessionRow, journal_path
from turnwise.rules.permissions import PermissionRule
from turnwise.terminal.attention import Attention
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import USAGE, complain, write_json
from turnwise.terminal.keys import Actions, keys_said
from turnwise.terminal.pager import PAUSE_S, PromptLeft, PromptStopped, cancelling
from turnwise.terminal.rows import say
from turnwise.terminal.screen import Screen
from turnwise.terminal.single_run import Ran, TurnUnderFace, cannot_go_on, show_end
from turnwise.terminal.terminal import Terminal, confirm_at_terminal
from turnwise.terminal.words import (
    COMMANDS,
    OTHER_NAMES,
    TypedWords,
    command_of,
    completer,
    filled_prompt,
    is_prompt,
    prompt_lines,
    prompt_names,
    unknown_said,
)
from turnwise.vocab import text_of
from turnwise.vocab.file_names import shown_name

# What `turnwise undo` does: it shows the changes, asks, and undoes them.


NOT_ALL = 3
NEEDS_YES = "nothing was taken back, as nobody can be asked here: add --yes"


def undo(session: str | None, *, folder: Path, yes: bool, as_json: bool) -> int:
    """Undo the last changes; return the exit code. Raises CallerError, and ToolFault if the disk refuses; then nothing has
    changed."""
    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        found = find_session(
            journal,
            folder=folder,
            go_on=session is None,
            session=session and journal.find_session_by_part(session).row.id,
        )
        assert found is not None, "one of both was wanted"
        back = find_turn_back(journal, found, folder=folder, env=os.environ, now_s=clock.now())
    is_asked = not yes and not back.is_done
    if not as_json or is_asked:
        for line in lines_of(back, now_s=clock.now()):
            say(line, as_it_is=is_of_diff(line))
    if is_asked and not is_attended():
        if not as_json:
            raise CallerError(NEEDS_YES)
        complain(NEEDS_YES)
        _write_json(back, happened=False, error=NEEDS_YES, exit_code=USAGE)
        return USAGE
    if is_asked and not run_to_end(is_confirmed(Terminal(), back, now_s=clock.now())):
        say("nothing was taken back")
        if as_json:
            _write_json(back, happened=False, exit_code=CANCELLED)
        return CANCELLED
    take_back(back)
    if as_json:
        _write_json(back, happened=True)
    else:
        for line in results_of(back):
            say(line, stream=sys.stdout)
    return NOT_ALL if back.kept else 0


async def is_confirmed(terminal: Terminal, back: TurnBack, *, now_s: float) -> bool:
    """Whether the person agrees to everything that would happen, after seeing it. The question stands below the short lines."""
    shown, whole = lines_of(back, now_s=now_s), lines_of(back, now_s=now_s, whole=True)
    return await terminal.says_yes(lambda: question_of(back), shown=shown, whole=whole)


def _write_json(back: TurnBack, *, happened: bool, **more: object) -> None:
    files = [
        {
            "path": _name(file.path),
            "outcome": file.outcome,
            "why": file.why,
            "saved": None if file.saved is None else _name(file.saved),
        }
        for file in back.undoing.files
    ]
    told: dict[str, object] = {
        "session": back.session.row.id,
        "turn": back.turn.id,
        "began": back.turn.created,
        "prompt": back.prompt,
        "commands": back.commands,
        "taken_back": happened,
        "files": files,
        **more,
    }
    write_json(told)


def _name(path: Path) -> str:
    """The path as text. Bytes that are not UTF-8 are written as `\\udcff`: JSON cannot carry them, and another character would be
    another name."""
    return str(path).encode("utf-8", "backslashreplace").decode()


PROMPT = "> "
CARRIES_OUT = frozenset({"c", "carry out"})
SHOWN_SESSIONS = 10

# What the first turn needs besides, loaded as soon as the first prompt stands there: a third of a second.
NEEDED = ("turnwise.endpoints.aiohttp_transport", "turnwise.terminal.live_answer")
LOADS_AFTER_S = 0.1

LEAVES_SAID = "Ctrl-C again or Ctrl-D leaves"
KEYS = """`/cost` is `/usage`, `/clear` is `/new`, `?` is `/help`.
Enter sends; Esc-Enter, or a backslash at the end of a line, makes a new line.
Tab completes `/` commands and `@file`, which puts the file in.
What you type while the model works is given to it before its next request; a
command waits for the end of the turn, and `exit` ends the turn.
Ctrl-C ends the turn with what is there; once more before it has ended ends the
program. At the prompt it clears the line, which Up brings back; twice on an
empty line, it leaves.
`turnwise --continue` goes on."""


WITHOUT = 'give the prompt to `turnwise -p "..."` instead, which prints the answer and ends'


def converse(given: Given, *, words: Sequence[str] = ()) -> None:
    """Run one person's session until they leave; `words` are the prompt that begins it. Raises CallerError."""
    prompt = prompt_of(words) or ""
    if not is_attended():
        raise CallerError(f"a session needs a terminal: {WITHOUT}")
    if not sys.stdout.isatty():
        raise CallerError(f"a session needs a terminal for its answers too: {WITHOUT}")
    clock = SystemClock()
    path = journal_path(os.environ)
    with Journal(path, clock=clock) as journal:
        given = with_whole_id(given, journal=journal)
        try:
            chat = Chat(given, journal=journal, clock=clock, history=path.parent / "prompts")
        except NoModel:
            from turnwise.terminal.first_start import first_choice

            given = first_choice(given, asks=True)
            chat = Chat(given, journal=journal, clock=clock, history=path.parent / "prompts")
        run_to_end(chat.run(prompt))


class Chat:
    """One person's session: the folder it works in, and what has been done and spent in it."""

    def __init__(self, given: Given, *, journal: Journal, clock: Clock, history: Path) -> None:
        self._given = given
        self._journal = journal
        self._clock = clock
        self._screen = Screen(plain=given["plain"], clock=clock, opens="Ctrl-O")
        self._actions: Actions = {"open": self.open_folded, "mode": self.next_mode}
        self._terminal = Terminal(
            screen=self._screen,
            history=history,
            completer=lambda: completer(
                commands=COMMANDS,
                others=OTHER_NAMES,
                folder=self._place.folder,
                models=ModelsAtHand(self._offers, choice=lambda: self._place.choice),
                prompts=lambda: prompt_names(self._servers.toolsets),
            ),
            completed=len(COMMANDS),
            actions=self._actions,
        )
        self._offers = Offers()
        self._doubts = Doubts()
        self._spent = SessionSpent()
        self._leaves = False
        self._servers = servers_of_run(
            given,
            asks=confirm_at_terminal,
            clock=clock,
            session_key=lambda: session_key(given, journal=journal),
            one_turn=False,
        )
        self._place = furnish(given, journal=journal, clock=clock, attended=True, servers=self._servers)
        self._policy = self._place.policy
        self._mode = self._place.mode
        self._mode.tell = self._screen.tell
        self._screen.mode = lambda: self._mode.said
        self._has_plan = False
        before = self._place.before
        self._screen.plan = None if before is None else last_plan(read_session(self._journal, before).messages)
        self._session = "" if before is None else before.row.id
        self._asks = () if before is None or is_left(before) else pending_of(journal, before).asks

    async def run(self, prompt: str = "") -> None:
        """Run until the person leaves; `prompt` is as if they had typed it first. Raises errors after which the session cannot
        continue."""
        self._terminal.attention = attention = Attention(
            self._place.folder,
            notify=self._place.settings.notify,
            plain=self._given["plain"],
            clock=self._clock,
        )
        self._greet()
        if self._servers.toolsets:
            self._screen.tell(self._servers.waiting_line)
        attention.begin()
        asyncio.get_running_loop().call_later(0 if prompt else LOADS_AFTER_S, load_beside, *NEEDED)
        try:
            async with open_servers(self._servers, clock=self._clock):
                await self._run(prompt)
        finally:
            attention.end()

    async def _run(self, prompt: str) -> None:
        typed = await self._resume_left()
        if self._asks and not self._leaves:
            typed = await self._turn(None)
        if prompt and not self._leaves:
            self._terminal.say("\n".join([f"{PROMPT}{visible_line(line)}" for line in prompt.splitlines()]))
        while not self._leaves and (text := prompt or await self._next(typed)) is not None:
            typed, prompt = typed if prompt else "", ""
            if (filled := await self._server_prompt(text)) is not None:
                typed = await self._turn(filled) if filled else ""
            elif command_of(text) is not None:
                await self._obey(text)
            elif text.strip():
                typed = await self._turn(text)
        if self._session:
            self._terminal.say(f"session {self._session[-8:]}; `turnwise --continue` goes on with it")
            self._say_how_to_keep()

    def _say_how_to_keep(self) -> None:
        """Say it at the end of the very first session, if the model has said anything."""
        if self._spent.usage.output_tokens and len(self._journal.sessions(limit=2)) == 1:
            from turnwise.terminal.first_start import keeping_line

            if line := keeping_line(self._place.choice, settings=self._place.settings, env=os.environ):
                self._terminal.say(clean_row(line))

    async def _next(self, typed: str) -> str | None:
        """The next typed text; None: the person leaves, or the program must end."""
        is_told = False
        with cancelling():
            while True:
                try:
                    return await self._terminal.text(
                        self._prompt, default=typed, above=lambda: plan_rows(self._screen.plan), below=self._figures
                    )
                except PromptStopped as stopped:  # Ctrl-C clears the line
                    typed, is_empty = "", not stopped.typed.strip()
                    if is_empty and is_told:
                        return None
                    if is_empty:
                        self._terminal.say(LEAVES_SAID)
                    is_told = is_empty
                except (PromptLeft, asyncio.CancelledError):
                    return None

    async def open_folded(self) -> None:
        """Open what the screen has shown in part, the newest first."""
        await self._terminal.open(self._screen.folds.newest_first)

    def _figures(self) -> str:
        """The session's figures, for the line below the prompt."""
        cost = f"cost {cost_said(self._spent.cost)}" if self._spent.cost.requests else ""
        model = visible_line(self._place.choice.model)
        return " · ".join([one for one in (self._screen.mode(), model, self._screen.window_said, cost) if one])

    def _prompt(self) -> str:
        return PROMPT if self._mode.chosen == "ask" else f"{self._mode.chosen}{PROMPT}"

    async def next_mode(self) -> None:
        """What Shift-Tab does."""
        self._mode.next()
        self._say_mode()

    def _say_mode(self) -> None:
        self._terminal.say(f"{self._mode.said}: {TABLE[self._mode.chosen].meaning}")

    def _settle_mode(self) -> None:
        """What was chosen since the last turn holds for the next one."""
        self._mode.check()
        if self._mode.chosen != self._place.policy.mode:
            asks = self._asks
            self._move(self._given, session=self._session)
            self._asks = asks

    async def _turn(self, text: str | None) -> str:
        """Run one turn, then carry out the commands that were typed meanwhile. Returns typed text that was not used. Without a
        text, the turn is about the calls that wait."""
        self._settle_mode()
        options: RunOptions = {"session": self._session, "drop_left": True} if self._session else {}
        asks, self._asks = self._asks if text is None else (), ()
        if text is not None and self._session:
            # the typed text continues without answers to the waiting calls, as after Ctrl-C at an ask
            with contextlib.suppress(CallerError):  # the turn itself says so
                if line := dropped_line(pending_of(self._journal, self._journal.find_session(self._session))):
                    self._screen.tell(line)
        run = InterruptibleRun()
        turn = TurnUnderFace(
            self._place, face=self._screen, terminal=self._terminal, policy=self._policy, later=False, run=run
        )
        ending = turn.to_end(None if text is None else CliPrompt(typed=text), options=options, asks=asks)
        left = await self._to_end(ending, run=run, place=self._place, stop=turn.stop, otherwise=text or "")
        has_plan, self._has_plan = self._has_plan and self._mode.chosen == "plan" and not self._leaves, False
        return left if left or not has_plan else await self._offered()

    async def _offered(self) -> str:
        """Ask whether the plan is carried out. What the person says in place of yes is the beginning of the next prompt."""
        question = f"c carries the plan out in {self._mode.before_plan} mode; words change it; Enter keeps it: "
        try:
            said = await self._terminal.line(
                lambda: question, fresh=True, takes_paste=False, letters=lambda: ("c",), alone_s=PAUSE_S
            )
        except (PromptStopped, PromptLeft):
            return ""
        if said.strip().lower() not in CARRIES_OUT:
            return said.strip()
        self._mode.carry_out()
        self._say_mode()
        return await self._turn(CARRY_OUT)

    async def _resume_left(self) -> str:
        """Resume the session's last turn, if it was left. Returns typed text that was not used."""
        before = self._place.before
        if before is None or not is_left(before):
            return ""
        try:
            found = find_left(self._journal, before)
            place = furnish_left(
                found,
                given=self._given,
                journal=self._journal,
                clock=self._clock,
                servers=self._servers,
                mode=self._mode,
            )
        except CallerError as error:
            self._screen.tell(cannot_go_on(error))
            self._asks = pending_of(self._journal, before).asks
            return ""
        self._screen.tell(left_line(found, journal=self._journal, now_s=self._clock.now()))
        run = InterruptibleRun()
        turn = TurnUnderFace(place, face=self._screen, terminal=self._terminal, later=False, run=run)
        ending = turn.resumed_to_end(found)
        return await self._to_end(ending, run=run, place=place, stop=turn.stop, resumed=before.row.id)

    async def _to_end(
        self,
        turn: Coroutine[None, None, Ran],
        *,
        run: InterruptibleRun,
        place: Workplace,
        stop: Callable[[], object],
        otherwise: str = "",
        resumed: str = "",
    ) -> str:
        """Show the turn, then carry out the commands. `resumed` is the session of a resumed turn: its rules and model were only
        for that turn."""
        words = TypedWords(
            self._terminal,
            run=run,
            screen=self._screen,
            parts=functools.partial(typed_parts, place=place, policy=self._policy),
            begins_turn=functools.partial(is_prompt, servers=self._servers.toolsets),
            stop=stop,
        )
        left = await self._shown(turn, words=words, place=place, otherwise=otherwise)
        if resumed:
            self._move(self._given, session=resumed)
            self._asks = pending_of(self._journal, self._journal.find_session(resumed)).asks
        for line in words.commands:
            await self._obey(line)
        return left

    async def _shown(
        self, turn: Coroutine[None, None, Ran], *, words: TypedWords, place: Workplace, otherwise: str
    ) -> str:
        began, left = self._clock.monotonic(), ""
        try:
            with words.heeded():
                try:
                    ran = await turn
                finally:
                    left = await words.ended()
                    self._screen.close()
        except CallerError as error:
            complain(str(error))
            return left or otherwise
        self._terminal.call("is done")
        self._policy, self._session = ran.policy, ran.result.session
        self._spent.add(ran.result)
        self._has_plan = place.policy.mode == "plan" and ran.result.complete
        asked = FailedModel(choice=place.choice, in_session=True)
        show_end(ran.result, seconds=self._clock.monotonic() - began, misfit=False, asked=asked)
        return "\n".join([*[text_of(message) for message in ran.result.unread], *([left] if left else [])])

    def _greet(self) -> None:
        place = self._place
        self._terminal.say(
            f"turnwise {__version__}, {visible_line(place.choice.model)} in {visible_line(str(place.folder))}; /help"
        )
        for line in place.notes:
            self._screen.tell(line)
        exchange = None if place.before is None else last_exchange(self._journal, place.before)
        if exchange is not None:
            for line in exchange_lines(exchange, now_s=self._clock.now()):
                self._screen.tell(line)

    async def _server_prompt(self, text: str) -> str | None:
        """The text of an MCP server's prompt (`/git:review branch=main`). Empty if it failed; None if this is not a prompt."""
        try:
            return await filled_prompt(text, servers=self._servers.toolsets)
        except (CallerError, ToolFault) as error:
            complain(str(error))
            return ""

    async def _obey(self, line: str) -> None:
        commands: dict[str, Callable[[str], Coroutine[None, None, None] | None]] = {
            "/help": self._help,
            "/usage": self._usage,
            "/undo": self._undo,
            "/model": self._model,
            "/mode": self._change_mode,
            "/new": self._new,
            "/sessions": self._sessions,
            "/permissions": self._permissions,
            "/quit": self._quit,
        }
        name, rest = command_of(line) or ("", "")
        if name not in commands:
            self._terminal.say(unknown_said(name))
            return
        try:
            if (asking := commands[name](rest)) is not None:
                await asking
        except (CallerError, ToolFault) as error:
            complain(str(error))

    def _quit(self, _: str) -> None:
        self._leaves = True

    def _help(self, _: str) -> None:
        for name, summary in COMMANDS.items():
            self._terminal.say(f"  {name:<13} {summary}")
        for line in prompt_lines(self._servers.toolsets):
            self._terminal.say(clean_row(line))
        self._terminal.say(f"{' '.join(KEYS.split())} {keys_said(self._actions)}")

    def _usage(self, _: str) -> None:
        for line in self._spent.lines():
            self._terminal.say(line)
        before = self._place.before
        if before is not None and before.row.id == self._session:
            self._terminal.say(
                f"since this start; of the whole session: `turnwise usage --session {self._session[-8:]}`"
            )

    async def _undo(self, rest: str) -> None:
        if rest:
            raise CallerError("`/undo` takes back the last turn, and again the turn before; it takes no number or name")
        if not self._session:
            raise CallerError("nothing to take back: this session has had no turn yet")
        session = self._journal.find_session(self._session)
        back = find_turn_back(
            self._journal, session, folder=self._place.folder, env=os.environ, now_s=self._clock.now()
        )
        for line in lines_of(back, now_s=self._clock.now()):
            self._terminal.say(line, as_it_is=is_of_diff(line))
        if not back.is_done and not await is_confirmed(self._terminal, back, now_s=self._clock.now()):
            self._terminal.say("nothing was taken back")
            return
        take_back(back)
        for line in results_of(back):
            self._terminal.say(line)

    async def _model(self, name: str) -> None:
        choice = self._place.choice
        if not name:
            await self._offers.ask(choice, again=True)
            for line in self._offers.lines(choice):
                self._terminal.say(clean_row(line))
            return
        if ":" in name:  # the server's own names may contain one
            await self._offers.ask(choice)
        again = "turnwise --continue" if self._session else "turnwise"
        offered = self._offers.names(choice)
        given = another_model(name, given=self._given, choice=choice, offered=offered, again=again)
        meant = choice_of(given, at_hand=choice, env=os.environ, settings=self._place.settings, again=again)
        await self._offers.ask(meant)
        self._doubts.raise_once(
            meant.model, doubt=self._offers.doubt(meant), more="; `/model` alone shows what is offered here"
        )
        self._move(given, session=self._session)
        now = self._place.choice
        self._terminal.say(clean_row(f"going on with {now.model}{self._offers.unchecked(now)}"))

    def _change_mode(self, name: str) -> None:
        if name:
            self._mode.choose(read_mode(name))
            self._say_mode()
        else:
            for line in mode_lines(self._mode):
                self._terminal.say(line)

    def _new(self, _: str) -> None:
        choice = self._place.choice
        given: Given = {**self._given, "model": choice.model}
        given["base_url"], given["api_key_env"] = choice.base_url, choice.api_key_env
        self._move(given, session="")
        self._screen.plan = None
        self._terminal.say("a new session")

    def _move(self, given: Given, *, session: str) -> None:
        given = {**given, "go_on": False, "session": session or None}
        self._place = furnish(
            given,
            journal=self._journal,
            clock=self._clock,
            attended=True,
            servers=self._servers,
            face=FaceTerms(mode=self._mode),
        )
        self._given, self._policy, self._session, self._asks = given, self._place.policy, session, ()

    def _sessions(self, _: str) -> None:
        here = shown_name(str(self._place.folder))
        rows = [row for row in self._journal.sessions(limit=200) if row.folder == here]
        for line in session_lines(rows[:SHOWN_SESSIONS], here=self._session, now_s=self._clock.now()):
            self._terminal.say(line)
        if not rows:
            self._terminal.say("no sessions of this folder yet")

    def _permissions(self, _: str) -> None:
        self._terminal.say(
            "Reading inside the folder is allowed; writing, commands and everything outside are asked about."
        )
        self._terminal.say(f"{self._mode.said}: {TABLE[self._mode.now()].meaning}")
        for rule in self._policy.rules:
            self._terminal.say(f"  {clean_row(_rule_line(rule, workspace=self._policy.workspace))}")
        if self._policy.rules:
            self._terminal.say("The last rule that fits a call decides.")


def session_lines(rows: Sequence[SessionRow], *, here: str, now_s: float) -> list[str]:
    """The output of `/sessions`; `here` is the current session."""
    times = [when_said(row.updated, now_s=now_s) for row in rows]
    widest = max(map(len, times), default=0)
    return [
        f"  {row.id[-8:]}  {many(row.turns, 'turn'):<9} {when:<{widest}}  {shortened(row.title, limit=60)}"
        f"{' (this one)' if row.id == here else ''}"
        for row, when in zip(rows, times, strict=True)
    ]


def _rule_line(rule: PermissionRule, *, workspace: str) -> str:
    effect = f" that can {rule.effect}" if rule.effect else ""
    return f"{rule.verdict} {rule_said(rule, workspace=workspace)}{effect} [{rule.where or rule.source}]"
