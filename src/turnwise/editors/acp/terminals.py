"""Commands in the editor's terminal, where the user's own settings say `terminal = "editor"`: there is no sandbox."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from acp.exceptions import RequestError
from acp.schema import ClientCapabilities
from pydantic import ValidationError

from turnwise.base.clock import Clock, ends_in_time
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError, ToolFault
from turnwise.running.grants import seconds_of
from turnwise.running.tools import Arguments, Tool
from turnwise.running.working_call import telling
from turnwise.settings.settings import Layer
from turnwise.tools.workspace.shell import KEPT_BYTES, BashArguments
from turnwise.vocab import ToolCall

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
        try:
            given = msgspec.convert(arguments, BashArguments, strict=False)
        except msgspec.ValidationError as error:
            raise ToolFault(f"the arguments do not fit: {error}") from None
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


async def _told(asking: "Coroutine[object, object, Answer]", *, clock: Clock, within_s: float) -> Answer:
    """What the editor answers. Raises TimeoutError, and ToolFault where it refuses or answers nonsense."""
    task = asyncio.ensure_future(asking)
    if not await ends_in_time(cast("asyncio.Task[object]", task), clock=clock, timeout_s=within_s, settle_s=SETTLE_S):
        raise TimeoutError
    try:
        return task.result()
    except (RequestError, ValidationError, ConnectionError) as error:
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
