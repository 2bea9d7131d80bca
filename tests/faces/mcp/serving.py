"""Clients of the tests' own, on the protocol's own client: over memory in this process, over pipes, and with a real process."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import anyio
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from faces.acp.editor import given_at
from turnwise.drivers.clock import Clock, SystemClock
from turnwise.drivers.journal.journal import Journal, journal_path
from turnwise.faces.mcp.runs import ServeMeans
from turnwise.faces.mcp.serve import serve_streams
from turnwise.lab import Lab
from waits import HANG_S

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")
Answers = Callable[[str], Awaitable[str | None]]
PROGRAM = ("-c", "import sys; from turnwise.faces.cli.main import main; sys.argv[0] = 'turnwise'; main()")


class Person:
    """Who is asked at the client: each question, and the answer that `answers` gives; None declines."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked: list[ElicitRequestParams] = []
        self.opened = asyncio.Event()

    async def __call__(self, _: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        self.opened.set()
        said = await self._answers(params.message)
        return (
            ElicitResult(action="decline") if said is None else ElicitResult(action="accept", content={"answer": said})
        )


def saying(answer: str | None) -> Person:
    async def said(_: str) -> str | None:
        return answer

    return Person(said)


@contextlib.asynccontextmanager
async def serving(
    lab: Lab,
    script: str,
    *,
    root: Path,
    era: Era = "legacy",
    person: Person | None = None,
    clock: Clock | None = None,
    models: tuple[str, ...] = (),
    **given: object,
) -> AsyncIterator[Client]:
    """The protocol's client, connected with a server in this process."""
    clock = clock or SystemClock()
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        options = given_at(lab, script, mcp=(), **given)
        means = ServeMeans(
            given=options,
            root=root,
            models=models,
            journal=journal,
            clock=clock,
            env=os.environ,
        )
        there, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](8)
        outgoing, here = anyio.create_memory_object_stream[SessionMessage | Exception](8)
        task = asyncio.create_task(serve_streams(incoming, outgoing, means=means))  # pyright: ignore[reportArgumentType]

        @contextlib.asynccontextmanager
        async def transport() -> AsyncIterator[Any]:
            yield here, there

        try:
            async with Client(transport(), mode=era, elicitation_callback=person) as client:
                yield client
        finally:
            there.close()
            await asyncio.wait_for(task, HANG_S)
            here.close()


async def call(client: Client, tool: str, arguments: Mapping[str, Any], **more: Any) -> CallToolResult:
    return await asyncio.wait_for(client.call_tool(tool, dict(arguments), **more), HANG_S)


def text_of(result: CallToolResult) -> str:
    return "".join([part.text for part in result.content if part.type == "text"])


class RawClient:
    """A real process, spoken to line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.told: list[dict[str, Any]] = []

    async def send(self, **message: Any) -> None:
        await self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def send_line(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        await self.process.stdin.drain()

    async def hello(self, **capabilities: Any) -> dict[str, Any]:
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        await self.send(id="hello", method="initialize", params=about)
        answer = await self.answer("hello")
        await self.send(method="notifications/initialized")
        return answer

    async def begin(self, id: int, tool: str, *, meta: Mapping[str, Any] | None = None, **arguments: Any) -> None:
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        await self.send(id=id, method="tools/call", params={**params, **({"_meta": meta} if meta else {})})

    async def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), HANG_S)
        message = json.loads(line)
        self.told.append(message)
        return message

    async def answer(self, id: object) -> dict[str, Any]:
        """The answer to this request; whatever comes before it is in `told`."""
        while True:
            message = await self.next()
            if message.get("id") == id and "method" not in message:
                return message

    async def ended(self) -> tuple[int, bytes]:
        """Its exit code and what it said on standard error."""
        assert self.process.stderr is not None
        errors = await asyncio.wait_for(self.process.stderr.read(), HANG_S)
        return await asyncio.wait_for(self.process.wait(), HANG_S), errors


@contextlib.asynccontextmanager
async def started(*args: str, folder: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[RawClient]:
    """`turnwise mcp serve ARGS` as a client starts it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *PROGRAM,
        "mcp",
        "serve",
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **(env or {})},
        limit=64 * 1024 * 1024,
    )
    try:
        yield RawClient(process)
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait_for(process.wait(), HANG_S)
