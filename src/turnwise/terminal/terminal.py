"""One person at one terminal: one prompt at a time; events meanwhile are shown after it."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnwise.base.clock import Clock, SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.shown_work import Fold
from turnwise.coding_agent.text import clean_row, has_colour
from turnwise.terminal.attention import Attention
from turnwise.terminal.keys import Actions, TurnKeys, question_keys, text_keys
from turnwise.terminal.pager import (
    OPENED_KEYS,
    Pages,
    PromptLeft,
    PromptPutAside,
    PromptStopped,
    Shelf,
    TypingPause,
    page,
    plain_lines,
    scrolls_away,
)
from turnwise.terminal.rows import columns_of, cut_row, fitted, say

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.output import Output
    from prompt_toolkit.styles import Style

    from turnwise.terminal.typed_keys import TypedKeys

TerminalAttributes = list[int | list[bytes | int]]  # of termios
YES_THEN = "after that y is taken"
KEPT_SAID = "(you are still typing: it goes to your text; pause, then answer)"
MAX_TYPED_BYTES = 64 * 1024  # of text that is typed at once while a turn runs


class Holdable(Protocol):
    """A face that can be silent for a while; `release` shows what it has held."""

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def tell(self, line: str) -> None: ...


class Terminal:
    """Standard input and standard error as one terminal. `screen` is silent while somebody is asked, or types."""

    def __init__(
        self,
        *,
        screen: Holdable | None = None,
        history: Path | None = None,
        completer: "Callable[[], Completer] | None" = None,
        completed: int = 0,
        actions: Actions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._screen = screen
        self._clock = SystemClock() if clock is None else clock
        self._keep: Callable[[str], object] | None = None
        self._draft: Callable[[], str] = str
        self._asks = 0  # asks that wait for the terminal
        self._history = history
        self._completer = completer
        self._completed = completed  # completions that are shown at once, if there is room
        self._around: tuple[str | Callable[[], str], Callable[[], Sequence[str]], Callable[[], str]] = ("", tuple, str)
        self._actions: Actions = {} if actions is None else actions
        self.attention: Attention | None = None
        self._cleared = ""  # the last line that Ctrl-C has cleared
        self._acting: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._input: TypedKeys | None = None
        self._output: Output | None = None
        self._main: PromptSession[str] | None = None
        self._begun: PromptSession[str] | None = None  # the prompt with a text that gives way to an ask
        self._keys: Callable[[bool], None] | None = None
        self._opened: asyncio.Future[None] | None = None  # the pager with texts that were folded
        self._pause = TypingPause(self._clock)

    @property
    def typed(self) -> str:
        """The text so far at the prompt that gives way."""
        return "" if self._begun is None else self._begun.default_buffer.text

    @contextlib.asynccontextmanager
    async def taken(self, *, for_text: bool = False) -> AsyncGenerator[None]:
        """Take the terminal for one purpose. An ask comes before a text: the prompt for a text gives way."""
        await (self._acquire_for_text() if for_text else self._acquire_for_ask())
        try:
            if self._screen is not None:
                self._screen.hold()
            if self._keys is not None:
                self._keys(False)
            try:
                yield
            finally:
                if self._keys is not None:
                    self._keys(True)
                if self._screen is not None:
                    self._screen.release()
        finally:
            self._turn.release()

    async def _acquire_for_ask(self) -> None:
        self._asks += 1
        try:
            self._give_way()
            await self._turn.acquire()
        finally:
            self._asks -= 1

    def _give_way(self) -> None:
        """An ask waits: the prompt for a text goes away, as soon as it is there, and so does an open text."""
        if self._asks and self._opened is not None:
            self._opened.cancel()
        if self._asks and self._begun is not None and self._begun.app.is_running and not self._begun.app.is_done:
            self._begun.app.erase_when_done = True
            self._begun.app.exit(exception=PromptPutAside(self.typed))

    async def _acquire_for_text(self) -> None:
        await self._turn.acquire()
        while self._asks:
            self._turn.release()
            await asyncio.sleep(0)
            await self._turn.acquire()

    def say(self, text: str = "", *, as_it_is: bool = False) -> None:
        say(text, as_it_is=as_it_is)

    def fitted(self, text: str) -> str:
        return fitted(text, columns=columns_of(sys.stderr))

    def tell(self, line: str) -> None:
        """Tell it as soon as nobody is asked any more: another ask may be on the screen."""
        if self._screen is None:
            self.say(line)
        else:
            self._screen.tell(line)

    async def line(
        self,
        message: Callable[[], str],
        *,
        default: str = "",
        ticks: bool = False,
        fresh: bool = False,
        takes_paste: bool = True,
        gives_way: bool = False,
        completer: "Completer | None" = None,
        is_long: bool = False,
        hides: Callable[[str], bool] | None = None,
        letters: Callable[[], Collection[str]] | None = None,
        alone_s: float | None = None,
        again: Callable[[], object] | None = None,
    ) -> str:
        """Read one line; `is_long`: several lines, as at the main prompt. `ticks`: the message is made again each second.
        `fresh`: keys from before the prompt do not count, nor keys that follow them without a pause, nor pasted text, unless it
        `takes_paste`. `gives_way`: the line is a draft, and an ask comes before it. `completer`: completes with Tab. `hides`:
        stars stand for a text for which it says yes. `letters` answer without Enter, each if it is all that was typed for
        `alone_s`; none does while `has_draft`. `again` shows what stands above the line, after `fg`. Raises PromptStopped,
        PromptLeft, PromptPutAside."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition

        input, output = self._ends()
        session: PromptSession[str] = PromptSession(
            lambda: f"{KEPT_SAID}\n" * input.are_kept + self._fitted_question(message()),
            input=input,
            output=output,
            completer=completer,
            multiline=is_long,
            complete_while_typing=False,
            key_bindings=text_keys(self._actions, say=self.say) if is_long else question_keys(again=again),
            refresh_interval=1.0 if ticks else 0,
            is_password=False if hides is None else Condition(lambda: hides(session.default_buffer.text)),
            interrupt_exception=PromptStopped,
            eof_exception=PromptLeft,
        )
        input.wants("draft" if gives_way else "answer" if takes_paste else "choice")
        if fresh:
            input.collect()
        elif not gives_way:
            self._forget_typed_ahead()
        if letters is not None:
            return await self._choice(session, letters=letters, alone_s=alone_s)
        if not gives_way:
            return await self._answer(session, default=default)
        self._begun = session
        try:
            text = await self._answer(session, default=default, pre_run=self._give_way)
        finally:
            self._begun = None
        self._pause.sent()
        return text

    async def _choice(
        self, session: "PromptSession[str]", *, letters: Callable[[], Collection[str]], alone_s: float | None
    ) -> str:
        from turnwise.terminal.typed_keys import ALONE_S, OneKey

        one_key = OneKey(
            lambda: () if self.has_draft else letters(),
            input=self._ends()[0],
            pause=self._pause,
            clock=self._clock,
            alone_s=ALONE_S if alone_s is None else alone_s,
        )
        session.default_buffer.on_text_changed += one_key.watch
        try:
            return await self._answer(session, default="", pre_run=one_key.stands)
        finally:
            one_key.forget()

    @property
    def has_draft(self) -> bool:
        """A half-typed text waits for the end of the question: a letter may have been meant for it, so it answers with Enter."""
        return bool(self._draft().strip())

    def _fitted_question(self, text: str) -> str:
        """The question in rows of whole words. The typed text comes after the blank at its end."""
        question = text.rstrip(" ")
        return self.fitted(question) + text[len(question) :]

    async def page(self, pages: Pages, *, question: Callable[[], str]) -> None:
        """Show the pages, with the question below them, until the person goes back to it. Raises PromptStopped."""
        input, output = self._ends()
        self._forget_typed_ahead()
        await page(Shelf([pages]), question=question, input=input, output=output, coloured=has_colour(sys.stderr))

    async def open(self, folds: Sequence[Fold]) -> None:
        """Show these texts in the pager, the first of them first, until the person leaves it. An ask ends it."""
        if not folds:
            return
        input, output = self._ends()
        use = input.use
        input.wants("text")
        shelf = Shelf(
            [Pages(fold.lines, coloured=True) for fold in folds], titles=[clean_row(fold.title) for fold in folds]
        )
        self._opened = asyncio.ensure_future(
            page(
                shelf,
                question=lambda: shelf.title,
                keys=OPENED_KEYS,
                input=input,
                output=output,
                coloured=has_colour(sys.stderr),
            )
        )
        try:
            with contextlib.suppress(PromptStopped, asyncio.CancelledError):  # Ctrl-C leaves it, and an ask ends it
                await self._opened
        finally:
            self._opened.cancel()
            self._opened = None
            input.wants(use)

    async def says_yes(
        self, question: Callable[[], str], *, shown: Sequence[str] = (), whole: Sequence[str] | None = None
    ) -> bool:
        """Whether the person says yes; any other answer is a no. `shown` are the lines above the question. If `whole` has more,
        or the screen is too small for the lines, yes counts only once all of it has been on the screen; `s` shows it page by
        page."""
        above, all_of_it = plain_lines(shown), plain_lines(shown if whole is None else whole)
        is_long = above != all_of_it or scrolls_away(above)
        pages = Pages(all_of_it if is_long else [], coloured=has_colour(sys.stderr))
        letters = ("y", "n", "s") if is_long else ("y", "n")
        if is_long:
            self.say("s shows all of it, page by page")
        try:
            while True:
                said = await self.line(question, fresh=True, takes_paste=False, letters=lambda: letters)
                said = said.strip().lower()
                if is_long and said in {"s", "show"}:
                    await self.page(pages, question=question)
                    self.say(pages.unshown_said(YES_THEN))
                elif said not in {"y", "yes"}:
                    return False
                elif not (is_long and pages.unshown_lines):
                    return True
                else:
                    self.say(pages.unshown_said(YES_THEN))
        except (PromptStopped, PromptLeft):
            return False

    async def text(
        self,
        message: str | Callable[[], str],
        *,
        default: str = "",
        above: Callable[[], Sequence[str]] = tuple,
        below: Callable[[], str] = str,
    ) -> str:
        """The text typed at the main prompt: several lines with Esc-Enter, a backslash at the end, or pasted; with history, in
        which a line that Ctrl-C clears is found again until the session ends. While it is typed, the rows `above` it and the
        line `below` it are shown. Raises PromptStopped, PromptLeft."""
        session = self._main or self._main_prompt()
        self._around = (message, above, below)
        self._ends()[0].wants("text")
        session.reserve_space_for_menu = min(1 + self._completed, shutil.get_terminal_size().lines - 1)
        try:
            return await self._answer(session, default=default)
        except PromptStopped as stopped:
            if stopped.typed.strip():
                self._cleared = stopped.typed
                session.history.append_string(stopped.typed)
            raise

    async def _answer(
        self, session: "PromptSession[str]", *, default: str, pre_run: Callable[[], None] | None = None
    ) -> str:
        try:
            # The run handles Ctrl-C as a signal; prompt_toolkit would remove its handler for good.
            return await session.prompt_async(
                default=default, handle_sigint=False, set_exception_handler=False, pre_run=pre_run
            )
        except EOFError:
            raise PromptLeft from None
        except PromptStopped as stopped:
            stopped.typed = session.default_buffer.text
            raise

    def _main_prompt(self) -> "PromptSession[str]":
        """What a `/` may be is listed as soon as it is typed; other words, with Tab."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.filters import Condition

        input, output = self._ends()
        session: PromptSession[str] = PromptSession(
            self._message,
            style=bar_style(),
            input=input,
            output=output,
            history=_history_in(self._history, keeps=lambda text: text != self._cleared),
            completer=None if self._completer is None else self._completer(),
            complete_while_typing=Condition(lambda: re.fullmatch(r"/\S*", session.default_buffer.text) is not None),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=text_keys(self._actions, say=self.say),
            interrupt_exception=PromptStopped,
            eof_exception=PromptLeft,
        )
        add_line_below(session, self._bar)
        self._main = session
        return session

    def _message(self) -> "StyleAndTextTuples":
        """With the rows above it, as long as the text is not sent."""
        from prompt_toolkit.application import get_app

        message, above, _ = self._around
        cells = shutil.get_terminal_size().columns - 1
        rows = [] if get_app().is_done else [cut_row(clean_row(row), cells=cells) for row in above()]
        return [
            *[("class:around", f"{row}\n") for row in rows],
            ("", message if isinstance(message, str) else message()),
        ]

    def _bar(self) -> str:
        return cut_row(clean_row(self._around[2]()), cells=shutil.get_terminal_size().columns - 1)

    def _ends(self) -> "tuple[TypedKeys, Output]":
        if self._input is None or self._output is None:
            from prompt_toolkit.output import create_output
            from prompt_toolkit.output.vt100 import Vt100_Output

            from turnwise.terminal.typed_keys import TypedKeys

            self._input = TypedKeys(sys.stdin, pause=self._pause, keep=self._put_aside, seen=self._see)
            self._output = create_output(stdout=sys.stderr)
            if isinstance(self._output, Vt100_Output):
                # prompt_toolkit would wait for a terminal that does not tell where its cursor is, and complain
                self._output.enable_cpr = False
        return self._input, self._output

    def _see(self, keys: str) -> str:
        return keys if self.attention is None else self.attention.seen(keys)

    def call(self, why: str) -> None:
        """Call the person who may look elsewhere."""
        if self.attention is not None:
            self.attention.call(why)

    def _put_aside(self, text: str) -> None:
        if self._keep is not None:
            self._keep(text)

    def _forget_typed_ahead(self) -> None:
        if self._input is not None:
            from prompt_toolkit.input.typeahead import clear_typeahead

            clear_typeahead(self._input)

    def _act(self, does: str) -> None:
        """What a key does while a turn runs, unless an action before it still has the terminal."""
        if does in self._actions and (self._acting is None or self._acting.done()):
            self._acting = asyncio.create_task(self._apart(self._actions[does]), name=f"key: {does}")

    async def _apart(self, action: Callable[[], Awaitable[None]]) -> None:
        async with self.taken():
            await action()

    async def acted(self) -> None:
        """Wait for the person to leave what a key has opened."""
        if self._acting is not None:
            await self._acting

    @contextlib.contextmanager
    def heeding(
        self,
        typed: Callable[[str], object],
        *,
        keep: Callable[[str], object],
        draft: Callable[[], str],
        stop: Callable[[], object],
    ) -> Generator[None]:
        """Inside this block, `typed` gets typed keys at once, without echo, while there is no prompt; Ctrl-C is a signal, and Esc
        calls `stop`. `keep` gets keys that were typed at an ask and are no answer to it; `draft` is the text that they go to."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        before: TerminalAttributes = termios.tcgetattr(descriptor)
        keys = TurnKeys(lambda does: stop() if does == "stop" else self._act(does), descriptor=descriptor)

        def read() -> None:
            try:
                given = os.read(descriptor, MAX_TYPED_BYTES)
            except OSError:
                given = b""
            if not given:  # hung up
                loop.remove_reader(descriptor)
                return
            if not (said := self._see(given.decode("utf-8", "ignore"))):
                return
            text = keys.sift(said)
            if text.endswith(("\r", "\n")):
                self._pause.sent()
            elif text:
                self._pause.typed()
            typed(text)

        def suspend() -> None:
            """The terminal is given back as it was found before the process stops; after `fg` it is taken again."""
            heed(False)
            os.kill(os.getpid(), signal.SIGTSTP)  # the other processes of the job have had it from the terminal
            heed(True)

        def heed(on: bool) -> None:
            if self.attention is not None:
                self.attention.watch(on)
            if on:
                termios.tcsetattr(descriptor, termios.TCSADRAIN, _quiet(before))
                loop.add_reader(descriptor, read)
                os.set_blocking(descriptor, True)  # see TypedKeys.attach
                loop.add_signal_handler(signal.SIGTSTP, suspend)
            else:
                loop.remove_signal_handler(signal.SIGTSTP)
                loop.remove_reader(descriptor)
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

        heed(True)
        self._keys, self._keep, self._draft = heed, keep, draft
        try:
            yield
        finally:
            keys.forget()
            if self._acting is not None:
                self._acting.cancel()
            self._keys, self._keep, self._draft = None, None, str
            heed(False)


