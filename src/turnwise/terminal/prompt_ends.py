"""How a prompt at the terminal ends without an answer, and which keys belong to a text that somebody is typing."""

import asyncio
import contextlib
import signal
from collections.abc import Generator

from turnwise.base.clock import Clock

PAUSE_S = 0.5  # who types a text leaves 0.1 to 0.3 s between two keys


class PromptStopped(Exception):
    """Ctrl-C at a prompt: whoever reads along decides what it ends. `typed` is the line that it clears."""

    typed = ""


class PromptLeft(Exception):
    """Ctrl-D at an empty prompt, or the terminal is gone."""


class PromptPutAside(Exception):
    """Something is asked, so the prompt for a text is gone from the screen. `typed` is what stood there."""

    def __init__(self, typed: str) -> None:
        super().__init__(typed)
        self.typed = typed


class TypingPause:
    """Whether a key that comes now goes on with a text: the last key of that text came less than a pause ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: float | None = None

    def typed(self) -> None:
        """A key of a text came just now."""
        self._last_s = self._clock.monotonic()

    def sent(self) -> None:
        """The text is where it was meant to go: no key goes on with it."""
        self._last_s = None

    @property
    def is_short(self) -> bool:
        return self._last_s is not None and self._clock.monotonic() - self._last_s < PAUSE_S


# What ends the program from outside, as a cancellation: what is shown is put in order, and what was found is told.


@contextlib.contextmanager
def cancelling() -> Generator[None]:
    """SIGTERM and the end of the terminal cancel what is awaited here, so that the terminal is left as it was."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` wants it ignored
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
