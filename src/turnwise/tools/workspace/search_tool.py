"""The tool `search`: a regular expression over the files of a folder, by ripgrep where it is there, else by ourselves."""

import importlib.util
import os
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from turnwise.base.processes import run_group
from turnwise.base.programs import HELPER, ProgramSearch
from turnwise.errors import ToolFault
from turnwise.rules import permission_paths as guarded_names
from turnwise.running.grants import seconds_of
from turnwise.tools.workspace.content import printable, text_of
from turnwise.tools.workspace.paths import MAX_READ_BYTES, SKIPPED_FOLDERS, WorkspacePaths
from turnwise.turn.endings import TURNS_TIME
from turnwise.vocab.file_names import shown_name

# Orders to the worker that walks folders and searches files, with a deadline and a bounded answer.


WORKER = Path(__file__).with_name("search_worker.py")
_HELD = Path("/proc/self/fd")
_CAN_HOLD = _HELD.is_dir()

Answer = TypeVar("Answer", bound=msgspec.Struct)


async def ask_worker(
    workspace: WorkspacePaths, start: Path, *, order: dict[str, object], takes: type[Answer], timeout_s: float
) -> Answer:
    """What the worker finds in the resolved folder `start`. Raises ToolFault where it takes longer, or the folder is gone."""
    answer = bytearray()
    timeout_s, is_turns = seconds_of(timeout_s)
    order = order | {
        "skipped": sorted(SKIPPED_FOLDERS),
        "library": _library(),
        "alarm_s": timeout_s + 1,  # after our own end of it, for where we are no more
    }
    try:
        with workspace.disk.folder(start, base=workspace.base_of(start)) as folder:
            # the folder that was judged and is held open, whatever its name leads to by now
            place = _HELD / str(folder) if _CAN_HOLD else start
            code = await run_group(
                [*HELPER, "-W", "ignore", str(WORKER)],  # its answer is all that it says
                cwd=place,
                env={},
                timeout_s=timeout_s,
                on_output=answer.extend,
                given=msgspec.json.encode(order | _ignore_rules(workspace, start)),
            )
    except TimeoutError:
        why = TURNS_TIME if is_turns else "narrow the path or simplify the pattern"
        raise ToolFault(f"it took longer than {round(timeout_s, 2):g} s: {why}") from None
    except OSError as error:
        raise ToolFault(f"`{workspace.show(start)}` cannot be looked into: {error.strerror}") from None
    if code:
        raise ToolFault(f"it failed: {answer.decode('utf-8', 'replace').strip().rpartition(chr(10))[2]}")
    return msgspec.json.decode(answer, type=takes)


class Ignored(msgspec.Struct, frozen=True):
    """The worker's answer: whether a `.gitignore` names the file, or a folder that it lies in."""

    ignored: bool


async def is_ignored_file(workspace: WorkspacePaths, path: Path, *, timeout_s: float) -> bool:
    """Whether a `.gitignore` names the file at the real `path`. Without any there, no process is started. Raises ToolFault where
    it takes longer."""
    if not _has_rules(path.parent, workspace=workspace):
        return False
    order: dict[str, object] = {
        "task": "ignored",
        "single": bytes(path.name, "utf-8", "surrogateescape").decode("latin-1"),
    }
    return (await ask_worker(workspace, path.parent, order=order, takes=Ignored, timeout_s=timeout_s)).ignored


def _has_rules(start: Path, *, workspace: WorkspacePaths) -> bool:
    folders = (start, *_folders_above(start, workspace=workspace)[1])
    return any(os.path.lexists(folder / ".gitignore") for folder in folders)


def _ignore_rules(workspace: WorkspacePaths, start: Path) -> dict[str, object]:
    in_git, above = _folders_above(start, workspace=workspace)
    return {"in_git": in_git, "above": [bytes(folder).decode("latin-1") for folder in above]}


def _folders_above(start: Path, *, workspace: WorkspacePaths) -> tuple[bool, list[Path]]:
    """Whether there is a repository, and which folders above have a say: up to its root, or else up to the workspace's."""
    repository = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    top = repository or (workspace.root if workspace.is_inside(start) else start)
    above = [folder for folder in start.parents if folder == top or top in folder.parents]
    return repository is not None, above[::-1]


def _library() -> str:
    """Where `pathspec` is; the worker is started without any such place."""
    found = importlib.util.find_spec("pathspec")
    return "" if found is None or found.origin is None else str(Path(found.origin).parents[1])


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


# The tool `list`: what is in a folder.


MAX_ENTRIES = 1000
MAX_DEPTH = 12
LIST_S = 15.0

LIST_DESCRIPTION = """List a folder: folders end with `/`, files are followed by their size in bytes. `depth` goes into \
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
