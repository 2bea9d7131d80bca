"""Calling the user's own functions, plain or async, within a time."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from turnwise.base.clock import Clock, Overdue, ends_in_time
from turnwise.base.threads import in_thread, is_async

SETTLE_S = 0.5


class FunctionAnswer(msgspec.Struct, frozen=True):
    """What a function returned, or raised."""

    value: object = None
    error: BaseException | None = None


async def said_by(
    function: Callable[..., object], *arguments: object, clock: Clock, timeout_s: float, name: str, thread: str
) -> FunctionAnswer:
    """What it returned or raised, awaited where that has to be; a plain function runs in a thread of its own. Raises Overdue if
    it takes longer; a thread is left behind then. `name` is its task's, `thread` its thread's."""

    def call() -> FunctionAnswer:
        try:
            return FunctionAnswer(function(*arguments))
        except BaseException as error:  # noqa: BLE001 (a stranger's: `sys.exit()` in it must not end the program)
            return FunctionAnswer(error=error)

    async def work() -> FunctionAnswer:
        said = call() if is_async(function) else await in_thread(call, name=thread)
        if said.error is not None or not inspect.isawaitable(said.value):
            return said
        try:
            return FunctionAnswer(await cast("Awaitable[object]", said.value))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 (as above)
            return FunctionAnswer(error=error)

    task = asyncio.create_task(work(), name=name)
    if not await ends_in_time(task, clock=clock, timeout_s=timeout_s, settle_s=SETTLE_S):
        raise Overdue("answer", timeout_s)
    if task.cancelled():
        return FunctionAnswer(error=asyncio.CancelledError())
    return task.result()
