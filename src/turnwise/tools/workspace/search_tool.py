"""The tool `search`: a regular expression over the files of a folder, by ripgrep where it is there, else by ourselves."""

import os
import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.base.programs import ProgramSearch
from turnwise.errors import ToolFault
from turnwise.rules import guarded_names
from turnwise.tools.workspace.content import printable, text_of
from turnwise.tools.workspace.folder_walk import ask_worker
from turnwise.tools.workspace.paths import MAX_READ_BYTES, WorkspacePaths

MAX_MATCHES = 200
MAX_LINE_CHARACTERS = 300
MAX_FILE_BYTES = 8 * 1024 * 1024
SEARCH_S = 30.0
MAX_PATTERN_CHARACTERS = 4096  # longer ones are lists of words: several searches, or `bash` with `grep -f`

DESCRIPTION = """Search files for a regular expression (Python syntax), line by line. Gives `path:line: text` for each \
match. What `.gitignore` names, version control, dependencies, caches and binary files are passed over, and so are files that \
usually hold secrets (`.env`, keys): name one as `path` to search it."""

# What means the same in Python and in ripgrep's Rust: no look-around, no back references, no possessive repetition, only
# plain sets and escapes. Anything else is searched by Python. Compiled by the first search.
# Nothing in it goes back (`++`, `*+`), so it takes time linear in the pattern.
_COMMON = r"""(?>[^\\\[\](){}?*+|]            # a character, a dot, an anchor
    |\\[bBdDsSwW.^$*+?()\[\]{}|\\/"'\-]  # an escape
    |\[\^?+[\w\ .,:;=@"'!/<>#%]++(?:-\w[\w\ .,:;=@"'!/<>#%]*+)?+-?+\]  # a plain set
    |\((?:\?:)?+|\)|\|                   # a group, an alternative
    |[*+?](?![*+])|\{\d++(?:,\d*+)?+\}(?![*+])  # a repetition
    )*+"""


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="The regular expression")]
    path: Annotated[str, Meta(description="The folder or file to search, relative to the workspace")] = "."
    glob: Annotated[str, Meta(description="Only files whose name or path matches this pattern, like `*.py`")] = ""
    ignore_case: Annotated[bool, Meta(description="Match upper and lower case alike")] = False


class Matches(msgspec.Struct, frozen=True):
    """The worker's answer: the path below the start (its bytes as Latin-1) and the line number of each match. `wrong` says why
    the pattern is no regular expression."""

    matches: list[tuple[str, int]] = []
    wrong: str = ""


async def search(
    workspace: WorkspacePaths, given: SearchArguments, *, timeout_s: float = SEARCH_S, with_ripgrep: bool = True
) -> str:
    start = workspace.existing(given.path, to_read=True)
    if len(given.pattern) > MAX_PATTERN_CHARACTERS:
        raise ToolFault(
            f"`pattern` has {len(given.pattern):,} characters, more than {MAX_PATTERN_CHARACTERS:,}: search for less at once"
        )
    is_folder, home = start.is_dir(), workspace.home
    if not is_folder and (size := start.stat().st_size) > MAX_READ_BYTES:
        raise ToolFault(
            f"`{given.path}` has {size:,} bytes, more than {MAX_READ_BYTES:,}: use `bash` with grep, head or tail"
        )
    folder = start if is_folder else start.parent
    order: dict[str, object] = {
        "task": "search",
        "pattern": given.pattern,
        "ignore_case": given.ignore_case,
        "glob": given.glob,
        "prefix": "" if folder == workspace.root else f"{workspace.show(folder)}/",
        "single": None if is_folder else bytes(start)[len(bytes(folder)) :].lstrip(b"/").decode("latin-1"),
        "withheld": workspace.withheld,
        "names": guarded_names.__file__,
        # a folder that is secret itself was named on purpose: then names below it are looked at alone
        "place": "" if guarded_names.is_secret(str(folder), home=home) else printable(str(folder)),
        "home": printable(home),
        "max_matches": MAX_MATCHES,
        "max_bytes": MAX_FILE_BYTES if is_folder else MAX_READ_BYTES,
        "rg": _ripgrep(workspace, given.pattern) if with_ripgrep else "",
    }
    found = await ask_worker(workspace, folder, order=order, takes=Matches, timeout_s=timeout_s)
    if found.wrong:
        raise ToolFault(f"`pattern` is no regular expression: {found.wrong}")
    lines = _shown(workspace, folder, found.matches[:MAX_MATCHES])
    if len(found.matches) > MAX_MATCHES:
        lines.append(f"[more than {MAX_MATCHES} matches: narrow the pattern, the path or the `glob`]")
    return "\n".join(lines) or "no match"


def _ripgrep(workspace: WorkspacePaths, pattern: str) -> str:
    """Where it is; empty where it is not, or would not do what we do. One that stands in the workspace is not run: whoever
    can write there could have put it there."""
    if re.fullmatch(_COMMON, pattern, re.VERBOSE | re.ASCII) is None:
        return ""
    return ProgramSearch(os.environ.get("PATH"), workspace=str(workspace.root)).first_apart("rg")


def _shown(workspace: WorkspacePaths, folder: Path, matches: list[tuple[str, int]]) -> list[str]:
    """Each with its line, read by ourselves as `read` reads: whatever a search was led to, only what lies below is shown."""
    lines: list[str] = []
    texts: dict[str, list[str]] = {}
    for name, number in matches:
        path = folder / _decoded(name)
        if name not in texts:
            texts[name] = _lines_of(workspace, path)
        if number <= len(texts[name]):
            line = printable(texts[name][number - 1])[:MAX_LINE_CHARACTERS]
            lines.append(f"{workspace.show(path)}:{number}: {line}")
    return lines


def _decoded(name: str) -> str:
    return name.encode("latin-1").decode("utf-8", "surrogateescape")


def _lines_of(workspace: WorkspacePaths, path: Path) -> list[str]:
    try:
        found = workspace.look_at(path, name=workspace.show(path))
    except ToolFault:
        return []
    text = None if found is None else text_of(found.content)
    return [] if text is None else text.text.replace("\r\n", "\n").split("\n")
