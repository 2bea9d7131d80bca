"""A call at work, as its tool's `RunContext` sees it: it tells how it gets on, and asks a person, which stops its own time."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from turnwise.base.clock import Clock, Timer
from turnwise.errors import CallerError, ToolFault
from turnwise.running.progress import CallTelling
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.vocab import ToolCall

ENDED = "the call has ended: nobody is asked any more"


class AskPutter(Protocol):
    """Puts one ask to a person, and gives the answer or its default: within `left_s`, None for as long as asks wait."""

    def __call__(self, ask: OneAsk, /, *, left_s: float) -> Awaitable[Approval]: ...


class CallTimer:
    """The time of one call. It stands still while `stopped`; the turn's time, which ends at `end_s`, does not. `over` is called
    once either has passed. Times are those of `Clock.monotonic`."""

    def __init__(self, clock: Clock, *, seconds: float, end_s: float | None, over: Callable[[], object]) -> None:
        self._clock, self._end_s, self._over = clock, end_s, over
        self._left_s = seconds
        self._began_s = self._since_s = clock.monotonic()
        self._stops = 0
        self.is_turns = False  # it was the turn's time that has passed
        self._timer = self._started()

    @property
    def passed_s(self) -> float:
        return self._clock.monotonic() - self._began_s

    def left_of_turn(self) -> float:
        return math.inf if self._end_s is None else max(self._end_s - self._clock.monotonic(), 0.0)

    def stop(self) -> None:
        """Until `go_on` was called as often."""
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
        self._stops += 1  # nothing starts it any more
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
    """Begun in the event loop's thread. `put` asks a person; `telling` reaches the watchers, None where there are none."""

    def __init__(self, call: ToolCall, *, arguments: str, put: AskPutter | None, telling: CallTelling | None) -> None:
        self.call = call
        self.timer: CallTimer | None = None
        self._arguments, self._put, self._telling = arguments, put, telling
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asking: set[asyncio.Task[Approval]] = set()
        self._is_over = False

    def report(self, text: str) -> None:
        """From any thread."""
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
        # A task of its own: it ends with the call, also where the tool asked from a task that nobody cancels.
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
        """From another thread than the event loop's, which it would keep waiting. Raises as `ask` does."""
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
        """The call has ended, and with it what it asks."""
        self._is_over = True
        for task in tuple(self._asking):
            task.cancel()
