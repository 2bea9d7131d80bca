"""Functions of strangers that may block: each in a thread of its own, so that deadlines and a cancel hold around it."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

Outcome = TypeVar("Outcome")


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it only makes something to be awaited."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True  # as `inspect` would say, and it is asked for every call
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def in_thread(function: Callable[[], Outcome], *, name: str) -> Outcome:
    """Run it, which must not raise, in a daemon thread of its own: a pool's threads are joined at exit, so one stuck function
    would hang the program, and a pool of 6 (two cores) would make the seventh parallel call wait."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(value: Outcome) -> None:
        if not done.done():
            done.set_result(value)

    def work() -> None:
        value = function()
        try:
            loop.call_soon_threadsafe(settle, value)
        except RuntimeError:
            return  # the loop is closed: the function was abandoned and nobody waits for it any more

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    return await done
