"""The tools that work in one folder: read, write, edit, list, search, bash."""

from pathlib import Path

from turnwise.drivers.tools import Tool
from turnwise.drivers.workspace import editing, listing, reading, searching, shell, writing
from turnwise.drivers.workspace.offers import make_tool
from turnwise.drivers.workspace.paths import Workspace

SPARE_S = 5.0  # `bash` and `search` end by their own deadline, with what they have; the turn's comes after it


def workspace_tools(root: Path | str, *, hidden_env: frozenset[str] = frozenset()) -> tuple[Tool, ...]:
    """The six tools, confined to `root`. `hidden_env` are variables that `bash` does not pass on.

    What changes something is exclusive, so calls of one step that depend on each other's order keep it.
    """
    workspace = Workspace(root)

    async def search(given: searching.SearchArguments) -> str:
        return await searching.search(workspace, given)

    async def bash(given: shell.BashArguments) -> str:
        return await shell.bash(workspace, given, hidden=hidden_env)

    return (
        make_tool(
            "read",
            description=reading.DESCRIPTION,
            takes=reading.ReadArguments,
            function=lambda given: reading.read(workspace, given),
            effect="read",
            idempotent=True,
        ),
        make_tool(
            "write",
            description=writing.DESCRIPTION,
            takes=writing.WriteArguments,
            function=lambda given: writing.write(workspace, given),
            effect="write",
            exclusive=True,
        ),
        make_tool(
            "edit",
            description=editing.DESCRIPTION,
            takes=editing.EditArguments,
            function=lambda given: editing.edit(workspace, given),
            effect="write",
            exclusive=True,
        ),
        make_tool(
            "list",
            description=listing.DESCRIPTION,
            takes=listing.ListArguments,
            function=lambda given: listing.list_folder(workspace, given),
            effect="read",
            idempotent=True,
        ),
        make_tool(
            "search",
            description=searching.DESCRIPTION,
            takes=searching.SearchArguments,
            function=search,
            effect="read",
            idempotent=True,
            timeout_s=searching.SEARCH_S + SPARE_S,
        ),
        make_tool(
            "bash",
            description=shell.DESCRIPTION,
            takes=shell.BashArguments,
            function=bash,
            effect="execute",
            exclusive=True,
            timeout_s=shell.MAX_S + SPARE_S,
        ),
    )
