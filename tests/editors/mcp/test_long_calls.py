"""A call that its server answers with a task: it is asked for, may ask meanwhile, and is cancelled with its call."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolRequestParams, RequestParams, Result
from pydantic import ConfigDict
from test_servers import blue, served

from strangers import agent_of, texts_of
from turnwise import McpServer, ToolProgress
from turnwise.testing import call
from waits import HANG_S

FORM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which colour?",
        "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
    },
}


class _Made(Result):
    result_type: str = "task"
    task_id: str = "t-1"
    status: str = "working"


class _Any(Result):
    model_config = ConfigDict(extra="allow")


class _Params(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class Tasks(Extension):
    """Works until it was asked `polls` times, asks once where `asks`, and ends with the status `ends`."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, *, polls: int = 2, asks: bool = False, ends: str = "completed") -> None:
        self.polls, self.asks, self.ends = polls, asks, ends
        self.heard: list[str] = []
        self.colour = "none"
        self.cancelled = asyncio.Event()
        self.polled = asyncio.Event()

    async def intercept_tool_call(self, params: CallToolRequestParams, ctx: Any, call_next: Any) -> Any:
        return _Made()

    def methods(self) -> Sequence[MethodBinding]:
        names = {"tasks/get": self._get, "tasks/update": self._update, "tasks/cancel": self._cancel}
        return [MethodBinding(name, _Params, handler) for name, handler in names.items()]

    async def _get(self, ctx: Any, params: _Params) -> Result:
        self.heard.append(f"get {params.task_id}")
        self.polled.set()
        self.polls -= 1
        if self.asks and self.colour == "none":
            return _Any.model_validate({"taskId": "t-1", "status": "input_required", "inputRequests": {"a": FORM}})
        if self.polls > 0:
            told = {"taskId": "t-1", "status": "working", "statusMessage": "half done", "pollIntervalMs": 1}
            return _Any.model_validate(told)
        content = [{"type": "text", "text": f"painted {self.colour}"}]
        end = {"result": {"content": content}} if self.ends == "completed" else {"statusMessage": "no paint"}
        return _Any.model_validate({"taskId": "t-1", "status": self.ends, **end})

    async def _update(self, ctx: Any, params: _Params) -> Result:
        self.heard.append(f"update {params.task_id}")
        self.colour = (params.input_responses or {})["a"]["content"]["colour"]
        return _Any()

    async def _cancel(self, ctx: Any, params: _Params) -> Result:
        self.heard.append(f"cancel {params.task_id}")
        self.cancelled.set()
        return _Any()


def painter(tasks: Tasks) -> MCPServer:
    server = MCPServer("painter", extensions=[tasks])

    @server.tool()
    async def paint() -> str:
        """Paint a fence."""
        return "never called"

    return server


async def test_the_result_of_a_task_is_the_result_of_its_call() -> None:
    """In this process and over HTTP, where a request names its task in a header; how it stands goes to the watchers."""
    watched: list[Any] = []
    tasks = Tasks()
    agent, _ = agent_of([[call("p__paint")], "Done."], [McpServer("p", asks=False, server=painter(tasks))])
    assert texts_of(await agent.run("Paint.", watch=watched.append)) == ["painted none"]
    assert [one.line for one in watched if isinstance(one, ToolProgress)] == ["half done"]
    with served(painter(Tasks())) as url:
        agent, _ = agent_of([[call("p__paint")], "Done."], [McpServer("p", asks=False, url=url, start_s=HANG_S)])
        assert texts_of(await agent.run("Paint.")) == ["painted none"]


async def test_what_a_task_asks_is_an_ask_of_its_call() -> None:
    tasks = Tasks(asks=True)
    server = McpServer("p", asks=False, server=painter(tasks))
    agent, _ = agent_of([[call("p__paint")], "Done."], [server], safety={"approver": blue})
    assert texts_of(await agent.run("Paint.")) == ["painted blue"]
    assert tasks.heard == ["get t-1", "update t-1", "get t-1"]


@pytest.mark.parametrize("ends", ["failed", "cancelled"])
async def test_a_task_that_fails_is_a_failed_call(ends: str) -> None:
    """With the server's reason."""
    tasks = Tasks(ends=ends)
    agent, _ = agent_of([[call("p__paint")], "Done."], [McpServer("p", asks=False, server=painter(tasks))])
    (said,) = texts_of(await agent.run("Paint."))
    assert said == f"the server's task is {ends} without a result: no paint"


async def test_a_cancelled_turn_cancels_the_task() -> None:
    tasks = Tasks(polls=1_000_000)
    agent, _ = agent_of([[call("p__paint")], "Done."], [McpServer("p", asks=False, server=painter(tasks))])
    running = asyncio.create_task(agent.run("Paint."))
    await tasks.polled.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert tasks.cancelled.is_set()
