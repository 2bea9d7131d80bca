"""How a tool gets on: the last line of what it says, now and then, for whoever watches. No result depends on it."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from turnwise.drivers.clock import Clock, Timer

EVERY_S = 0.25  # a person reads no faster; what ends sooner is not told of
LOOKED_AT = 4096  # bytes of the end of the output
LINE = 200  # characters that are told

OutputSink = Callable[[bytes], object]
"""Takes a further piece of output."""

_tell: ContextVar[OutputSink | None] = ContextVar("turnwise_progress", default=None)

# Colours and moves of the cursor, whole or cut at the front by what is looked at.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_=>78()]?")
_LINE_ENDS = re.compile(r"[\r\n]+")


@contextmanager
def told_to(tell: OutputSink) -> Generator[None]:
    """Within it, a tool that shows how it gets on tells it there. Holds for the tasks and threads begun in it."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def teller() -> OutputSink | None:
    """Where the tool at hand may tell how it gets on; None: nobody watches."""
    return _tell.get()


class Progress:
    """Of one call: takes its output as it comes, and tells its last line, not more often than every `EVERY_S`."""

    def __init__(self, tell: Callable[[str], object], *, clock: Clock) -> None:
        self._tell = tell
        self._clock = clock
        self._end = b""
        self._told = ""
        self._timer: Timer | None = None
        self._is_over = False

    def take(self, output: bytes) -> None:
        self._end = (self._end + output)[-LOOKED_AT:] if len(output) < LOOKED_AT else output[-LOOKED_AT:]
        if self._timer is None and not self._is_over:
            self._timer = self._clock.call_later(EVERY_S, self._say)

    def leave(self) -> None:
        """The call has ended: its result says the rest."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        self._timer = None
        line = last_line(self._end)
        if line and line != self._told and not self._is_over:
            self._told = line
            self._tell(line)


def last_line(output: bytes) -> str:
    """The last line that says something, without colours; a carriage return begins a line, as in a bar of progress."""
    text = _CONTROL.sub("", output.decode("utf-8", "replace").lstrip("\ufffd"))
    for line in reversed(_LINE_ENDS.split(text)):
        if said := " ".join(line.split()):
            return said[:LINE]
    return ""
