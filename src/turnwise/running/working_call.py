"""A running call, as its tool's `RunContext` sees it: it reports its progress, and asks a person, which stops its own time."""

import asyncio
import contextlib
import math
import re
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import msgspec

from turnwise.base.clock import Clock, Timer
from turnwise.errors import CallerError, ToolFault
from turnwise.rules.limits import Limit, Spent, most_usd
from turnwise.rules.reservations import Place, share_of
from turnwise.running.run_context import variable_of_run
from turnwise.running.watcher_events import ToolProgress, Watch, WatcherEvent
from turnwise.turn.config import Approval, ChildReport, OneAsk
from turnwise.vocab import File, Text, ToolCall

# Answers of the run's own model to questions of a tool's call: bounded for each call, and paid from the call's share.


NOTHING_LEFT = "the limits of the run leave no request for it"


class NoAnswer(Exception):
    """The model gives no answer; the text says why."""


class ModelQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of `server` to the model. `parts` are its words, which may come from anybody; `max_tokens` bounds the answer.
    `ask` puts a question to a person and says whether the answer was yes."""

    server: str
    parts: tuple[Text | File, ...]
    max_tokens: int
    ask: Callable[[str], Awaitable[bool]]


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`is_cut`: the answer was cut at its bound."""

    text: str
    model: str
    is_cut: bool = False


StartAnswer = Callable[[ModelQuestion, Limit | None, Callable[[ChildReport], None]], Awaitable[ModelAnswer]]
"""Starts the sub-agent that answers, within the limit, and makes it report what it spent. Raises NoAnswer."""


class OwnModel:
    """The model, for one call: at most `most` answers, one after the other, within `grant`. Without a `place` there are no
    answers."""

    def __init__(
        self, start: StartAnswer | None, *, grant: Limit | None, place: Place | None, most: int, clock: Clock
    ) -> None:
        self._start, self._grant, self._place, self._clock = start, grant, place, clock
        below = None if place is None else place.subagents
        self.most = most if below is None else min(most, 1 + below)
        self._asked = 0
        self._spent = Spent()
        self._began_s = clock.monotonic()
        self._one_by_one = asyncio.Lock()

    async def answer(self, question: ModelQuestion, *, tell: Callable[[str], object]) -> ModelAnswer:
        """`tell` gets the number of the answer and how many there may be. Raises NoAnswer."""
        if self._start is None or self._place is None:
            raise NoAnswer(NOTHING_LEFT)
        if self._asked >= self.most:
            raise NoAnswer(f"a call may ask the model {self.most} times, and this one has")
        self._asked += 1
        tell(f"the MCP server `{question.server}` asks the model ({self._asked} of at most {self.most})")
        async with self._one_by_one:
            limit = self._left()
            return await self._start(question, limit, lambda report: self._pay(report, limit=limit))

    def _left(self) -> Limit | None:
        if self._grant is None:
            return None
        elapsed_s = self._clock.monotonic() - self._began_s
        share = share_of(self._grant, spent=self._spent + Spent(elapsed_s=elapsed_s), among=1)
        if not share.enough:
            raise NoAnswer(NOTHING_LEFT)
        return share.limit

    def _pay(self, report: ChildReport, *, limit: Limit | None) -> None:
        usd = most_usd(limit) if report.charged_usd is None else report.charged_usd
        usage = report.usage
        self._spent += report.also_spent + Spent(
            requests=report.requests, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
        )
        self._spent = msgspec.structs.replace(self._spent, cost_usd=self._spent.cost_usd + (usd or 0))


_model_at_hand: ContextVar[OwnModel | None] = variable_of_run("own_model", default=None)


@contextmanager
def giving_model(model: OwnModel) -> Generator[None]:
    """Inside this block, a call finds the model. Also holds for tasks that begin inside."""
    token = _model_at_hand.set(model)
    try:
        yield
    finally:
        _model_at_hand.reset(token)


def model_at_hand() -> OwnModel | None:
    """The model for the current call; None if it may not ask."""
    return _model_at_hand.get()


# What a tool tells watchers about a running call: any event, and the last line of its output now and then.
#
# No result depends on it.


EVERY_S = 0.25  # a person reads no faster; a command that ends sooner is not reported
LOOKED_AT = 4096  # bytes of the end of the output
LINE = 200  # characters of a reported line
MOST_LINES = 5  # of the output of a command that are reported

