"""What stands in an editor and not on the disk yet: `read` shows it, and a change of such a file is refused."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, cast

import msgspec
from acp.exceptions import RequestError
from pydantic import ValidationError

from turnwise.base.clock import Clock, ends_in_time
from turnwise.base.threads import in_thread, is_async
from turnwise.errors import ToolFault
from turnwise.running.tools import Arguments, Tool
from turnwise.tools.workspace.content import text_of
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import CHANGING, paths_of_call
from turnwise.tools.workspace.read_tool import ReadArguments, tell_text
from turnwise.vocab.file_names import is_text

if TYPE_CHECKING:
    from acp.agent.connection import AgentSideConnection
    from acp.schema import ReadTextFileResponse

WITHIN_S = 3.0  # an editor that takes longer is not waited for: the disk has the file
MAX_FILES = (
    200  # of one change: all are asked about at once, and one that was not asked about would lose its unsaved text
)
THREAD = "turnwise-tool"
SETTLE_S = 0.5


def with_unsaved(
    tool: Tool, *, client: "AgentSideConnection", session: str, workspace: WorkspacePaths, clock: Clock
) -> Tool:
    """The tool `read`, or one that changes files, that asks the editor first; any other as it is.

    The editor is asked about a path only after it was judged and resolved as the tool itself does it.
    """
    function = tool.function
    if function is None or (tool.name != "read" and tool.name not in CHANGING):
        return tool

    async def ask(name: str) -> str | None:
        path = await asyncio.to_thread(workspace.resolve, name, to_read=True)
        disk = await asyncio.to_thread(_on_disk, workspace, name)
        if disk is None or not is_text(str(path)):  # the protocol has no word for other names
            return None
        asking = asyncio.ensure_future(client.read_text_file(session_id=session, path=str(path)))
        return await _unsaved(asking, disk=disk, clock=clock)

    async def run(arguments: Arguments) -> object:
        names = tuple(dict.fromkeys(paths_of_call(tool.name, arguments)))
        if len(names) > MAX_FILES:
            raise ToolFault(
                f"the change is about {len(names)} files; nothing was changed. Make it in parts of {MAX_FILES}"
            )
        texts = await asyncio.gather(*[ask(name) for name in names])
        dirty = {name: text for name, text in zip(names, texts, strict=True) if text is not None}
        if dirty and tool.name != "read":
            raise ToolFault(
                f"{', '.join([f'`{name}`' for name in dirty])} has unsaved changes in the editor; nothing was changed. "
                "Ask the user to save it first"
            )
        for name, text in dirty.items():
            return _shown(name, text, arguments=arguments)
        return await _called(tool, arguments)

    return msgspec.structs.replace(tool, function=run)


async def _called(tool: Tool, arguments: Arguments) -> object:
    function = tool.function
    assert function is not None, "a tool of the folder has one"
    if is_async(function):
        return await cast("Awaitable[object]", function(arguments))
    failed: list[BaseException] = []

    def call() -> object:
        try:
            return function(arguments)
        except BaseException as error:  # noqa: BLE001 (raised again by the one who waits)
            failed.append(error)
            return None

    given = await in_thread(call, name=THREAD)
    if failed:
        raise failed[0]
    return given


async def _unsaved(asking: "asyncio.Task[ReadTextFileResponse]", *, disk: str, clock: Clock) -> str | None:
    """The editor's text, if it is another than the disk's. What the editor does not say in time is not waited for."""
    if not await ends_in_time(cast("asyncio.Task[object]", asking), clock=clock, timeout_s=WITHIN_S, settle_s=SETTLE_S):
        return None
    try:
        text = asking.result().content
    except (RequestError, ValidationError, ConnectionError, asyncio.CancelledError):
        return None
    return None if text.replace("\r\n", "\n") == disk.replace("\r\n", "\n") else text


def _on_disk(workspace: WorkspacePaths, name: str) -> str | None:
    """None for what is not there, or is no text: the tool itself says so."""
    try:
        found = text_of(workspace.find(name, to_read=True).content)
    except ToolFault:
        return None
    return None if found is None else found.text


def _shown(name: str, text: str, *, arguments: Arguments) -> str:
    """As `read` shows a file; what it is stands in front of it. Raises ToolFault."""
    try:
        given = msgspec.convert(arguments, ReadArguments, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFault(f"the arguments do not fit: {error}") from None
    found = text_of(text.encode("utf-8", "replace"))
    if found is None:
        raise ToolFault(f"`{name}` is no text in the user's editor")
    head = f"[`{name}` as it stands in the user's editor, not saved yet; it cannot be changed before it is saved]"
    return f"{head}\n{tell_text(found, given=given)}"
