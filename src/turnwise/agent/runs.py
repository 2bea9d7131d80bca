"""A running turn: `run = agent.start(...)`, or `async with agent.stream(...) as run`. Only code that has this object can speak to
the run or end it."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Literal, cast

from turnwise.agent.formatting import many
from turnwise.agent.results import Output, RunEvent, RunFinished, RunInterrupted, RunResult
from turnwise.agent.run_input import message_of
from turnwise.agent.schemas import OutputType
from turnwise.errors import CallerError, ToolFault
from turnwise.running.run_context import apart
from turnwise.running.runner import InterruptKind, Runner
from turnwise.running.watcher_events import Backlog, Feed, FrameSeen, TurnFinished
from turnwise.vocab import File, Message, Text, TextDelta

_going: set["asyncio.Task[RunResult[Any]]"] = set()  # asyncio holds tasks weakly

CANCELLED = 130  # what a shell shows for a program that Ctrl-C has ended
SAID_S = 10.0  # how long a message from another thread may wait; an event loop that is blocked longer does not take it

NO_LOOP = (
    "no event loop is running here: call `agent.start(...)` in an `async` function, or use `agent.run_sync(...)`, which "
    "waits for the result"
)

# Methods that an agent had when it stood for its single run.
REMOVED = {
    name: f"`Agent.{name}` was removed, as an agent may have many runs at once. Speak to one of them: "
    f"`run = agent.start(...)`, then `run.{name}({given})` and `result = await run`"
    for name, given in (("say", "text"), ("interrupt", ""))
} | {
    "tool": "Tools are given when the agent is made: `Agent(..., tools=[function])`; `@tool` from turnwise describes one",
    "tool_plain": "Tools are given when the agent is made: `Agent(..., tools=[function])`",
    "instructions": "Instructions are given when the agent is made: `Agent(..., instructions=[text, function])`",
    "system_prompt": "Instructions are given when the agent is made: `Agent(..., instructions=[text, function])`",
    "output_validator": 'Checks are given when the agent is made: `Agent(..., recovery={"output_checks": [function]})`',
    "run_stream": "Use `async with agent.stream(...) as run`",
    "iter": "Use `run = agent.start(...)` and `async for event in run.events()`",
    "clone": "Give the options of one run to that run: `agent.run(..., model=..., tools=[...])`",
}


class RunControl:
    """What reaches one run from outside: messages, interrupts, listeners. Those that come before its turn begins are kept for it.

    `is_kept`: its turn has a key, so a cancelled task leaves it, to be resumed. `is_ended`: the caller has cancelled the
    run itself, which ends its turn in any case.
    """

    def __init__(self, *, is_ended: bool = False) -> None:
        self.ends: InterruptKind | None = None
        self.so_far: RunResult[Any] | None = None  # of a run that was cancelled, or that raised
        self.is_kept = False
        self.is_ended = is_ended
        self.follows = False  # it waits for a turn that somebody else runs
        self.untold = ""  # the answer of a turn that ended elsewhere: nobody has read its text here
        self.feed: Feed | None = None
        self.task: asyncio.Task[Any] | None = None  # the run's own
        self.output: Callable[[], OutputType | None] = lambda: None  # the type of its output
        self.leave: Callable[[bool], Awaitable[None]] | None = (
            None  # a stream's, if its reader stops: whether it was cancelled
        )
        self.result: RunResult[Any] | None = None  # once its last event was read
        self._words: list[Message] = []
        self._runner: Runner | None = None

    def leaves(self) -> bool:
        """Whether a cancelled task leaves the turn instead of ending it."""
        return self.is_kept and not self.is_ended

    def begin(self, runner: Runner) -> None:
        """From here on, the turn's runner gets them."""
        self._runner = runner

    def listen(self, feed: Feed) -> None:
        self.feed = feed
        if self._runner is not None:
            self._runner.listen(feed)

    def words(self) -> tuple[Message, ...]:
        """The messages from before the turn began. The next call gives only newer ones."""
        words, self._words = tuple(self._words), []
        return words

    def say(self, message: Message) -> bool:
        if self._runner is not None:
            return self._runner.say(message)
        if self.follows:
            return False
        if self.ends is None:
            self._words.append(message)
        return self.ends is None

    def interrupt(self, kind: InterruptKind) -> None:
        if self._runner is not None:
            self._runner.interrupt(kind)
        else:
            self.ends = self.ends or kind


