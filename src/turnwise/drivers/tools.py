"""Tools that can run, and the running of all calls of a step: together, each within its deadline, each with one result."""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from itertools import groupby
from typing import cast

import msgspec

from turnwise.drivers.clock import Clock, wait_for_task
from turnwise.drivers.tool_output import ERROR_CHARACTERS, cut_middle, error_result, result_of
from turnwise.errors import ToolFault
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer
from turnwise.vocab import ToolCall, ToolResult

# How long a cancelled tool may tidy up before it is left to itself. Cancelling a turn settles within a second (wait:cancel).
SETTLE_S = 0.5

Arguments = dict[str, object]

# asyncio holds tasks weakly; one that ignores its cancellation must stay somewhere until it ends.
_abandoned: set[asyncio.Task[ToolResult]] = set()


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool with its implementation.

    `function` takes the decoded arguments (free-form tools: `{"input": text}`) and returns a str, something JSON-able, a
    `Text` or `File` part, or a list of those; or an awaitable of it. A function that is not `async def` runs in a thread
    of its own, so it may block. None for client-side tools.
    """

    offer: ToolOffer
    function: Callable[[Arguments], object] | None = None

    @property
    def name(self) -> str:
        return self.offer.spec.name


class ToolRun:
    """The running of one step's calls. `await run()` once; if that is cancelled, `finished` holds the results so far."""

    def __init__(
        self,
        calls: tuple[PlannedCall, ...],
        *,
        tools: Mapping[str, Tool],
        clock: Clock,
        on_start: Callable[[ToolCall], None],
        on_finish: Callable[[ToolResult], None],
        settle_s: float = SETTLE_S,
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._clock = clock
        self._on_start = on_start
        self._on_finish = on_finish
        self._settle_s = settle_s
        self._results: dict[int, ToolResult] = {}

    @property
    def finished(self) -> tuple[ToolResult, ...]:
        """In call order, of the calls that have ended."""
        return tuple([self._results[place] for place in sorted(self._results)])

    async def run(self) -> tuple[ToolResult, ...]:
        """Neighbours run together; an exclusive call runs alone, after those before it and before those after it.

        Cancelling it cancels all that run, gives each `settle_s` to tidy up, and then raises CancelledError.
        """
        for exclusive, batch in groupby(enumerate(self._calls), key=lambda placed: placed[1].exclusive):
            if exclusive:
                for place, planned in batch:
                    await self._run_one(place, planned)
            else:
                async with asyncio.TaskGroup() as group:
                    for place, planned in batch:
                        group.create_task(self._run_one(place, planned))
        return self.finished

    async def _run_one(self, place: int, planned: PlannedCall) -> None:
        self._on_start(planned.call)
        tool = self._tools.get(planned.call.name)
        if tool is None or tool.function is None:
            result = error_result(planned.call, f"there is no tool `{planned.call.name}` here")
        else:
            result = await self._within_deadline(tool.function, planned)
        self._results[place] = result
        self._on_finish(result)

    async def _within_deadline(self, function: Callable[[Arguments], object], planned: PlannedCall) -> ToolResult:
        task = asyncio.create_task(_call(function, planned), name=f"tool {planned.call.name}")
        try:
            if await wait_for_task(task, clock=self._clock, timeout_s=planned.timeout_s):
                return task.result()
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        stopped = await self._stop(task) and _is_async(function)  # a thread cannot be stopped
        outcome = " and was stopped" if stopped else ", may still be running"
        return error_result(planned.call, f"timed out after {planned.timeout_s:g} s{outcome}")

    async def _stop(self, task: asyncio.Task[ToolResult]) -> bool:
        """Cancel, wait a moment; true if it has ended."""
        task.cancel()
        if await wait_for_task(task, clock=self._clock, timeout_s=self._settle_s):
            return True
        _abandoned.add(task)
        task.add_done_callback(_abandoned.discard)
        return False


async def _call(function: Callable[[Arguments], object], planned: PlannedCall) -> ToolResult:
    """Run the function to its result. Raises nothing but CancelledError: a tool's exception is a result."""
    call = planned.call
    try:
        arguments: Arguments = {"input": planned.arguments} if call.free_form else _decode(planned.arguments)
        value = function(arguments) if _is_async(function) else await _in_thread(functools.partial(function, arguments))
        if inspect.isawaitable(value):
            value = await cast("Awaitable[object]", value)
        return result_of(call, value)
    except ToolFault as fault:
        return error_result(call, str(fault))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return error_result(call, f"`{call.name}` cancelled itself")
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a tool raises is its result; `sys.exit()` too)
        text = cut_middle(str(error), limit=ERROR_CHARACTERS)
        return error_result(call, f"{type(error).__name__}: {text}" if text else type(error).__name__)


_decode = msgspec.json.Decoder(Arguments).decode


def _is_async(function: Callable[[Arguments], object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def _in_thread(function: Callable[[], object]) -> object:
    """Run it in a daemon thread of its own: a pool's threads are joined at exit, so one stuck tool would hang the
    program, and a pool of 6 (two cores) would make the seventh parallel call wait."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = function()
        except StopIteration as stop:  # a future cannot hold it
            error = RuntimeError(f"StopIteration: {stop}")
        except BaseException as raised:  # noqa: BLE001 (handed over to the caller, not swallowed)
            error = raised
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop is closed: the tool was abandoned and nobody waits for it any more

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="turnwise-tool", daemon=True).start()
    return await done
