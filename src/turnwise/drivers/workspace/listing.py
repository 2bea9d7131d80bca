"""The tool `list`: what is in a folder."""

import fnmatch
import os
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import SKIPPED_FOLDERS, Workspace
from turnwise.errors import ToolFault

MAX_ENTRIES = 1000
MAX_DEPTH = 12

DESCRIPTION = """List a folder: folders end with `/`, files are followed by their size in bytes. `depth` goes into \
subfolders; `glob` keeps the files whose name or path matches (`*.py`, `src/*.md`) and searches all subfolders."""


class ListArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The folder, relative to the workspace")] = "."
    depth: Annotated[int, Meta(ge=1, le=MAX_DEPTH, description="How many levels of folders to show")] = 1
    glob: Annotated[str, Meta(description="Only files whose name or path matches this pattern")] = ""


def list_folder(workspace: Workspace, given: ListArguments) -> str:
    start = workspace.existing(given.path)
    if not start.is_dir():
        raise ToolFault(f"`{given.path}` is a file: use `read`")
    depth = given.depth if not given.glob else MAX_DEPTH
    lines: list[str] = []
    for entry, relative in _walk(str(start), prefix="", depth=depth):
        if given.glob and (
            entry.is_dir() or not (fnmatch.fnmatch(relative, given.glob) or fnmatch.fnmatch(entry.name, given.glob))
        ):
            continue
        if len(lines) == MAX_ENTRIES:
            lines.append(f"[more than {MAX_ENTRIES} entries: list a subfolder, or give a `glob`]")
            break
        lines.append(os.fsencode(_line(entry, relative)).decode("utf-8", "replace"))
    if not lines:
        return "no file matches" if given.glob else f"`{given.path}` is empty"
    return "\n".join(lines)


def _walk(folder: str, *, prefix: str, depth: int) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Entries in the order of their names, a folder's content after it. Links are shown and not followed."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return  # no right to look into it
    for entry in entries:
        yield entry, prefix + entry.name
        if depth > 1 and entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED_FOLDERS:
            yield from _walk(entry.path, prefix=f"{prefix}{entry.name}/", depth=depth - 1)


def _line(entry: os.DirEntry[str], relative: str) -> str:
    if entry.is_symlink():
        return f"{relative} (a link)"
    if entry.is_dir(follow_symlinks=False):
        return f"{relative}/ (not looked into)" if entry.name in SKIPPED_FOLDERS else f"{relative}/"
    try:
        return f"{relative} ({entry.stat(follow_symlinks=False).st_size:,})"
    except OSError:
        return relative  # gone meanwhile