OutputSink = Callable[[bytes], object]
"""Takes a further piece of output."""

_telling_at_hand: ContextVar["CallTelling | None"] = variable_of_run("call_telling", default=None)

# Colours and cursor moves, whole or cut at the front by the bytes that are looked at.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_=>78()]?")


class CallTelling:
    """Where a tool reports about its call; a tool's function finds its own with `telling`. Create it in the event loop's
    thread."""

    def __init__(self, call: ToolCall, tell: Watch, *, clock: Clock) -> None:
        self.call = call
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._progress = LastLines(self._tell_lines, clock=clock)
        self._reports = LastLines(self._tell_report, clock=clock, most=1, is_whole=True)
        self._is_over = False
        self._reported = ""
        self._is_due = False  # the event loop has been asked to take the text

    def tell(self, seen: WatcherEvent) -> None:
        """Tell it in order, from any thread. A tool that was given up but still runs is not heard any more."""
        if threading.get_ident() == self._thread:
            self._say(seen)
        else:
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody watches any more
                self._loop.call_soon_threadsafe(self._say, seen)

    def take_output(self, output: bytes) -> None:
        """Take a further piece of a command's output, in the event loop's thread."""
        self._progress.take(output)

    def report(self, text: str) -> None:
        """Report the last line of the text: the first report at once, the last one at the end of the call, those between at most
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
        if self._is_due:  # its thread has ended before the event loop took the text
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

    def _tell_lines(self, lines: tuple[str, ...]) -> None:
        self._say(ToolProgress(self.call, lines[-1], lines))

    def _tell_report(self, lines: tuple[str, ...]) -> None:
        self._say(ToolProgress(self.call, lines[-1]))


@contextmanager
def tells_of(call: ToolCall, tell: Watch, *, clock: Clock) -> Generator[None]:
    """Inside this block, a tool can report about its `call`. Also holds for tasks and threads that begin inside."""
    one = CallTelling(call, tell, clock=clock)
    token = _telling_at_hand.set(one)
    try:
        yield
    finally:
        _telling_at_hand.reset(token)
        one.leave()


def telling() -> CallTelling | None:
    """Where the current tool may report about its call; None: nobody watches."""
    return _telling_at_hand.get()


class LastLines:
    """Takes a command's output as it comes, and reports its last lines, at most `most`, at most every `EVERY_S`. `is_whole`: the
    first is reported at once, and the last one always."""

    def __init__(
        self,
        tell: Callable[[tuple[str, ...]], object],
        *,
        clock: Clock,
        most: int = MOST_LINES,
        is_whole: bool = False,
    ) -> None:
        self._most = most
        self._is_whole = is_whole
        self._tell = tell
        self._clock = clock
        self._end = b""
        self._told: tuple[str, ...] = ()
        self._timer: Timer | None = None
        self._is_over = False

    def take(self, output: bytes) -> None:
        self._end = (self._end + output)[-LOOKED_AT:] if len(output) < LOOKED_AT else output[-LOOKED_AT:]
        if self._timer is None and not self._is_over:
            if self._is_whole:
                self._say()
            self._timer = self._clock.call_later(EVERY_S, self._say)

    def leave(self) -> None:
        """From now on nothing is reported."""
        if self._is_whole and self._timer is not None:
            self._say_now()
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _say(self) -> None:
        self._timer = None
        self._say_now()

    def _say_now(self) -> None:
        lines = last_lines(self._end, most=self._most)
        if lines and lines != self._told and not self._is_over:
            self._told = lines
            self._tell(lines)


def last_lines(output: bytes, *, most: int = MOST_LINES) -> tuple[str, ...]:
    """The last lines with text, without colours. A carriage return begins its line again, as in a progress bar."""
    text = _CONTROL.sub("", output.decode("utf-8", "replace").lstrip("\ufffd"))
    found: list[str] = []
    for line in reversed(text.split("\n")):
        said = next((one for part in reversed(line.split("\r")) if (one := " ".join(part.split()))), "")
        if said and len(found) < most:
            found.append(said[:LINE])
    return tuple(reversed(found))


ENDED = "the call has ended: nobody is asked any more"


class AskPutter(Protocol):
    """Puts one ask to a person, and returns the answer or its default: within `left_s`; None for as long as asks wait."""

    def __call__(self, ask: OneAsk, /, *, left_s: float) -> Awaitable[Approval]: ...


class CallTimer:
    """The time of one call. It stands still while `stopped`; the turn's time, which ends at `end_s`, does not. `over` is called
    when either has passed. Times are those of `Clock.monotonic`."""

    def __init__(self, clock: Clock, *, seconds: float, end_s: float | None, over: Callable[[], object]) -> None:
        self._clock, self._end_s, self._over = clock, end_s, over
        self._left_s = seconds
        self._began_s = self._since_s = clock.monotonic()
        self._stops = 0
        self.is_turns = False  # the turn's time has passed, not the call's
        self._timer = self._started()

    @property
    def passed_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def left_of_turn(self) -> float:
        return math.inf if self._end_s is None else max(self._end_s - self._clock.monotonic(), 0.0)

    def stop(self) -> None:
        """Stop the time, until `go_on` was called as often as this."""
        self._stops += 1
        if self._stops == 1:
            self._left_s -= self._clock.monotonic() - self._since_s
            self._start_again()

    def go_on(self) -> None:
        self._stops -= 1
        if self._stops == 0:
            self._since_s = self._clock.monotonic()
            self._start_again()

    def cancel(self) -> None:
        self._stops += 1  # nothing starts it again
        if self._timer is not None:
            self._timer.cancel()

    def _start_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._started()

    def _started(self) -> Timer | None:
        turns_s = self.left_of_turn()
        own_s = math.inf if self._stops else max(self._left_s, 0.0)
        if min(turns_s, own_s) == math.inf:
            return None
        return self._clock.call_later(min(turns_s, own_s), self._over if own_s < turns_s else self.end_by_turn)

    def end_by_turn(self) -> None:
        """The turn's time is up."""
        self.is_turns = True
        self._over()


