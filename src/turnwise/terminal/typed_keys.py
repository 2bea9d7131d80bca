"""Which keys answer a question at the terminal, and which belong to the text that somebody was typing when the question came."""

import asyncio
import contextlib
import os
import select
import termios
from collections.abc import Callable, Collection, Generator
from typing import Literal, TextIO

from prompt_toolkit.application import get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from turnwise.base.clock import Clock
from turnwise.terminal.pager import TypingPause

MAX_READ = 64 * 1024
STOOD_S = 0.3  # nobody reads a question and answers it sooner: such a key was meant for what stood there before
ALONE_S = 0.2  # the next letter of a word comes sooner


FOCUS = ("\x1b[I", "\x1b[O")  # the terminal has the focus, or lost it: no keys
ANSI_SEQUENCES.update(dict.fromkeys(FOCUS, Keys.Ignore))

KeysUse = Literal["text", "draft", "answer", "choice"]
"""The purpose of keys: a prompt of its own; a text that an ask interrupts; an answer in words; a choice, which nobody pastes."""


class TypedKeys(Vt100Input):
    """The keys of a terminal. During an ask, keys that continue a draft without a pause go to `keep`, and so does text that is
    pasted at a choice, with the keys that follow without a pause. Ctrl-C always works."""

    def __init__(
        self, stdin: TextIO, *, pause: TypingPause, keep: Callable[[str], object], seen: Callable[[str], object]
    ) -> None:
        super().__init__(stdin)
        self._pause, self._keep, self._seen = pause, keep, seen
        self._use: KeysUse = "text"
        self._answers = False  # a key has come that answers
        self._kept = False  # the last keys were no answer

    @property
    def are_kept(self) -> bool:
        """The last keys went to the text, and so do the next ones."""
        return self._kept and self._pause.is_short

    @contextlib.contextmanager
    def attach(self, input_ready_callback: Callable[[], None]) -> Generator[None]:
        """Call the callback for each key while this context is open. uvloop sets a terminal that it watches to non-blocking.
        The output is the same open file: if a slow terminal cannot take all of a question at once, that would be an error."""
        with super().attach(input_ready_callback):
            os.set_blocking(self.fileno(), True)
            yield

    @property
    def use(self) -> KeysUse:
        return self._use

    def wants(self, use: KeysUse) -> None:
        self._use, self._answers, self._kept = use, False, False

    def read_keys(self) -> list[KeyPress]:
        return self.sift(super().read_keys())

    def flush_keys(self) -> list[KeyPress]:
        return self.sift(super().flush_keys())

    def sift(self, keys: list[KeyPress]) -> list[KeyPress]:
        """The keys for the open prompt."""
        if keys:
            self._seen("".join([key.data for key in keys]))
        keys = [key for key in keys if key.data not in FOCUS]
        if not keys or self._use == "text":
            return keys
        if self._use == "draft":
            self._pause.typed()
            return keys
        if self._use == "choice" and keys[0].key is Keys.ControlM and self._pause.has_just_answered:
            del keys[0]  # the Enter of a habit, behind a letter that has answered without it
        kept, rest = list[KeyPress](), list[KeyPress]()
        for key in keys:
            is_pasted = key.key is Keys.BracketedPaste and self._use == "choice"
            if key.key is not Keys.ControlC and (is_pasted or (not self._answers and self._pause.is_short)):
                kept.append(key)
                self._pause.typed()
                self._answers = False  # keys after a paste may belong to it
            else:
                rest.append(key)
                self._answers = True
        self._put_aside(kept)
        self._kept = bool(kept)
        return rest

    def collect(self) -> None:
        """Give `keep` the keys that were typed before this moment and that nobody has read."""
        found = get_typeahead(self)
        try:
            found += self._unread()
        except (termios.error, OSError):  # the terminal is gone: the next read reports it
            return
        if found:
            self._put_aside(found)
            self._pause.typed()

    def _unread(self) -> list[KeyPress]:
        """What the terminal holds, whole lines or not."""
        descriptor = self.fileno()
        before = termios.tcgetattr(descriptor)
        changed = list(before)
        changed[3] = before[3] & ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(descriptor, termios.TCSANOW, changed)
        try:
            while select.select([descriptor], [], [], 0)[0] and (given := os.read(descriptor, MAX_READ)):
                self.vt100_parser.feed(given.decode("utf-8", "ignore"))
        finally:
            termios.tcsetattr(descriptor, termios.TCSANOW, before)
        found, self._buffer = self._buffer, []
        return found

    def _put_aside(self, keys: list[KeyPress]) -> None:
        if text := "".join([key.data for key in keys]):
            self._keep(text)


class OneKey:
    """One of the `letters` answers without Enter, once it has stood alone in the line for `alone_s`, so it begins no word. One
    that comes as soon as the question does waits for Enter."""

    def __init__(
        self,
        letters: Callable[[], Collection[str]],
        *,
        input: TypedKeys,
        pause: TypingPause,
        clock: Clock,
        alone_s: float = ALONE_S,
    ) -> None:
        self._letters, self._input, self._pause, self._clock, self._alone_s = letters, input, pause, clock, alone_s
        self._since_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def stands(self) -> None:
        """The question is on the screen from now on."""
        self._since_s = self._clock.monotonic()

    def answers(self, text: str) -> bool:
        """Whether this text, which the last key has made, answers if nothing follows."""
        stood = self._since_s is not None and self._clock.monotonic() - self._since_s >= STOOD_S
        return stood and text.lower() in self._letters()

    def watch(self, buffer: Buffer) -> None:
        """The text of the line has changed."""
        self.forget()
        if self.answers(buffer.text):
            self._timer = asyncio.get_running_loop().call_later(self._alone_s, self._settle, buffer)

    def forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, buffer: Buffer) -> None:
        if get_app().is_done:  # Enter, Esc or Ctrl-C came behind the letter, and the line is being put away
            return
        if not select.select([self._input.fileno()], [], [], 0)[0]:  # on a busy machine nobody has read the rest yet
            self._pause.answered()
            buffer.validate_and_handle()