class Run(Generic[Output]):
    """A run under way. `Agent.start` returns it; await it to get its `RunResult`.

        run = agent.start("How long is the room?")
        run.say("In feet, please.")
        async for text in run.text():
            print(text, end="")
        result = await run

    - You may await it more than once, and from several tasks: each gets the same result, or the same exception. If a
      task that awaits it is cancelled, the run is cancelled, as an `asyncio.Task` is. A run with a `key` is left then:
      its turn goes on where `run` or `resume` is called next.
    - A run that nobody awaits goes on to its end, and an error that nobody fetched is logged (logger `asyncio`). If the
      event loop ends first, the run is cancelled.
    - `say`, `interrupt`, `cancel` and `hand_over` may be called in any thread: a tool that is a plain function works in one of
      its own. Await it, and read its events, in the event loop in which it was started.
    """

    def __init__(
        self,
        work: Callable[[RunControl], Coroutine[Any, Any, RunResult[Any]]],
        *,
        control: RunControl | None = None,
    ) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise CallerError(NO_LOOP) from None
        self._thread = threading.get_ident()
        self._control = control or RunControl()
        self._backlog: Backlog | None = None
        self._events = self._given()
        self._task: asyncio.Task[RunResult[Output]] = self._loop.create_task(
            work(self._control), name="turnwise run", context=apart()
        )
        self._control.task = self._task
        _going.add(self._task)
        self._task.add_done_callback(_going.discard)

    def __await__(self) -> Generator[Any, None, RunResult[Output]]:
        if asyncio.get_running_loop() is not self._loop:
            raise CallerError("this run was started in another event loop: await it there")
        return self._task.__await__()

    @property
    def has_ended(self) -> bool:
        """Whether `await run` would return at once."""
        return self._task.done()

    @property
    def so_far(self) -> RunResult[Output] | None:
        """What a run that was cancelled, was left or raised had by then. None: it goes on, or its turn never began. The
        exception that it raised has the same as its attribute `run_so_far`.
        """
        if self.has_ended and not self._task.cancelled() and self._task.exception() is None:
            return self._task.result()
        return self._control.so_far

    def events(self) -> AsyncGenerator[RunEvent[Output]]:
        """Every event from now on. The last one is `RunFinished`. `events()` and `text()` read the same events, and each event is
        given once. If you stop to read, the run goes on.
        """
        self._listen()
        return self._events

    async def text(self) -> AsyncGenerator[str]:
        """The answer's text as it arrives, from now on to the end of the run.

        turnwise repeats a failed request, so a text may arrive twice: an `AttemptDiscarded` event marks that.
        `result.text` is the final answer. A run that waits for a turn with its `key`, or reads it from the journal, has the whole
        answer as one text. Raises ProviderFault at its end if the provider failed: what came before is no answer.
        """
        async for event in self.events():
            if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta):
                yield event.frame.text
        _ = self._control.result is None or self._control.result.text
        untold, self._control.untold = self._control.untold, ""
        if untold:
            yield untold

    async def partial(self) -> AsyncGenerator[Output]:
        """The answer as a value of the output type, while it arrives: each time with more of it.

        A field that has not arrived is its default, or None; in a TypedDict it is missing. Items that have not arrived are
        missing, too. The type's validators do not run, so do not act on these values. The last one is `result.output`, which
        is checked, if the run has one. A value may begin again: for another step, or after a failed attempt. Without an
        output type it is the text so far.
        """
        async for value in _partials(self.events(), control=self._control, ended=self._task.result):
            yield value

    def say(self, text: str | Sequence[str | Text | File]) -> bool:
        """Give the run another message from the user. Its next request carries it.

        Returns False if the run has ended, or was told to end: then the message reaches nobody.
        """
        message = message_of(text, what="the message")
        if threading.get_ident() == self._thread:
            return self._say(message)
        taken: Future[bool] = Future()

        def say_here() -> None:
            if taken.set_running_or_notify_cancel():
                taken.set_result(self._say(message))

        with contextlib.suppress(RuntimeError, TimeoutError):  # RuntimeError: the loop is closed, and the run has ended
            self._loop.call_soon_threadsafe(say_here)
            return taken.result(SAID_S)
        return not taken.cancel() and taken.result(SAID_S)

    def interrupt(self, kind: InterruptKind = "cancel") -> None:
        """End the run soon. `await run` gives the result so far, and the result says so.

        `kind` is `cancel` or `deadline`: the stop reason is `cancelled` or `time_limit`. A run whose turn has not begun
        sends nothing. A run that has ended is left as it is.
        """
        self._in_loop(lambda: self._control.interrupt(kind))

    def cancel(self) -> None:
        """Cancel the run: `await run` raises `asyncio.CancelledError`, and the turn ends, also if it has a key.

        The journal has the turn as cancelled. A run that was cancelled before its turn began sends nothing, and the journal
        does not know it. A run that has ended is left as it is.
        """
        self._in_loop(self._end)

    def hand_over(self) -> None:
        """Leave the turn to another process: `await run` raises `asyncio.CancelledError`, and `resume` or `run(key=...)` goes on
        from what the journal has, anywhere. Tools in flight have a second, then their outcome is unknown.

        A run that has ended is left as it is. Without a journal the turn cannot go on, and the run is cancelled.
        """
        self._in_loop(self._let_go)

    def __repr__(self) -> str:
        return f"<Run {'ended' if self.has_ended else 'under way'}>"

    def _end(self) -> None:
        self._control.is_ended = True
        self._task.cancel()

    def _let_go(self) -> None:
        self._control.is_kept = True
        self._task.cancel()

    def _say(self, message: Message) -> bool:
        return not self.has_ended and self._control.say(message)

    def _in_loop(self, act: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread:
            act()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the run has ended
            self._loop.call_soon_threadsafe(act)

    def _listen(self) -> Backlog:
        if self._backlog is None:
            backlog = self._backlog = Backlog()
            self._control.listen(backlog.put)
            self._task.add_done_callback(lambda _: backlog.close())
        return self._backlog

    async def _given(self) -> AsyncGenerator[RunEvent[Output]]:
        backlog = self._listen()
        is_cut = False
        try:
            while batch := await backlog.take():
                if isinstance(batch[-1], TurnFinished):  # nothing comes after it, and `RunFinished` says more
                    batch = batch[:-1]
                for event in batch:
                    yield event
            self._control.result = await self
            yield RunFinished(self._control.result)
        except asyncio.CancelledError:
            is_cut = True
            raise
        finally:
            if self._control.leave is not None:
                await self._control.leave(is_cut)


def _nobody(_: object) -> None:
    """Listens no more: events that nobody reads are not kept."""


async def _partials(
    events: AsyncIterator[RunEvent[Any]], *, control: RunControl, ended: Callable[[], RunResult[Any] | None]
) -> AsyncGenerator[Any]:
    """The values of the output type so far, then the output."""
    from turnwise.agent.partial_values import NOTHING, values_so_far  # only programs that watch values need it

    output, last = control.output(), NOTHING
    async for value in values_so_far(events, read=str if output is None else output.so_far):
        last = value
        yield value
    result = ended()
    if result is not None and result.has_output and result.output_or_none != last:
        yield result.output


OnLeave = Literal["end", "go_on"]


class RunStream(Generic[Output]):
    """A running turn: its text, its events and its result. `Agent.stream` returns it.

    Use it in `async with`; if you leave the block early, the turn is cancelled, unless `on_leave="go_on"` was given. `text()`
    and `events()` read the same events, and each event is given once. `async for event in agent.stream(...)` gives the events
    without a block.
    """

    def __init__(self, start: Callable[..., Run[Any]], *, on_leave: OnLeave = "end") -> None:
        self._start = start
        self._on_leave: OnLeave = on_leave
        self._control = RunControl()
        self._control.leave = self._leave
        self._run: Run[Output] | None = None

    async def __aenter__(self) -> "RunStream[Output]":
        self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._leave(kind is not None and issubclass(kind, asyncio.CancelledError))
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the stream: the turn is cancelled, unless it has ended or `on_leave="go_on"` was given."""
        if self._run is not None:
            await self._run.events().aclose()
        await self._leave(False)

    def __aiter__(self) -> AsyncIterator[RunEvent[Output]]:
        return self.events()

    def events(self) -> AsyncGenerator[RunEvent[Output]]:
        """Every event as it arrives. The last one is `RunFinished`."""
        return self._begin().events()

    async def text(self) -> AsyncGenerator[str]:
        """The answer's text as it arrives, to the end of the run, as `Run.text` gives it. Raises ProviderFault at its end if the
        provider failed: what came before is no answer."""
        async for piece in self._begin().text():
            yield piece

    async def partial(self) -> AsyncGenerator[Output]:
        """The answer as a value of the output type, while it arrives, as `Run.partial` gives it."""
        async for value in self._begin().partial():
            yield value

    @property
    def result(self) -> RunResult[Output]:
        """The run's result. Raises CallerError while the run goes on, and if it was cancelled."""
        if self._control.result is None:
            raise CallerError(
                "the run has no result yet: read `text()` or `events()` to their end, or `await run.finish()`, before `result`"
            )
        return self._control.result

    async def finish(self) -> RunResult[Output]:
        """Wait for the end of the run and return its result. Events until then are skipped."""
        async for _ in self.events():
            pass
        return self.result

    def say(self, text: str | Sequence[str | Text | File]) -> bool:
        """Give the run another message from the user, as `Run.say` does."""
        return self._begin().say(text)

    def interrupt(self, kind: InterruptKind = "cancel") -> None:
        """End the run soon, with the result so far, as `Run.interrupt` does. Its last events still come."""
        self._begin().interrupt(kind)

    def _begin(self) -> Run[Output]:
        if self._run is None:
            self._run = self._start(control=self._control)
            self._run.events()  # from the first one on
        return self._run

    async def _leave(self, is_cut: bool) -> None:
        """`is_cut`: the reader's task was cancelled, so a turn with a key is left."""
        run = self._run
        if run is None or run.has_ended:
            return
        if self._on_leave == "go_on":
            self._control.listen(_nobody)
            return
        if is_cut and self._control.task is not None:
            self._control.task.cancel()
        else:
            run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run


def keep_so_far(error: BaseException, result: RunResult[Any]) -> None:
    """The exception carries what its run had."""
    with contextlib.suppress(Exception):  # some classes take no attribute
        error.run_so_far = result  # pyright: ignore[reportAttributeAccessIssue]


def run_so_far(error: BaseException) -> RunResult[Any] | None:
    """What the run that raised this exception had by then: its messages, the calls that ran, and the bill. None: its turn had
    not begun, or the exception is no run's.
    """
    found: object = getattr(error, "run_so_far", None)
    return cast("RunResult[Any]", found) if isinstance(found, RunResult) else None


def carrying(error: BaseException, result: RunResult[Any]) -> Exception:
    """The exception of a tool that has ended its run, with the run so far (`run_so_far`) and a note about it.

    What is no Exception (`sys.exit()` in a tool) is the cause of a ToolFault: raised as it is, it would end the program's event
    loop, and every other run in it. So is a StopIteration: no coroutine can raise one.
    """
    if not isinstance(error, Exception) or isinstance(error, StopIteration):
        fault = ToolFault(f"a tool raised {type(error).__name__}")
        fault.__cause__ = error
        error = fault
    keep_so_far(error, result)
    with contextlib.suppress(Exception):  # a class with `__slots__` takes no note, others raise what they like
        error.add_note(
            f"It ended a turnwise run after {many(result.requests, 'request')}: `run_so_far(error)` has what it did."
        )
    return error


def interrupted(result: RunResult[Any]) -> RunInterrupted:
    """The exception that `Agent.run_sync` raises at Ctrl-C. Uncaught, it ends the program with exit code 130, as a
    KeyboardInterrupt does.

    Python gives that code only to the class KeyboardInterrupt itself, and 1 to its subclasses (3.11: `run_eval_code_obj`). If a
    program has its own hook for uncaught exceptions, the hook decides.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end
    return RunInterrupted(result)


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.__excepthook__(kind, error, trace)
    if issubclass(kind, RunInterrupted):
        raise SystemExit(CANCELLED)
