"""An event loop for one coroutine, which does not outlive it by more than a moment."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import TypeVar

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
