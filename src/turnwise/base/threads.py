"""Functions of strangers that may block, each in a thread of its own, so that deadlines and a cancel hold around it; and long
work of our own, so that the event loop goes on beside it."""

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TypeVar

Outcome = TypeVar("Outcome")

LONG_BYTES = 256 * 1024
"""What is longer is not read, written anew or judged on the event loop at once. A megabyte of JSON takes some 10 ms."""


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


async def beside_loop(function: Callable[[], Outcome], *, size: int) -> Outcome:
    """What it gives or raises. It works on `size` bytes: on more than a few of them in a thread, while the loop serves others. A
    cancel waits for its end, because it may be changing what the caller looks at then."""
    if size <= LONG_BYTES:
        return function()
    working = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # nobody is told of it any more
        raise
    finally:
        del working  # it holds the exception that it raised, and that holds this frame
