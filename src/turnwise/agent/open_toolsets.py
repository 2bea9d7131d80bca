"""Toolsets that are open: each once in an event loop, however many agents and runs use it, and closed after the last of them."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import cast
from weakref import WeakKeyDictionary

from turnwise.agent.tools import OneTool, Toolset
from turnwise.agent.toolsets import WrappedToolset, name_of, offered_by
from turnwise.base.clock import Clock, Overdue, Watchdog
from turnwise.errors import CallerError, TurnwiseError

_Opens = AbstractAsyncContextManager[object]

CLOSE_S = 5.0  # a server that is told to end may finish what it writes
SETTLE_S = 0.5  # for one that is cancelled, as for a tool

_log = logging.getLogger("turnwise")


class _Keeper:
    """Holds one toolset open in a task of its own: what is entered in a task has to be left in the same (anyio's groups).

    Its context is empty. What a toolset starts goes on for other runs: in the context of the run that opened it, it would find
    that run's context variables, such as the user of a web request.
    """

    def __init__(self, toolset: _Opens, *, before: "asyncio.Task[None] | None") -> None:
        self.toolset, self.users = toolset, 0
        self.opened: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self.task = asyncio.create_task(
            self._keep(before), name=f"toolset {name_of(toolset)}", context=contextvars.Context()
        )

    def end(self) -> None:
        """Close it, or give its opening up."""
        if self.opened.done():
            self._over.set()
        else:
            self.task.cancel()

    async def _keep(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None:  # it is still being closed
            await asyncio.wait({before})
        try:
            async with self.toolset:
                self.opened.set_result(None)
                await self._over.wait()
        except asyncio.CancelledError as error:
            if not self.opened.done():
                self.opened.set_result(error)
            raise
        except BaseException as error:  # noqa: BLE001 (another's code: it must not end the program)
            if self.opened.done():
                _log.warning(
                    "the toolset `%s` raised %s when it was closed", name_of(self.toolset), type(error).__name__
                )
            else:
                self.opened.set_result(error)


class _Loop:
    """The toolsets of one event loop, by identity: those in use, and those that are being closed."""

    def __init__(self) -> None:
        self.used: dict[int, _Keeper] = {}
        self.closing: dict[int, asyncio.Task[None]] = {}


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()
_left: set["asyncio.Task[None]"] = set()  # asyncio holds tasks weakly


@contextlib.asynccontextmanager
async def holding(toolsets: Iterable[Toolset], *, clock: Clock, open_s: float) -> AsyncGenerator[None]:
    """All of them are open inside. Raises CallerError for those that were not within `open_s` seconds, or that failed."""
    loop = _loops.setdefault(asyncio.get_running_loop(), _Loop())
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    kept = [_keeper_of(cast("_Opens", one), loop) for one in inner if isinstance(one, AbstractAsyncContextManager)]
    try:
        await _all_open(kept, clock=clock, open_s=open_s)
        yield
    finally:
        await _let_go(kept, loop=loop, clock=clock)


async def ask_all(toolsets: Sequence[Toolset], *, clock: Clock, ask_s: float) -> list[Sequence[OneTool]]:
    """What each offers now. Raises CallerError where one does not say so in time, or fails."""
    found: list[Sequence[OneTool]] = []
    for toolset in toolsets:
        name = name_of(toolset)
        try:
            async with Watchdog(clock, total_s=ask_s):
                found.append(await offered_by(toolset))
        except Overdue:
            raise CallerError(
                f"the toolset `{name}` did not give its tools within {ask_s:g} s (`Deadlines(toolset_s=...)`)"
            ) from None
        except TurnwiseError:
            raise
        except Exception as error:
            raise CallerError(f"the toolset `{name}` could not give its tools: `{type(error).__name__}`") from error
    return found


def _keeper_of(toolset: _Opens, loop: _Loop) -> _Keeper:
    key = id(toolset)
    keeper = loop.used.get(key)
    if keeper is None:
        keeper = loop.used[key] = _Keeper(toolset, before=loop.closing.get(key))
    keeper.users += 1
    return keeper


async def _all_open(keepers: Sequence[_Keeper], *, clock: Clock, open_s: float) -> None:
    if waited := [keeper.opened for keeper in keepers if not keeper.opened.done()]:
        with contextlib.suppress(Overdue):
            async with Watchdog(clock, total_s=open_s):
                await asyncio.wait(waited)
    for keeper in keepers:
        name = name_of(keeper.toolset)
        if not keeper.opened.done():
            raise CallerError(f"the toolset `{name}` did not open within {open_s:g} s (`Deadlines(toolset_s=...)`)")
        error = keeper.opened.result()
        if isinstance(error, TurnwiseError):
            raise error
        if error is not None:
            raise CallerError(f"the toolset `{name}` could not be opened: `{type(error).__name__}`") from error


async def _let_go(keepers: Sequence[_Keeper], *, loop: _Loop, clock: Clock) -> None:
    """Close those that nobody uses any more. One that does not close in time is left to itself."""
    ending: list[_Keeper] = []
    for keeper in keepers:
        keeper.users -= 1
        if not keeper.users:
            ending.append(keeper)
            loop.used.pop(id(keeper.toolset))
            loop.closing[id(keeper.toolset)] = keeper.task
            keeper.end()
    try:
        await _ended(ending, clock=clock, within_s=CLOSE_S)
        if late := [keeper for keeper in ending if not keeper.task.done()]:
            for keeper in late:
                keeper.task.cancel()
            await _ended(late, clock=clock, within_s=SETTLE_S)
            _log.warning(
                "these toolsets did not close within %g s and were left: %s",
                CLOSE_S,
                ", ".join([name_of(keeper.toolset) for keeper in late]),
            )
    finally:
        for keeper in ending:
            loop.closing.pop(id(keeper.toolset), None)
            if not keeper.task.done():
                keeper.task.cancel()
                _left.add(keeper.task)
                keeper.task.add_done_callback(_left.discard)


async def _ended(keepers: Sequence[_Keeper], *, clock: Clock, within_s: float) -> None:
    if waited := [keeper.task for keeper in keepers if not keeper.task.done()]:
        with contextlib.suppress(Overdue):
            async with Watchdog(clock, total_s=within_s):
                await asyncio.wait(waited)
