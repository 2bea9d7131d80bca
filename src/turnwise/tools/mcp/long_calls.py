"""A call that its server answers with a task (an extension of the protocol, SEP-2663): asked for until it has its result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from mcp.client.session import ClientSession
from mcp_types import CallToolResult, ErrorData, InputRequests, Request, RequestParams, Result

from turnwise.base.clock import Clock, sleep
from turnwise.errors import ToolFault

EXTENSION = "io.modelcontextprotocol/tasks"
_LEAVE_S = 0.5  # as long as a cancelled tool may tidy up
_SHORTEST_POLL_S, _LONGEST_POLL_S, _POLL_S = 0.05, 10.0, 0.5


class CallTask(Result):
    """A task as it was made, in place of a call's result."""

    result_type: Literal["task"]
    task_id: str


class _Standing(Result):
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    poll_interval_ms: float | None = None
    result: CallToolResult | None = None
    error: ErrorData | None = None
    input_requests: InputRequests | None = None


class _TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(Request[_TaskParams, str]):
    name_param = "taskId"


async def result_of(
    task: CallTask,
    *,
    session: ClientSession,
    clock: Clock,
    put: Callable[[object], Awaitable[object]],
    report: Callable[[str], object],
) -> CallToolResult:
    """The task's result. What it asks meanwhile is `put` to whom it asks. The deadline is that of the call; if the call ends
    before, the server is told. Raises ToolFault, MCPError."""

    async def send(method: str, answers: dict[str, Any] | None = None) -> _Standing:
        params = _TaskParams(task_id=task.task_id, input_responses=answers)
        kind = _Standing if method == "tasks/get" else Result
        return await session.send_request(_TaskRequest(method=method, params=params), kind)  # pyright: ignore[reportReturnType]

    answered: set[str] = set()
    try:
        while True:
            now = await send("tasks/get")
            if now.status == "completed" and now.result is not None:
                return now.result
            if now.status in ("completed", "failed", "cancelled"):
                why = now.error.message if now.error else now.status_message or "it gave no reason"
                raise ToolFault(f"the server's task is {now.status} without a result: {why[:2000]}")
            if now.status_message:
                report(now.status_message)
            asked = {key: one for key, one in (now.input_requests or {}).items() if key not in answered}
            if asked:
                answered |= asked.keys()
                await send("tasks/update", {key: await put(one) for key, one in asked.items()})
                continue
            wait_s = _POLL_S if now.poll_interval_ms is None else now.poll_interval_ms / 1000
            await sleep(clock, seconds=min(max(wait_s, _SHORTEST_POLL_S), _LONGEST_POLL_S))
    except asyncio.CancelledError:
        telling = asyncio.create_task(send("tasks/cancel"))
        telling.add_done_callback(lambda one: one.cancelled() or one.exception())  # the server may be gone
        await asyncio.wait([telling], timeout=_LEAVE_S)
        raise
