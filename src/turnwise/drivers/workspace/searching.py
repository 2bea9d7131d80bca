"""The tool `search`: a regular expression over the files of a folder."""

import re
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import SKIPPED_FOLDERS, Workspace
from turnwise.drivers.workspace.processes import run_group
from turnwise.errors import ToolFault

MAX_MATCHES = 200
MAX_LINE_CHARACTERS = 300
MAX_FILE_BYTES = 8 * 1024 * 1024
SEARCH_S = 30.0
WORKER = Path(__file__).with_name("search_worker.py")

DESCRIPTION = """Search files for a regular expression (Python syntax), line by line. Gives `path:line: text` for each \
match. Version control, dependencies, caches and binary files are passed over."""


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: Annotated[str, Meta(description="The regular expression")]
    path: Annotated[str, Meta(description="The folder or file to search, relative to the workspace")] = "."
    glob: Annotated[str, Meta(description="Only files whose name or path matches this pattern, like `*.py`")] = ""
    ignore_case: Annotated[bool, Meta(description="Match upper and lower case alike")] = False


class Found(msgspec.Struct, frozen=True):
    """The worker's answer: path, line number and text of each match, and how many files were looked at."""

    matches: list[tuple[str, int, str]]
    files: int


async def search(workspace: Workspace, given: SearchArguments, *, timeout_s: float = SEARCH_S) -> str:
    start = workspace.existing(given.path)
    try:
        re.compile(given.pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolFault(f"`pattern` is no regular expression: {error}") from None
    found = await _ask_worker(workspace, start, given, timeout_s=timeout_s)
    if not found.matches:
        return f"no match in {found.files} files"
    lines = [f"{path}:{number}: {text}" for path, number, text in found.matches[:MAX_MATCHES]]
    if len(found.matches) > MAX_MATCHES:
        lines.append(f"[more than {MAX_MATCHES} matches: narrow the pattern, the path or the `glob`]")
    return "\n".join(lines)


async def _ask_worker(workspace: Workspace, start: Path, given: SearchArguments, *, timeout_s: float) -> Found:
    order = msgspec.structs.asdict(given) | {
        "root": str(workspace.root),
        "start": str(start),
        "skipped": sorted(SKIPPED_FOLDERS),
        "max_matches": MAX_MATCHES,
        "max_line": MAX_LINE_CHARACTERS,
        "max_bytes": MAX_FILE_BYTES,
        "alarm_s": timeout_s + 1,  # after our own end of it, for where we are no more
    }
    answer = bytearray()
    try:
        code = await run_group(
            [sys.executable, "-I", "-S", "-X", "utf8", str(WORKER)],
            cwd=workspace.root,
            env={},
            timeout_s=timeout_s,
            on_output=answer.extend,
            given=msgspec.json.encode(order),
        )
    except TimeoutError:
        raise ToolFault(
            f"the search took longer than {timeout_s:g} s: narrow the path or simplify the pattern"
        ) from None
    if code:
        raise ToolFault(f"the search failed: {answer.decode('utf-8', 'replace').strip().rpartition(chr(10))[2]}")
    return msgspec.json.decode(answer, type=Found)