def confirm_at_terminal(lines: Sequence[str], question: str) -> bool:
    """Show the lines, ask the question, and say whether the answer is yes."""
    terminal = Terminal()
    shown = [clean_row(line) for line in lines]
    for line in shown:
        terminal.say(line)
    return run_to_end(terminal.says_yes(lambda: question, shown=shown))


def _quiet(attributes: TerminalAttributes) -> TerminalAttributes:
    """Key by key, without echo; signals stay."""
    changed = list(attributes)
    local = changed[3]
    assert isinstance(local, int)
    changed[3] = local & ~(termios.ICANON | termios.ECHO)
    return changed


def bar_style() -> "Style":
    """The rows around the prompt are dim."""
    from prompt_toolkit.styles import Style

    return Style.from_dict({"around": "ansibrightblack"})


def add_line_below(session: "PromptSession[str]", line: Callable[[], str]) -> None:
    """While a text is typed, the line stands below it. prompt_toolkit's own bar is shown only where the terminal tells how many
    rows there are below its cursor."""
    from prompt_toolkit.filters import Condition, is_done
    from prompt_toolkit.layout import ConditionalContainer, HSplit, Window
    from prompt_toolkit.layout.controls import FormattedTextControl

    root = session.layout.container
    assert isinstance(root, HSplit), "a prompt is a column"
    window = Window(FormattedTextControl(lambda: [("class:around", line())]), height=1, dont_extend_height=True)
    root.children.append(ConditionalContainer(window, filter=~is_done & Condition(lambda: bool(line()))))


def _history_in(path: Path | None, *, keeps: Callable[[str], bool]) -> "History":
    """The history is kept in that file, as far as it can be written: a full disk ends nobody's session. What it does not keep
    is known until the end of the session."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class KeptHistory(FileHistory):
        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                if keeps(string):
                    super().store_string(string)

    with contextlib.suppress(OSError):
        if path is not None:
            return KeptHistory(_private(path))
    return InMemoryHistory()


def _private(path: Path) -> str:
    """Only its author may read what was typed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return str(path)
