"""What an editor does for tools: commands in its terminal, where the user's own settings say `terminal = "editor"`, and texts
that are not saved yet.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from acp.exceptions import RequestError
from acp.schema import ClientCapabilities
from pydantic import ValidationError

from turnwise.base.clock import Clock, ends_in_time
from turnwise.base.threads import in_thread, is_async
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError, ToolFault
from turnwise.running.run_context import seconds_of
from turnwise.running.tools import Arguments, Tool
from turnwise.running.working_call import telling
from turnwise.settings.settings import Layer
from turnwise.tools.workspace.content import text_of
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import CHANGING, paths_of_call
from turnwise.tools.workspace.read_tool import ReadArguments, tell_text
from turnwise.tools.workspace.shell import KEPT_BYTES, BashArguments
from turnwise.vocab import ToolCall
from turnwise.vocab.file_names import is_text
from turnwise.vocab.wording import in_ticks

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from acp.agent.connection import AgentSideConnection
    from acp.schema import TerminalOutputResponse

WITHIN_S = 10.0  # for each answer of the editor that it can give at once
SETTLE_S = 0.5
DESCRIPTION = """Run a command with bash in the workspace folder, in a terminal of the user's editor, without a sandbox. Its \
output is returned, and its exit code where that is not 0. It has no standard input."""

Answer = TypeVar("Answer")


def runs_in_editor(layers: Iterable[Layer], *, can: ClientCapabilities) -> bool:
    """Whether the user's own file wants it; a project's cannot. Raises CallerError where the editor has no terminal."""
    wanted = any(layer.source == "user" and layer.table.get("terminal") == "editor" for layer in layers)
    if wanted and not can.terminal:
        raise CallerError(
            '`terminal = "editor"` stands in your turnwise.toml, and this editor offers no terminal: take it out'
        )
    return wanted


def in_terminal(
    tool: Tool,
    *,
    client: "AgentSideConnection",
    session: str,
    folder: Path,
    clock: Clock,
    shows: Callable[[ToolCall, str], object],
) -> Tool:
    """`bash` that runs there. When its time is up, and when the turn ends, the editor is told to end the command. `shows` is
    told which terminal a call has."""

    async def run(arguments: Arguments) -> str:
        given = _fitting(arguments, BashArguments)
        timeout_s, _ = seconds_of(given.timeout_s)
        making = client.create_terminal(
            session_id=session,
            command="bash",
            args=["-c", given.command],
            cwd=str(folder),
            output_byte_limit=2 * KEPT_BYTES,
        )
        try:
            terminal = (await _told(making, clock=clock, within_s=WITHIN_S)).terminal_id
        except TimeoutError:
            raise ToolFault("the editor opened no terminal in time; the command was not run") from None
        if (watched := telling()) is not None:
            shows(watched.call, terminal)
        is_over = False
        try:
            waiting = client.wait_for_terminal_exit(session_id=session, terminal_id=terminal)
            try:
                await _told(waiting, clock=clock, within_s=timeout_s)
            except TimeoutError:
                is_over = True
                await _quietly(client.kill_terminal(session, terminal), clock=clock)
            try:
                said = await _told(client.terminal_output(session, terminal), clock=clock, within_s=WITHIN_S)
            except TimeoutError:
                raise ToolFault("the command ended, and the editor did not say what it printed") from None
        except asyncio.CancelledError:
            await _quietly(client.kill_terminal(session, terminal), clock=clock)
            raise
        finally:
            await _quietly(client.release_terminal(session, terminal), clock=clock)
        return _result(said, timeout_s=timeout_s if is_over else None)

    spec = msgspec.structs.replace(tool.offer.spec, description=DESCRIPTION)
    return msgspec.structs.replace(tool, function=run, offer=msgspec.structs.replace(tool.offer, spec=spec))


def _fitting(arguments: Arguments, type: type[Answer]) -> Answer:
    try:
        return msgspec.convert(arguments, type, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFault(f"the arguments do not fit: {error}") from None


async def _told(asking: "Coroutine[object, object, Answer]", *, clock: Clock, within_s: float) -> Answer:
    """What the editor answers. Raises TimeoutError, and ToolFault where it refuses or answers nonsense."""
    task = asyncio.ensure_future(asking)
    if not await ends_in_time(cast("asyncio.Task[object]", task), clock=clock, timeout_s=within_s, settle_s=SETTLE_S):
        raise TimeoutError
    try:
        return task.result()
    except (RequestError, ValidationError, ConnectionError, asyncio.CancelledError) as error:
        raise ToolFault(f"the editor's terminal failed: {type(error).__name__}") from None


async def _quietly(asking: "Coroutine[object, object, Answer]", *, clock: Clock) -> None:
    """Whether it works or not: the editor owns the terminal."""
    with contextlib.suppress(ToolFault, TimeoutError):
        await _told(asking, clock=clock, within_s=SETTLE_S)


def _result(said: "TerminalOutputResponse", *, timeout_s: float | None) -> str:
    """Raises ToolFault with the output where the command failed or ran out of time."""
    text = said.output.encode("utf-8", "replace").decode()[-2 * KEPT_BYTES :]
    notes = ["[the beginning of the output was left out]"] if said.truncated else []
    status = said.exit_status
    has_failed = timeout_s is not None
    if timeout_s is not None:
        notes.append(f"[timed out after {round(timeout_s, 2):g} s; it was ended]")
    elif status is not None and (status.exit_code or status.signal):
        has_failed = True
        how = f" ({visible_line(status.signal)[:40]})" if status.signal else ""
        notes.append(f"[exit code {status.exit_code if status.exit_code is not None else 128}{how}]")
    whole = f"{text}\n{chr(10).join(notes)}" if notes else text
    if has_failed:
        raise ToolFault(whole)
    return whole


# What stands in an editor and not on the disk yet: `read` shows it, and a change of such a file is refused.


BUFFER_WITHIN_S = 3.0  # an editor that takes longer is not waited for: the disk has the file
MAX_FILES = 200  # of one change: all are asked about at once, and a file left out would lose its unsaved text
THREAD = "turnwise-tool"


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
        asking = client.read_text_file(session_id=session, path=str(path))
        try:
            text = (await _told(asking, clock=clock, within_s=BUFFER_WITHIN_S)).content
        except (ToolFault, TimeoutError):  # what the editor does not say in time is not waited for
            return None
        return None if text.replace("\r\n", "\n") == disk.replace("\r\n", "\n") else text

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
                f"{in_ticks(dirty)} has unsaved changes in the editor; nothing was changed. "
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


def _on_disk(workspace: WorkspacePaths, name: str) -> str | None:
    """None for what is not there, or is no text: the tool itself says so."""
    try:
        found = text_of(workspace.find(name, to_read=True).content)
    except ToolFault:
        return None
    return None if found is None else found.text


def _shown(name: str, text: str, *, arguments: Arguments) -> str:
    """As `read` shows a file; what it is stands in front of it. Raises ToolFault."""
    given = _fitting(arguments, ReadArguments)
    found = text_of(text.encode("utf-8", "replace"))
    if found is None:
        raise ToolFault(f"`{name}` is no text in the user's editor")
    head = f"[`{name}` as it stands in the user's editor, not saved yet; it cannot be changed before it is saved]"
    return f"{head}\n{tell_text(found, given=given)}"
