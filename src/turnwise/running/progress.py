"""What a tool tells of a call while it runs, for whoever watches: any event, and the last line of its output now and then.

No result depends on it.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from turnwise.base.clock import Clock, Timer
from turnwise.running.grants import variable_of_run
from turnwise.running.watcher_events import ToolProgress, Watch, WatcherEvent
from turnwise.vocab import ToolCall

EVERY_S = 0.25  # a person reads no faster; a command that ends sooner is not told of
LOOKED_AT = 4096  # bytes of the end of the output
LINE = 200  # characters that are told

OutputSink = Callable[[bytes], object]
"""Takes a further piece of output."""

_at_hand: ContextVar["CallTelling | None"] = variable_of_run("call_telling", default=None)

# Colours and moves of the cursor, whole or cut at the front by what is looked at.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_=>78()]?")
_LINE_ENDS = re.compile(r"[\r\n]+")


class CallTelling:
    """Where a tool tells of its call; a tool's function finds its own by `telling`. Begun in the event loop's thread."""

    def __init__(self, call: ToolCall, tell: Watch, *, clock: Clock) -> None:
        self.call = call
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._progress = LastLine(self._tell_line, clock=clock)
        self._reports = LastLine(self._tell_line, clock=clock, is_whole=True)
        self._is_over = False
        self._reported = ""
        self._is_due = False  # the event loop has been asked to take it

    def tell(self, seen: WatcherEvent) -> None:
        """In order, from any thread; a tool that was given up, and goes on, is not heard any more."""
        if threading.get_ident() == self._thread:
            self._say(seen)
        else:
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody watches any more
                self._loop.call_soon_threadsafe(self._say, seen)

    def take_output(self, output: bytes) -> None:
        """A further piece of what a command says, in the event loop's thread."""
        self._progress.take(output)

    def report(self, text: str) -> None:
        """Its last line is told: the first report at once, the last one at the end of the call, those between not more often than
        every `EVERY_S`. From any thread."""
        self._reported = text[-LOOKED_AT:]
        if threading.get_ident() == self._thread:
            self._take_report()
        elif not self._is_due:
            self._is_due = True
            with contextlib.suppress(RuntimeError):  # as above
                self._loop.call_soon_threadsafe(self._take_report)

    def leave(self) -> None:
        """The call has ended: its result says the rest."""
        if self._is_due:  # its thread has ended before the event loop had its turn
            self._take_report()
        self._reports.leave()
        self._is_over = True
        self._progress.leave()

    def _take_report(self) -> None:
        self._is_due = False
        self._reports.take(f"\n{self._reported}\n".encode("utf-8", "replace"))

    def _say(self, seen: WatcherEvent) -> None:
        if not self._is_over:
            self._tell(seen)

    def _tell_line(self, line: str) -> None:
        self._say(ToolProgress(self.call, line))


@contextmanager
def tells_of(call: ToolCall, tell: Watch, *, clock: Clock) -> Generator[None]:
    """Within it, a tool can tell of its `call`. Holds for the tasks and threads begun in it."""
    one = CallTelling(call, tell, clock=clock)
    token = _at_hand.set(one)
    try:
        yield
    finally:
        _at_hand.reset(token)
        one.leave()


def telling() -> CallTelling | None:
    """Where the tool at hand may tell of its call; None: nobody watches."""
    return _at_hand.get()


class LastLine:
    """Takes a command's output as it comes, and tells its last line, not more often than every `EVERY_S`. `is_whole`: the first
    line is told at once, and the last one for certain."""

    def __init__(self, tell: Callable[[str], object], *, clock: Clock, is_whole: bool = False) -> None:
        self._is_whole = is_whole
        self._tell = tell
        self._clock = clock
        self._end = b""
        self._told = ""
        self._timer: Timer | None = None
        self._is_over = False

    def take(self, output: bytes) -> None:
        self._end = (self._end + output)[-LOOKED_AT:] if len(output) < LOOKED_AT else output[-LOOKED_AT:]
        if self._timer is None and not self._is_over:
            if self._is_whole:
                self._say()
            self._timer = self._clock.call_later(EVERY_S, self._say)

    def leave(self) -> None:
        """Nothing is told any more."""
        if self._is_whole and self._timer is not None:
            self._say_now()
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        self._timer = None
        self._say_now()

    def _say_now(self) -> None:
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
