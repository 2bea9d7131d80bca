"""Clients of the tests' own, on the protocol's own client: over memory in this process, over pipes, and with a real process."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import anyio
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

from editors.acp.editor import given_at
from terminal.forking import Process
from terminal.running import begin
from turnwise.base.clock import Clock, SystemClock
from turnwise.editors.mcp.runs import ServeMeans
from turnwise.editors.mcp.service import serve_streams
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from waits import HANG_S

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")
Answers = Callable[[str], Awaitable[str | None]]


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


def is_at_work() -> bool:
    """Whether a turn has no end in the journal yet."""
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        turns = [turn for row in journal.sessions(limit=20) for turn in journal.find_session(row.id).turns]
    return any(not turn.stop_reason for turn in turns)


class RawClient:
    """A process of its own, spoken to line by line."""

    def __init__(
        self, process: Process, *, pipes: tuple[asyncio.StreamReader, asyncio.StreamReader, asyncio.WriteTransport]
    ) -> None:
        self.process = process
        self._out, self._errors, self._input = pipes
        self.told: list[dict[str, Any]] = []

    async def send(self, **message: Any) -> None:
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def send_line(self, line: bytes) -> None:
        self._input.write(line + b"\n")

    def leave(self) -> None:
        """The server reads the end of its input, as when its client has died."""
        self._input.close()

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
        line = await asyncio.wait_for(self._out.readline(), HANG_S)
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
        errors = await asyncio.wait_for(self._errors.read(), HANG_S)
        return await asyncio.to_thread(self.process.wait, HANG_S), errors


@contextlib.asynccontextmanager
async def started(*args: str, folder: Path) -> AsyncIterator[RawClient]:
    """`turnwise mcp serve ARGS` as a client starts it."""
    loop = asyncio.get_running_loop()
    (its_input, ours), (out, its_out), (errors, its_errors) = os.pipe(), os.pipe(), os.pipe()
    process = begin("mcp", "serve", *args, cwd=folder, stdin=its_input, stdout=its_out, stderr=its_errors)
    for theirs in (its_input, its_out, its_errors):
        os.close(theirs)
    said, complaints = asyncio.StreamReader(limit=64 * 1024 * 1024), asyncio.StreamReader()
    read, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(said), os.fdopen(out, "rb"))
    heard, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(complaints), os.fdopen(errors, "rb"))
    given, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(ours, "wb"))
    try:
        yield RawClient(process, pipes=(said, complaints, given))
    finally:
        process.kill()
        for pipe in (read, heard, given):
            pipe.close()
        await asyncio.to_thread(process.wait, HANG_S)
