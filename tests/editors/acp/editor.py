"""An editor of the tests' own, on the protocol's own client: it drives `turnwise acp` in this process, over a pair of sockets."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import text_block
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
)

from terminal.test_processes import wait_until
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.own_pipes import MAX_LINE_BYTES
from turnwise.coding_agent.options import Given
from turnwise.editors.acp.service import EditorPipe, serve_over
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from turnwise.settings.options import RunSettings
from waits import HANG_S

Decide = Callable[[ToolCallUpdate, list[PermissionOption]], Awaitable[str | None]]


async def allow(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
    return next(option.option_id for option in options if option.kind == "allow_once")


async def deny(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
    return next(option.option_id for option in options if option.kind == "reject_once")


class Editor:
    """What the agent is told and asks. `decide` answers permissions by an option's id; None: the dialog was left."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.decide: Decide = allow
        self.buffers: dict[str, str] = {}
        self.forms: list[str] = []
        self.read: list[str] = []
        self.ran: list[str] = []
        self.ended: list[str] = []
        self.exits: asyncio.Future[int] | None = None
        self.opened = asyncio.Event()
        self.agent: Any = None

    def on_connect(self, conn: object) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: object) -> None:
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.opened.set()
        chosen = await self.decide(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: object, **_: object) -> AcceptElicitationResponse:
        self.forms.append(message)
        return AcceptElicitationResponse(action="accept", content={"answer": "Ada"})

    async def read_text_file(self, session_id: str, path: str, **_: object) -> ReadTextFileResponse:
        self.read.append(path)
        if path not in self.buffers:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def create_terminal(self, session_id: str, command: str, args: list[str], **_: object):
        self.ran.append(args[-1])
        return CreateTerminalResponse(terminal_id="term-1")

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: object):
        code = 0 if self.exits is None else await self.exits
        return WaitForTerminalExitResponse(exit_code=code)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: object):
        return TerminalOutputResponse(
            output="in the terminal\n", truncated=False, exit_status=TerminalExitStatus(exit_code=0)
        )

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: object) -> None:
        self.ended.append("killed")

    async def release_terminal(self, session_id: str, terminal_id: str, **_: object) -> None:
        self.ended.append("released")

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join([one.content.text for one in self.updates if one.session_update == kind])

    def calls(self) -> dict[str, dict[str, Any]]:
        """What is shown of each call: the last word on each field."""
        shown: dict[str, dict[str, Any]] = {}
        for one in self.updates:
            if one.session_update in ("tool_call", "tool_call_update"):
                fields = {name: value for name, value in one if value is not None}
                call = shown.setdefault(one.tool_call_id, {"states": []})
                call["states"] += [one.status] if one.status else []
                call |= fields
        return shown

    def call(self, title: str) -> dict[str, Any]:
        (found,) = [call for call in self.calls().values() if call["title"].startswith(title)]
        return found


def given_at(lab: Lab, script: str, **more: object) -> Given:
    """The options of `turnwise acp` that lead to a script of the lab."""
    given: dict[str, object] = {
        "model": f"openai_chat:{script}",
        "base_url": f"{lab.url}/v1",
        "api_key_env": None,
        "settings": RunSettings(),
        "cwd": None,
        "go_on": False,
        "session": None,
        "system": None,
        "allow": (),
        "ask_timeout": None,
        "no_sandbox": False,
        "network": False,
        "no_agents_md": False,
        "no_environment": True,
        "no_stream": False,
        "plain": True,
    }
    return cast("Given", {**given, **more})


@contextlib.asynccontextmanager
async def pipes(
    given: Given, *, clock: Clock | None = None
) -> "AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Task[None]]]":
    """The editor's ends of a served connection, and the task that serves."""
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=there, limit=MAX_LINE_BYTES)
    own_reader, own_writer = await asyncio.open_connection(sock=here, limit=MAX_LINE_BYTES)
    clock = clock or SystemClock()
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        pipe = EditorPipe(reader, writer, clock=clock)
        serving = asyncio.create_task(serve_over(pipe, given=given, journal=journal, clock=clock, env=os.environ))
        try:
            yield own_reader, own_writer, serving
        finally:
            own_writer.close()
            await asyncio.wait_for(serving, HANG_S)


@contextlib.asynccontextmanager
async def editing(
    given: Given, *, clock: Clock | None = None, editor: Editor | None = None, **capabilities: Any
) -> "AsyncIterator[tuple[ClientSideConnection, Editor]]":
    """A client that has said hello, and its editor."""
    editor = editor or Editor()
    async with pipes(given, clock=clock) as (reader, writer, _):
        client = ClientSideConnection(cast("Any", editor), writer, reader, use_unstable_protocol=True)
        try:
            await client.initialize(1, ClientCapabilities(**capabilities))
            yield client, editor
        finally:
            await client.close()


async def say(client: ClientSideConnection, session: str, text: str):
    return await asyncio.wait_for(client.prompt(session_id=session, prompt=[text_block(text)]), HANG_S)


async def new(client: ClientSideConnection, folder: Path) -> str:
    return (await client.new_session(cwd=str(folder), mcp_servers=[])).session_id


async def written(path: Path) -> None:
    """Something stands in the file."""
    await asyncio.to_thread(wait_until, lambda: path.exists() and bool(path.read_text().strip()))
