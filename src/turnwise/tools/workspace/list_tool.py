"""The tool `list`: what is in a folder."""

import os
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.folder_walk import ask_worker
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.vocab.file_names import shown_name

MAX_ENTRIES = 1000
MAX_DEPTH = 12
LIST_S = 15.0

DESCRIPTION = """List a folder: folders end with `/`, files are followed by their size in bytes. `depth` goes into \
subfolders; `glob` keeps the files whose name or path matches (`*.py`, `src/*.md`) and searches all subfolders. Files that \
`.gitignore` names are left out."""

_KINDS = {
    "folder": "{}/",
    "skipped": "{}/ (not looked into)",
    "ignored": "{}/ (ignored by git, not looked into)",
    "link": "{} (a link)",
    "other": "{} (a device, pipe or socket)",
}


class ListArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The folder, relative to the workspace")] = "."
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH, description="How many levels of folders to show")] = 1
    glob: Annotated[str, Meta(description="Only files whose name or path matches this pattern")] = ""


class FolderListing(msgspec.Struct, frozen=True):
    """The worker's answer: path below the start (its bytes as Latin-1), kind and size (-1: unknown) of each entry."""

    entries: list[tuple[str, str, int]]


async def list_folder(workspace: WorkspacePaths, given: ListArguments, *, timeout_s: float = LIST_S) -> str:
    start = workspace.existing(given.path, to_read=True)
    if not start.is_dir():
        raise ToolFault(f"`{given.path}` is a file: use `read`")
    order: dict[str, object] = {
        "task": "list",
        "glob": given.glob,
        "depth": MAX_DEPTH if given.glob else given.depth,
        "max_entries": MAX_ENTRIES,
    }
    found = await ask_worker(workspace, start, order=order, takes=FolderListing, timeout_s=timeout_s)
    lines = [
        _KINDS.get(kind, f"{{}} ({size:,})").format(shown_name(os.fsdecode(path.encode("latin-1"))))
        for path, kind, size in found.entries[:MAX_ENTRIES]
    ]
    if len(found.entries) > MAX_ENTRIES:
        lines.append(f"[more than {MAX_ENTRIES} entries: list a subfolder, or give a `glob`]")
    return "\n".join(lines) or ("no file matches" if given.glob else f"`{given.path}` is empty")
