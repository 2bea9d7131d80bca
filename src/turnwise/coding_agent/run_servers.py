"""The MCP servers of a run as the rest of the command line sees them. Most runs have none, and load nothing more."""

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from turnwise.agent.tools import Toolset
from turnwise.base.clock import Clock
from turnwise.coding_agent.options import Given
from turnwise.settings.settings import names_mcp_servers, read_layers
from turnwise.turn.config import Deadlines

if TYPE_CHECKING:
    from turnwise.agent.mcp_servers import ServerToolset
    from turnwise.coding_agent.mcp_servers import Confirm


class RunServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a run, not yet open. `notes` say of each that is left out why; `waiting_line` what the first turn waits
    for, and how long; `folder` is where they run."""

    toolsets: "tuple[ServerToolset, ...]" = ()
    notes: tuple[str, ...] = ()
    folder: Path | None = None

    @property
    def waiting_line(self) -> str:
        if not self.toolsets:
            return ""
        names = ", ".join([one.name for one in self.toolsets])
        return f"starting MCP servers, {max(one.entry.start_s for one in self.toolsets):g} s at most: {names}"


NO_SERVERS = RunServers()


def servers_of_run(
    given: Given,
    *,
    asks: "Confirm | None",
    clock: Clock,
    session_key: Callable[[], str | None] = lambda: None,
    one_turn: bool = True,
) -> RunServers:
    """Those that may start in this run. `asks` puts the others to the person; it is None if nobody is there. `session_key` names
    the variable with the key of the session that goes on: no server gets that one either. `one_turn`: no other turn comes after
    it. Raises CallerError."""
    folder = (given["cwd"] or Path.cwd()).resolve()
    if not given["mcp"] and not names_mcp_servers(folder, layers=read_layers(folder, env=os.environ)):
        return NO_SERVERS
    from turnwise.coding_agent.mcp_servers import judged_servers

    toolsets, notes = judged_servers(given, asks=asks, clock=clock, session_key=session_key(), one_turn=one_turn)
    return RunServers(toolsets=toolsets, notes=notes, folder=folder)


def servers_in(folder: Path, *, servers: RunServers) -> RunServers:
    """The same for a turn in this folder. Servers of another one were judged for that, and what the model of this turn may
    write is something else: they are left out."""
    if servers.folder in (None, folder.resolve()):
        return servers
    names = ", ".join([f"`{one.name}`" for one in servers.toolsets])
    note = f"MCP servers of {servers.folder} are left out, as the session works in {folder}: {names}"
    return RunServers(notes=(*servers.notes, note) if names else servers.notes)


def open_servers(servers: RunServers, *, clock: Clock) -> AbstractAsyncContextManager[None]:
    """They are open inside, for all turns of a session. Those that do not start are told by the turns."""
    if not servers.toolsets:
        return nullcontext()
    from turnwise.agent.toolsets import holding

    toolsets: list[Toolset] = list(servers.toolsets)
    return holding(toolsets, clock=clock, open_s=Deadlines().toolset_s)
