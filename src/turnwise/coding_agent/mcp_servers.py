"""The MCP servers of a run: which of those that files name may start, who says so, and what is told of the others."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from turnwise.agent.mcp_servers import ServerToolset
from turnwise.base.clock import Clock
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.text import visible_line
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.settings.mcp_files import (
    NamedServer,
    ServerAddress,
    ServerCommand,
    ServerEntry,
    around_of,
    read_servers,
    shown,
)
from turnwise.settings.settings import read_layers
from turnwise.tools.mcp.trust import ChangedTool, ServerTrust, path_apart, runs_inside
from turnwise.tools.workspace.diffs import diff_of
from turnwise.tools.workspace.staged_changes import FileChange

if TYPE_CHECKING:
    from turnwise.tools.mcp.offered_tools import Listing, OfferedTool

Confirm = Callable[[Sequence[str], str], bool]
"""Shows the lines, asks the question, and says whether the answer is yes."""


class ServerStart(msgspec.Struct, frozen=True, kw_only=True):
    """The notes before a server starts. `untrusted`: a project names it, and nobody has said yes to that. `inside`: why it may be
    another program each time."""

    server: NamedServer
    untrusted: bool = False
    inside: str = ""

    @property
    def is_asked(self) -> bool:
        return self.untrusted or bool(self.inside)

    @property
    def said(self) -> str:
        """For lists: what happens at a start."""
        if self.inside:
            return f"asked about at each start: {self.inside}"
        return "asked about once: a file in the project names it" if self.untrusted else "starts"


def named_servers(
    folder: Path,
    *,
    files: Sequence[Path] = (),
    network: bool = False,
    more_keys: Collection[str | None] = (),
    leave_out: Callable[[str], object] | None = None,
) -> tuple[NamedServer, ...]:
    """All that files name for a run in this folder. `more_keys` are variables that hold keys, too. Raises CallerError."""
    keys = {name for profile in known_profiles().values() for name in profile.api_key_env}
    keys |= {key for key in more_keys if key}
    layers = read_layers(folder, env=os.environ)
    around = around_of(folder, keys=keys, network=network)
    return read_servers(layers, files=files, around=around, leave_out=leave_out)


def start_of(server: NamedServer, *, trust: ServerTrust) -> ServerStart:
    """The notes before the server starts."""
    reached = server.entry.reached
    inside = runs_inside(reached, path=os.environ.get("PATH")) if isinstance(reached, ServerCommand) else ""
    untrusted = (server.source == "project" or server.may_change) and not trust.is_trusted(server.digest)
    return ServerStart(server=server, untrusted=untrusted, inside=inside)


def judged_servers(
    given: Given, *, asks: Confirm | None, clock: Clock, session_key: str | None = None, one_turn: bool = True
) -> tuple[tuple[ServerToolset, ...], tuple[str, ...]]:
    """Those that may start in this run, and why each other server is left out. `asks` puts a server to the person; it is None
    if nobody is there. Raises CallerError."""
    folder, files, network = (given["cwd"] or Path.cwd()).resolve(), given["mcp"], given["network"]
    trust = ServerTrust.of_user(os.environ)
    toolsets: list[ServerToolset] = []
    notes: list[str] = []
    keys = (given["api_key_env"], session_key)
    for server in named_servers(folder, files=files, network=network, more_keys=keys, leave_out=notes.append):
        start = start_of(server, trust=trust)
        if start.is_asked and (why := refusal_of(start, trust=trust, asks=asks)):
            notes.append(f"the MCP server `{server.name}` is left out: {why}")
            continue
        _ask_about_changes(server, trust=trust, asks=asks)
        toolsets.append(toolset_of(start, trust=trust, network=network, clock=clock, one_turn=one_turn))
    return tuple(toolsets), tuple(notes)


def toolset_of(
    start: ServerStart, *, trust: ServerTrust, network: bool, clock: Clock, one_turn: bool = True
) -> ServerToolset:
    """The server as a toolset: one that may be another program each time runs in the sandbox, with no more than the model's own
    commands may; and of each, only tools whose descriptions are those that were trusted."""
    entry = start.server.entry
    entry = _confined(entry, network=network) if start.inside else _apart(entry)
    return ServerToolset(entry, clock=clock, admit=_Admission(start.server, trust=trust), one_turn=one_turn)


def refusal_of(start: ServerStart, *, trust: ServerTrust, asks: Confirm | None) -> str:
    """Why it does not start; empty where somebody said yes."""
    server = start.server
    why = start.inside or f"{server.where} lies in the project, and nobody has trusted it"
    if asks is None:
        return f"{why}; nobody is there to be asked: run turnwise at a terminal"
    verb = "run" if isinstance(server.entry.reached, ServerCommand) else "be reached at"
    lines = [f"MCP server `{server.name}` ({server.where}) would {verb}: {shown(server)}"]
    if start.inside:
        lines.append(f"it may be another program than the last time: {start.inside}")
    if server.variables:
        lines.append(f"it is given the variables: {', '.join(server.variables)}")
    if isinstance(server.entry.reached, ServerCommand) and not start.inside and not server.entry.reached.sandbox:
        lines.append("it runs without a sandbox")
    if isinstance(server.entry.reached, ServerAddress):
        lines.append("it is another machine: what the model gives its tools leaves this one")
    if not asks(lines, f"start {server.name}? [y/N] "):
        return "you said no"
    if start.untrusted:
        trust.trust(server.digest)
    return ""


def _ask_about_changes(server: NamedServer, *, trust: ServerTrust, asks: Confirm | None) -> None:
    changed = trust.changed_of(server.digest)
    if not changed or asks is None or "" in {one.said for one in changed.values()}:
        return  # what was noted without its words is noted again at this start
    lines = [f"MCP server `{server.name}` says something else of its tools than when it was trusted:"]
    for name, one in changed.items():
        lines += [
            f"  {visible_line(line)}" for line in _difference(name, before=trust.said_of(server.digest), now=one.said)
        ]
    if asks(lines, "offer them to the model? [y/N] "):
        trust.accept_changes(server.digest)


def _difference(name: str, *, before: Mapping[str, str], now: str) -> list[str]:
    """All of what is new or gone in what is said of the tool; of one whose words were not kept, all of them."""
    was, here = before.get(name), Path()
    return diff_of(
        FileChange(path=here, base=here, shown=name, before=None if was is None else was.encode(), after=now.encode())
    )


def _confined(entry: ServerEntry, *, network: bool) -> ServerEntry:
    assert isinstance(entry.reached, ServerCommand), "only a command runs here"
    reached = msgspec.structs.replace(entry.reached, sandbox=True, network=network, is_confined=True)
    return msgspec.structs.replace(entry, reached=reached, sampling=0)


def _apart(entry: ServerEntry) -> ServerEntry:
    """What the server starts by name, it does not find in the folder either (an activated environment is first in PATH)."""
    if not isinstance(entry.reached, ServerCommand):
        return entry
    path = path_apart(entry.reached, path=os.environ.get("PATH"))
    if path is None:
        return entry
    reached = msgspec.structs.replace(entry.reached, env={**entry.reached.env, "PATH": path})
    return msgspec.structs.replace(entry, reached=reached)


def _words_of(tools: "Mapping[str, OfferedTool]") -> dict[str, ChangedTool]:
    return {name: ChangedTool(one.digest, one.said) for name, one in tools.items()}


class _Admission:
    """Offers the tools of which the server says what it said when it was trusted; the others are told, and asked about at the
    next start. The first time, what it says is what is trusted."""

    def __init__(self, server: NamedServer, *, trust: ServerTrust) -> None:
        self._server, self._trust = server, trust

    def __call__(self, listing: "Listing") -> "tuple[Sequence[OfferedTool], str]":
        now: Mapping[str, OfferedTool] = {one.own_name: one for one in listing.tools}
        told = self._trust.told_of(self._server.digest)
        if told is None:
            self._trust.remember(self._server.digest, _words_of(now))
            return listing.tools, ""
        changed = {name: one for name, one in now.items() if told.get(name) != one.digest}
        if not changed:
            return listing.tools, ""
        self._trust.note_changed(self._server.digest, _words_of(changed))
        names = ", ".join([f"`{name}`" for name in changed])
        return (
            [one for name, one in now.items() if name not in changed],
            f"it says something else of {names} than when it was trusted, so they are left out; the next start at a terminal "
            "asks about them",
        )
