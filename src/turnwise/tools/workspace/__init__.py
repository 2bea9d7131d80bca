"""The tools that work in one folder: read, write, edit, multi_edit, apply_patch, list, search, bash."""

import functools
from pathlib import Path

from turnwise.running.run_context import call_at_work
from turnwise.running.tools import Arguments, Tool
from turnwise.tools.workspace import (
    edit_tool as editing,
)
from turnwise.tools.workspace import edit_tool as writing
from turnwise.tools.workspace import (
    patch_tool as patching,
)
from turnwise.tools.workspace import read_tool as listing
from turnwise.tools.workspace import (
    read_tool as reading,
)
from turnwise.tools.workspace import read_tool as searching
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.plans import told_of_change
from turnwise.tools.workspace.previews import make_tool
from turnwise.tools.workspace.read_tool import instructions_for, with_instructions
from turnwise.tools.workspace.shell import MAX_S, BashArguments, Shell

GRACE_S = 5.0  # `bash`, `list` and `search` end by their own deadline, with what they have


def workspace_tools(
    root: WorkspacePaths | Path | str, *, hidden_env: frozenset[str] = frozenset(), shell: Shell | None = None
) -> tuple[Tool, ...]:
    """The tools of one session, confined to `root`. `bash` does not pass on `hidden_env`; or a `shell` says it.

    What changes something is exclusive, so calls of one step that depend on each other's order keep it. `WorkspacePaths` instead
    of a folder says more: what may be used outside of it, and where old contents are kept.
    """
    workspace = root if isinstance(root, WorkspacePaths) else WorkspacePaths(root)
    commands = shell if shell is not None else Shell(workspace.root, hidden_env=hidden_env)
    workspace.reads_from(commands.kept)

    def read(given: reading.ReadArguments) -> object:
        result = reading.read(workspace, given)
        files = instructions_for(workspace, workspace.real_path(given.path))
        return with_instructions(result, files, workspace=workspace) if files else result

    async def list_folder(given: listing.ListArguments) -> str:
        return await listing.list_folder(workspace, given)

    async def search(given: searching.SearchArguments) -> str:
        return await searching.search(workspace, given)

    def was_changed(_: Arguments) -> str | None:
        return told_of_change(workspace, call=call_at_work())

    changing = functools.partial(make_tool, effect="write", exclusive=True, reconcile=was_changed)

    async def bash(given: BashArguments) -> str:
        return await commands.run(given)

    return (
        make_tool(
            "read",
            description=reading.DESCRIPTION,
            takes=reading.ReadArguments,
            function=read,
            effect="read",
            idempotent=True,
        ),
        changing(
            "write",
            description=writing.WRITE_DESCRIPTION,
            takes=writing.WriteArguments,
            function=lambda given: writing.write(workspace, given),
        ),
        changing(
            "edit",
            description=editing.DESCRIPTION,
            takes=editing.EditArguments,
            function=lambda given: editing.edit(workspace, given),
        ),
        changing(
            "multi_edit",
            description=editing.MULTI_DESCRIPTION,
            takes=editing.MultiEditArguments,
            function=lambda given: editing.multi_edit(workspace, given),
        ),
        changing(
            "apply_patch",
            description=patching.DESCRIPTION,
            takes=patching.PatchArguments,
            function=lambda given: patching.apply_patch(workspace, given),
        ),
        make_tool(
            "list",
            description=listing.LIST_DESCRIPTION,
            takes=listing.ListArguments,
            function=list_folder,
            effect="read",
            idempotent=True,
            timeout_s=listing.LIST_S,
            grace_s=GRACE_S,
        ),
        make_tool(
            "search",
            description=searching.SEARCH_DESCRIPTION,
            takes=searching.SearchArguments,
            function=search,
            effect="read",
            idempotent=True,
            timeout_s=searching.SEARCH_S,
            grace_s=GRACE_S,
        ),
        make_tool(
            "bash",
            description=commands.description,
            takes=BashArguments,
            function=bash,
            effect="execute",
            exclusive=True,
            timeout_s=MAX_S,
            grace_s=GRACE_S,
            keeps=commands.kept,
        ),
    )
