"""A run that is seen while it goes on: `async with agent.stream(...) as run`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, Generic

from turnwise.drivers.running.watching import Backlog, Feed, FrameSeen, TurnFinished
from turnwise.errors import CallerError
from turnwise.faces.results import Output, RunEvent, RunFinished, RunResult
from turnwise.vocab import TextDelta


class RunStream(Generic[Output]):
    """A running turn: its text, its events and its result. `Agent.stream` returns it.

    Use it in `async with`; if you leave the block early, the turn is cancelled. `text()` and `events()` read the same
    events, and each event is given once. `async for event in agent.stream(...)` gives the events without a block.
    """

    def __init__(self, run: Callable[..., Coroutine[Any, Any, RunResult[Any]]]) -> None:
        self._run = run
        self._backlog = Backlog()
        self._task: asyncio.Task[RunResult[Output]] | None = None
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
        `result.text` is the final answer.
        """
        async for event in self._events:
            if isinstance(event, FrameSeen) and isinstance(event.frame, TextDelta):
                yield event.frame.text

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

    def _begin(self) -> asyncio.Task[RunResult[Output]]:
        if self._task is None:
            feed: Feed = self._backlog.put
            self._task = asyncio.create_task(self._run(feed=feed), name="turnwise run")
            self._task.add_done_callback(lambda _: self._backlog.close())
        return self._task

    async def _given(self) -> AsyncGenerator[RunEvent[Output]]:
        task = self._begin()
        try:
            while batch := await self._backlog.take():
                if isinstance(batch[-1], TurnFinished):  # nothing comes behind it, and `RunFinished` says more
                    batch = batch[:-1]
                for event in batch:
                    yield event
            self._result = await task
            yield RunFinished(self._result)
        finally:
            await self._cancel()

    async def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
