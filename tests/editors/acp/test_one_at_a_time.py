"""A session does one thing at a time, slash commands included: nothing that an editor sends between gets in, or is lost."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
from acp.exceptions import RequestError
from acp.helpers import text_block
from acp.schema import McpServerStdio, PermissionOption, ReadTextFileResponse, ToolCallUpdate

from editors.acp.editor import Editor, allow, editing, given_at, new, say
from turnwise import tool
from turnwise.base.clock import SystemClock
from turnwise.editors.acp.service import EditorService
from turnwise.editors.acp.terminals import MAX_FILES, with_unsaved
from turnwise.errors import ToolFault
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from turnwise.tools.workspace.paths import WorkspacePaths
from waits import HANG_S

DONE = "status: done\n"


class Waits(Editor):
    """Leaves the ask of `/undo` open until it is let go, and then says yes."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.decide = self._decide

    async def _decide(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        if not (call.title or "").startswith("Take back"):
            return await allow(call, options)
        await self.go.wait()
        return await allow(call, options)

    async def until_undo_asks(self) -> None:
        while not (self.asked and (self.asked[-1][0].title or "").startswith("Take back")):
            self.opened.clear()
            await asyncio.wait_for(self.opened.wait(), HANG_S)


async def test_nothing_begins_while_a_slash_command_waits_for_the_person(lab: Lab, folder: Path) -> None:
    """A turn that began meanwhile could have its changes taken back by a yes to the changes before it."""
    async with editing(given_at(lab, "read-edit-answer"), editor=Waits()) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Set it.")
        undo = asyncio.create_task(say(client, session, "/undo"))
        await cast("Waits", editor).until_undo_asks()
        for asked in (
            say(client, session, "Set it again."),
            say(client, session, "/model gpt-5"),
            client.set_session_mode(session_id=session, mode_id="edits"),
            client.set_config_option(session_id=session, config_id="model", value="openai_chat:other"),
            client.load_session(cwd=str(folder), session_id=session, mcp_servers=[]),
        ):
            with pytest.raises(RequestError, match="wait for its end, or cancel it"):
                await asked
        cast("Waits", editor).go.set()
        assert (await asyncio.wait_for(undo, HANG_S)).stop_reason == "end_turn"
    assert (folder / "notes.txt").read_text() == "status: draft\n"


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_slash_command_is_cancelled_like_a_turn(lab: Lab, folder: Path, how: str) -> None:
    """A yes that comes behind it takes nothing back; a closed session begins nothing, not even what was sent before."""
    async with editing(given_at(lab, "read-edit-answer"), editor=Waits()) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Set it.")
        undo = asyncio.create_task(say(client, session, "/undo"))
        await cast("Waits", editor).until_undo_asks()
        if how == "cancel":
            await client.cancel(session_id=session)
        else:
            await asyncio.wait_for(client.close_session(session_id=session), HANG_S)
        assert (await asyncio.wait_for(undo, HANG_S)).stop_reason == "cancelled"
        cast("Waits", editor).go.set()
        sent = len(lab.requests)
        if how == "close":
            with pytest.raises(RequestError, match="is not open"):
                await say(client, session, "Hello.")
        else:
            await say(client, session, "/usage")
        assert len(lab.requests) == sent
    assert (folder / "notes.txt").read_text() == DONE


async def test_nothing_begins_in_a_session_that_is_being_closed(lab: Lab, folder: Path) -> None:
    """The editor reads nothing, so closing takes a while: a turn that began meanwhile could not be cancelled any more."""
    told, reads = asyncio.Event(), asyncio.Event()

    class Connection:
        async def session_update(self, **_: object) -> None:
            told.set()
            await asyncio.wait_for(reads.wait(), HANG_S)

    clock = SystemClock()
    with Journal(journal_path(os.environ), clock=clock) as journal:
        service = EditorService(given=given_at(lab, "plain-answer"), journal=journal, clock=clock, env=os.environ)
        service.on_connect(cast("Any", Connection()))
        session = (await service.new_session(str(folder))).session_id
        await asyncio.wait_for(told.wait(), HANG_S)
        closing = asyncio.create_task(service.close_session(session))
        asked = asyncio.create_task(service.prompt([text_block("Hello.")], session))
        with pytest.raises(RequestError, match="this session was closed"):
            await asyncio.wait_for(asked, HANG_S)
        assert not closing.done()
        reads.set()
        await asyncio.wait_for(closing, HANG_S)
    assert lab.count() == 0


async def test_servers_that_the_editor_names_are_told_by_name(lab: Lab, folder: Path) -> None:
    """They are not started; the person reads which tools the model does not have. A flood of them is told in one line."""
    servers = [McpServerStdio(name=f"own-{n}\x1b[2J", command="/bin/false", args=[], env=[]) for n in range(300)]
    async with editing(given_at(lab, "plain-answer")) as (client, editor):
        first = (await client.new_session(cwd=str(folder), mcp_servers=cast("Any", servers[:2]))).session_id
        await say(client, first, "Hello.")
        assert "MCP servers are not started (own-0" in editor.text() and "own-1" in editor.text()
        many = (await client.new_session(cwd=str(folder), mcp_servers=cast("Any", servers))).session_id
        await say(client, many, "Hello.")
    assert "and 290 more" in editor.text() and "\x1b" not in editor.text()


@pytest.mark.parametrize("files", [1, 60, MAX_FILES + 1])
async def test_each_file_of_a_change_is_asked_about(tmp_path: Path, files: int) -> None:
    """The last one has unsaved text, so nothing is changed; where they are too many to ask about, neither."""
    changed: list[str] = []

    @tool(name="apply_patch", effect="write")
    async def apply_patch(patch: str) -> str:
        """Change files."""
        changed.append(patch)
        return "changed"

    class Client:
        async def read_text_file(self, *, session_id: str, path: str) -> ReadTextFileResponse:
            last = path.endswith(f"/{files - 1}.txt")
            return ReadTextFileResponse(content="not saved\n" if last else "saved\n")

    for number in range(files):
        (tmp_path / f"{number}.txt").write_text("saved\n")
    parts = [f"*** Update File: {number}.txt\n@@\n-saved\n+changed" for number in range(files)]
    patch = "\n".join(["*** Begin Patch", *parts, "*** End Patch"])
    paths = WorkspacePaths(tmp_path)
    fitted = with_unsaved(
        apply_patch.tool, client=cast("Any", Client()), session="s", workspace=paths, clock=SystemClock()
    )
    assert fitted.function is not None
    why = f"`{files - 1}.txt` has unsaved changes" if files <= MAX_FILES else f"{files} files"
    with pytest.raises(ToolFault, match=why):
        await cast("Any", fitted.function({"patch": patch}))
    assert not changed


@pytest.mark.parametrize("name", [".mcp.json", "turnwise.toml"])
async def test_servers_of_files_start_nothing_and_are_told(lab: Lab, folder: Path, name: str) -> None:
    """A project's file runs no command by being there, and nobody wonders where a server's tools are."""
    entry = {"command": "touch", "args": [str(folder / "ran.txt")]}
    as_toml = f'[mcp.x]\ncommand = ["touch", "{folder}/ran.txt"]\n'
    (folder / name).write_text(json.dumps({"mcpServers": {"x": entry}}) if name == ".mcp.json" else as_toml)
    async with editing(given_at(lab, "plain-answer")) as (client, editor):
        await say(client, await new(client, folder), "Hello.")
    assert (
        "do not start in an editor's session: the model does not have their tools" in editor.text()
        and not (folder / "ran.txt").exists()
    )
