"""Functions of strangers that may block, each in a thread of its own, so that deadlines and a cancel hold around it; and long
work of our own, so that the event loop goes on beside it."""

import asyncio
import contextlib
import contextvars
import importlib
import inspect
import threading
from collections.abc import Callable, Coroutine
from types import FunctionType
from typing import TypeVar

Outcome = TypeVar("Outcome")

LONG_BYTES = 256 * 1024
"""A longer text is not read, rewritten or judged on the event loop at once. A megabyte of JSON takes some 10 ms."""


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it only makes something to be awaited."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True  # as `inspect` would say, and it is asked for every call
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def load_beside(*names: str) -> None:
    """Load these modules in a thread, while a person types or an answer is awaited. Code that needs one sooner waits for it."""
    threading.Thread(
        target=lambda: [importlib.import_module(name) for name in names], name="turnwise-loading", daemon=True
    ).start()


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


# An event loop for one coroutine, which does not outlive it by more than a moment.


Result = TypeVar("Result")

SETTLE_S = 0.5  # as for a cancelled tool


def quickest_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed (the extra `uvloop`), else asyncio's. For our own programs: a library's caller chooses."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_to_end(
    main: Coroutine[object, object, Result],
    *,
    settle_s: float = SETTLE_S,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Result:
    """`asyncio.run`, but for what will not end: it waits without limit for tasks that ignore their cancellation and for
    the threads of `asyncio.to_thread`. Here they have `settle_s` each and are left behind. Ctrl-C cancels `main`, as there.
    """
    try:
        # With a factory, `Runner` leaves the thread's current loop alone, so there is nothing of it to undo.
        runner = asyncio.Runner(loop_factory=new_loop)
        loop = runner.get_loop()
        loop.set_exception_handler(_report)
        return _run(main, runner=runner, settle_s=settle_s)
    finally:
        if inspect.getcoroutinestate(main) == inspect.CORO_CREATED:  # Ctrl-C came before it began: no warning says so
            main.close()


def _run(main: Coroutine[object, object, Result], *, runner: asyncio.Runner, settle_s: float) -> Result:
    loop = runner.get_loop()
    try:
        return runner.run(main)
    finally:
        try:
            loop.run_until_complete(_settle(settle_s))
        finally:
            loop.close()  # does not wait for the threads; `Runner.close` would


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """What nobody caught, as asyncio logs it; but not what the loop has raised in its caller already, as it does with Ctrl-C in
    the middle of a task: the task that keeps it, too, would show a traceback where it is thrown away."""
    if not isinstance(context.get("exception"), KeyboardInterrupt | SystemExit):
        loop.default_exception_handler(context)


async def _settle(settle_s: float) -> None:
    us = asyncio.current_task()
    left = {task for task in asyncio.all_tasks() if task is not us}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=settle_s)
    # after the tasks, which iterate over them
    await asyncio.wait([asyncio.create_task(asyncio.get_running_loop().shutdown_asyncgens())], timeout=settle_s)