class CallAtWork:
    """A call that runs. Create it in the event loop's thread. `put` asks a person; `telling` reaches the watchers, None if there
    are none."""

    def __init__(self, call: ToolCall, *, arguments: str, put: AskPutter | None, telling: CallTelling | None) -> None:
        self.call = call
        self.timer: CallTimer | None = None
        self._arguments, self._put, self._telling = arguments, put, telling
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asking: set[asyncio.Task[Approval]] = set()
        self._is_over = False

    def report(self, text: str) -> None:
        """Report a text. From any thread."""
        if self._telling is not None:
            self._telling.report(text)

    async def ask(self, question: str, *, options: Sequence[str], why: str) -> Approval:
        """Raises ToolFault once the call has ended, and CallerError in another event loop than the run's."""
        if self._is_over or self._put is None:
            raise ToolFault(ENDED)
        if asyncio.get_running_loop() is not self._loop:
            raise CallerError(
                "`await context.ask(...)` belongs to the event loop of the run: use `context.ask_sync(...)`"
            )
        ask = OneAsk(
            call=self.call,
            arguments=self._arguments,
            subject=question,
            kind="question",
            why=why,
            options=tuple(options),
            can_wait=False,
            by="tool",
        )
        # A task of its own: it ends with the call, even if the tool asked from a task that nobody cancels.
        left_s = math.inf if self.timer is None else self.timer.left_of_turn()
        task = asyncio.ensure_future(self._put(ask, left_s=left_s))
        self._asking.add(task)
        if self.timer is not None:
            self.timer.stop()
        try:
            return await task
        finally:
            self._asking.discard(task)
            if self.timer is not None:
                self.timer.go_on()

    def ask_sync(self, question: str, *, options: Sequence[str], why: str) -> Approval:
        """Ask from another thread than the event loop's, which would be blocked. Raises as `ask` does."""
        if self._is_over:
            raise ToolFault(ENDED)
        if threading.get_ident() == self._thread:
            raise CallerError("`context.ask_sync(...)` would stop the event loop: use `await context.ask(...)`")
        asking = self.ask(question, options=options, why=why)
        try:
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # the loop is closed: the tool was left behind
            asking.close()
            raise ToolFault(ENDED) from None
        try:
            return future.result()
        except BaseException as error:
            if future.cancelled():
                raise ToolFault(ENDED) from None
            raise error

    def leave(self) -> None:
        """The call has ended, and with it its asks."""
        self._is_over = True
        for task in tuple(self._asking):
            task.cancel()
