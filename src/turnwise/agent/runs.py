"""A running turn: `run = agent.start(...)`, or `async with agent.stream(...) as run`. Only code that has this object can speak to
the run or end it."""

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic

from turnwise.agent.formatting import many
from turnwise.agent.results import Output, RunEvent, RunFinished, RunInterrupted, RunResult
from turnwise.agent.run_input import message_of
from turnwise.errors import CallerError, ToolFault
from turnwise.running.run_context import apart
from turnwise.running.runner import InterruptKind, Runner
from turnwise.running.watcher_events import Backlog, FrameSeen, TurnFinished
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
}


class RunControl:
    """Messages and interrupts for one run, from outside. Those that come before its turn begins are kept for it."""

    def __init__(self) -> None:
        self.ends: InterruptKind | None = None
        self.so_far: RunResult[Any] | None = None  # of a run that was cancelled
        self._words: list[Message] = []
        self._runner: Runner | None = None

    def begin(self, runner: Runner) -> None:
        """From here on, the turn's runner gets them."""
        self._runner = runner

    def words(self) -> tuple[Message, ...]:
        """The messages from before the turn began. The next call gives only newer ones."""
        words, self._words = tuple(self._words), []
        return words

    def say(self, message: Message) -> bool:
        if self._runner is not None:
            return self._runner.say(message)
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
        result = await run

    - You may await it more than once, and from several tasks: each gets the same result, or the same exception. If a
      task that awaits it is cancelled, the run is cancelled, as an `asyncio.Task` is.
    - A run that nobody awaits goes on to its end. If the event loop ends first, the run is cancelled.
    - `say`, `interrupt` and `cancel` may be called in any thread: a tool that is a plain function works in one of its own.
      Await it in the event loop in which it was started.
    """

    def __init__(
        self,
        work: Callable[[RunControl], Coroutine[Any, Any, RunResult[Any]]],
        *,
        control: RunControl | None = None,
        ended: Callable[[], object] | None = None,
    ) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise CallerError(NO_LOOP) from None
        self._thread = threading.get_ident()
        self._control = control or RunControl()
        self._task: asyncio.Task[RunResult[Output]] = self._loop.create_task(
            work(self._control), name="turnwise run", context=apart()
        )
        _going.add(self._task)
        self._task.add_done_callback(_going.discard)
        if ended is not None:
            self._task.add_done_callback(lambda _: ended())

    def __await__(self) -> Generator[Any, None, RunResult[Output]]:
        if asyncio.get_running_loop() is not self._loop:
            raise CallerError("this run was started in another event loop: await it there")
        return self._task.__await__()

    @property
    def has_ended(self) -> bool:
        """Whether `await run` would return at once."""
        return self._task.done()

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
        """Cancel the run, as `asyncio.Task.cancel` does: `await run` raises `asyncio.CancelledError`.

        The journal has the turn as cancelled. A run that was cancelled before its turn began sends nothing, and the journal
        does not know it. A run that has ended is left as it is.
        """
        self._in_loop(self._task.cancel)

    def __repr__(self) -> str:
        return f"<Run {'ended' if self.has_ended else 'under way'}>"

    def _say(self, message: Message) -> bool:
        return not self.has_ended and self._control.say(message)

    def _in_loop(self, act: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread:
            act()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the run has ended
            self._loop.call_soon_threadsafe(act)


class RunStream(Generic[Output]):
    """A running turn: its text, its events and its result. `Agent.stream` returns it.

    Use it in `async with`; if you leave the block early, the turn is cancelled. `text()` and `events()` read the same
    events, and each event is given once. `async for event in agent.stream(...)` gives the events without a block.
    """

    def __init__(self, start: Callable[..., Run[Any]]) -> None:
        self._start = start
        self._backlog = Backlog()
        self._run: Run[Output] | None = None
        self._result: RunResult[Output] | None = None
        self._events = self._given()

    async def __aenter__(self) -> "RunStream[Output]":
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the turn, unless it has ended."""
        await self._events.aclose()
        await self._cancel()

    def __aiter__(self) -> AsyncIterator[RunEvent[Output]]:
        return self._events

    def events(self) -> AsyncIterator[RunEvent[Output]]:
        """Every event as it arrives. The last one is `RunFinished`."""
        return self._events

    async def text(self) -> AsyncGenerator[str]:
        """The answer's text as it arrives, to the end of the run.

        turnwise repeats a failed request, so a text may arrive twice: an `AttemptDiscarded` event marks that.
        `result.text` is the final answer. Raises ProviderFault at its end if the provider failed: what came before is no answer.
        """
        async for event in self._events:
            if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta):
                yield event.frame.text
        _ = self._result is None or self._result.text

    @property
    def result(self) -> RunResult[Output]:
        """The run's result. Raises CallerError while the run goes on, and if it was cancelled."""
        if self._result is None:
            raise CallerError(
                "the run has no result yet: read `text()` or `events()` to their end, or `await run.finish()`, before `result`"
            )
        return self._result

    async def finish(self) -> RunResult[Output]:
        """Wait for the end of the run and return its result. Events until then are skipped."""
        async for _ in self._events:
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
            self._run = self._start(feed=self._backlog.put, ended=self._backlog.close)
        return self._run

    async def _given(self) -> AsyncGenerator[RunEvent[Output]]:
        run = self._begin()
        try:
            while batch := await self._backlog.take():
                if isinstance(batch[-1], TurnFinished):  # nothing comes after it, and `RunFinished` says more
                    batch = batch[:-1]
                for event in batch:
                    yield event
            self._result = await run
            yield RunFinished(self._result)
        finally:
            await self._cancel()

    async def _cancel(self) -> None:
        if self._run is not None and not self._run.has_ended:
            self._run.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._run


def carrying(error: BaseException, result: RunResult[Any]) -> Exception:
    """The exception of a tool that has ended its run, with the run so far as its `run` and in a note.

    What is no Exception (`sys.exit()` in a tool) is the cause of a ToolFault: raised as it is, it would end the program's event
    loop, and every other run in it.
    """
    if not isinstance(error, Exception):
        fault = ToolFault(f"a tool raised {type(error).__name__}")
        fault.__cause__ = error
        error = fault
    with contextlib.suppress(AttributeError, TypeError):  # a class with `__slots__` takes no further attribute
        error.run = result  # type: ignore[attr-defined]
        error.add_note(
            f"It ended a turnwise run after {many(result.requests, 'request')}: `run` of this exception has it."
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
