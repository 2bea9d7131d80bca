"""The tools that only read: `read`, `list` and `search`, and the AGENTS.md of folders that a result comes from."""

import importlib.util
import os
import re
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from turnwise.base.processes import run_group
from turnwise.base.programs import HELPER, ProgramSearch
from turnwise.base.unasked_files import LeftOut, read_unasked
from turnwise.errors import ToolFault
from turnwise.rules import guarded_names
from turnwise.rules.guarded_names import is_secret
from turnwise.running.run_context import is_for_program, seconds_of
from turnwise.tools.workspace.content import FileText, LineSpan, image_type, kind_of, printable, text_of
from turnwise.tools.workspace.paths import MAX_READ_BYTES, OTHERS_FOLDERS, SKIPPED_FOLDERS, WorkspacePaths
from turnwise.turn.outcomes import TURNS_TIME
from turnwise.vocab import File, Message, Text, notes_of
from turnwise.vocab.file_names import shown_name
from turnwise.vocab.hidden_characters import shown

MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000  # minified files have lines of a megabyte
MAX_CHARACTERS = 60 * 1024  # below the cap on results, so that the note about the rest is never cut away
MAX_IMAGE_BYTES = 3_750_000  # 5 MB in base64, the least that a large provider takes (Anthropic docs, "Vision")

DESCRIPTION = """Read a text file: each line as its number, a tab, and its text. At most 2000 lines at a time: use `offset` \
and `limit` for the rest. An image (PNG, JPEG, GIF, WebP) is shown as it is."""

_REST = re.compile(r"\[lines (\d+) to (\d+) of (\d+); go on with ")  # every line of the file has its number first


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read; lines count from 1")] = 1
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many lines to read")] = MAX_LINES


def read(workspace: WorkspacePaths, given: ReadArguments, *, whole: bool = False) -> str | list[Text | File]:
    """`whole` refuses a text with bytes that are no UTF-8; otherwise a note counts them, and each is shown as U+FFFD."""
    found = workspace.find(given.path, to_read=True)
    media_type, text = image_type(found.content), text_of(found.content)
    if media_type is not None:
        image = _image(given.path, found.content, media_type=media_type)
        workspace.seen.keep(found.path, found.content)
        return image
    if text is None:
        raise ToolFault(f"`{given.path}` is {kind_of(found.content)} ({len(found.content):,} bytes)")
    if whole and (place := text.first_broken) is not None:
        raise ToolFault(f"`{given.path}` is not UTF-8 (byte {place} of {len(found.content):,})")
    lines = _lines_of(text)
    told, seen = _numbered(text, lines=lines, given=given)
    workspace.seen.keep_lines(found.path, found.content, shown=seen, total=len(lines))
    return told


def tell_text(text: FileText, *, given: ReadArguments) -> str:
    """What `read` tells of a text, wherever it stands."""
    return _numbered(text, lines=_lines_of(text), given=given)[0]


def _lines_of(text: FileText) -> list[str]:
    lines = printable(text.text).replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _image(path: str, content: bytes, *, media_type: str) -> list[Text | File]:
    size = f"{len(content):,} bytes"
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolFault(
            f"`{path}` is an image ({media_type}) of {size}, more than {MAX_IMAGE_BYTES:,}: make a smaller copy"
        )
    return [
        Text(f"`{path}` ({media_type}, {size})"),
        File(media_type=media_type, data=content, name=path.rpartition("/")[2]),
    ]


def _numbered(text: FileText, *, lines: list[str], given: ReadArguments) -> tuple[str, list[LineSpan]]:
    """What is told, and which lines are whole in it."""
    if not lines:
        return f"`{given.path}` is empty", []
    if given.offset > len(lines):
        return f"`{given.path}` has {len(lines)} lines only", []
    shown: list[str] = []
    cut: list[int] = []
    characters = 0
    for number, line in enumerate(lines[given.offset - 1 : given.offset - 1 + given.limit], start=given.offset):
        is_cut = len(line) > MAX_LINE_CHARACTERS
        if is_cut:
            rest = len(line) - MAX_LINE_CHARACTERS
            line = f"{line[:MAX_LINE_CHARACTERS]} [... {rest:,} more characters in this line]"
        characters += len(line) + 8
        if characters > MAX_CHARACTERS and shown:
            break
        shown.append(f"{number:6}\t{line}")
        if is_cut:
            cut.append(number)
    last = given.offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {given.offset} to {last} of {len(lines)}; go on with offset={last + 1}]")
    ends = [given.offset - 1, *cut, last + 1]
    whole = [(before + 1, after - 1) for before, after in pairwise(ends) if before + 1 < after]
    return "\n".join(shown + _oddities(text)), whole


def left_out(told: str) -> str:
    """What a reading of a text file does not show of it, in words; empty: nothing. `told` is what `read` has given."""
    lines = told.split("\n")
    parts = [
        f"lines {int(found[1]):,} to {int(found[2]):,} of {int(found[3]):,}"
        for found in map(_REST.match, lines)
        if found
    ]
    cut = sum(1 for line in lines if len(line.partition("\t")[2]) > MAX_LINE_CHARACTERS)
    if cut:
        parts.append(f"{cut} long {'line' if cut == 1 else 'lines'} cut at {MAX_LINE_CHARACTERS:,} characters")
    return "; ".join(parts)


def _oddities(text: FileText) -> list[str]:
    """What the numbered lines do not show, and who edits the file should know."""
    told: list[str] = []
    if text.encoding != "utf-8":
        told.append(f"[the file is {text.encoding.upper()}; `edit` and `write` keep that]")
    if broken := text.broken:
        told.append(f"[bytes that are no UTF-8: {broken:,}, shown as \ufffd; `edit` leaves them as they are]")
    if text.line_ends == "mixed":
        told.append("[some lines end as Windows ends them, some do not]")
    if "\r" in text.text and not text.line_ends:
        told.append("[its lines end with CR alone, so all of it counts as one line]")
    return told


# The tool `search`: a regular expression over the files of a folder, by ripgrep where it is there, else by ourselves.


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
MAX_MATCH_CHARACTERS = 300
MAX_FILE_BYTES = 8 * 1024 * 1024
SEARCH_S = 30.0
MAX_PATTERN_CHARACTERS = 4096  # longer ones are lists of words: several searches, or `bash` with `grep -f`

SEARCH_DESCRIPTION = """Search files for a regular expression (Python syntax), line by line. Gives `path:line: text` for each \
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
    """The path of ripgrep; empty if it is missing or would read the pattern differently. A ripgrep inside the workspace is not
    run: a writer there could have put it there."""
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
            texts[name] = _lines_at(workspace, path)
        if number <= len(texts[name]):
            line = printable(texts[name][number - 1])[:MAX_MATCH_CHARACTERS]
            lines.append(f"{workspace.show(path)}:{number}: {line}")
    return lines


def _decoded(name: str) -> str:
    return name.encode("latin-1").decode("utf-8", "surrogateescape")


def _lines_at(workspace: WorkspacePaths, path: Path) -> list[str]:
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


# AGENTS.md of the folders below the workspace's root: told once a session, beside the first result that reads a file there.
#
# They come with the folder, unasked, so the rules of files that are read unasked hold. What other people's folders say
# (dependencies, whatever `.gitignore` names) is no instruction of this project.


NAME = "AGENTS.md"
NOTE = "agents_md:"  # the mark of the note in a history, and the file's path
MAX_TOGETHER_BYTES = 16 * 1024  # of a session: they stay in the prompt to its end
MAX_AT_ONCE = 8  # beside one result: each may take a process; others follow with the next
IGNORED_S = 5.0


class ToldInstructions:
    """What of them a session has been told: the files, and how many bytes may follow."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        notes = [note for message in messages for note in notes_of(message) if note.note.startswith(NOTE)]
        self.files = {note.note.removeprefix(NOTE) for note in notes}
        self.left_bytes = MAX_TOGETHER_BYTES - sum(len(note.text.encode()) for note in notes)


_told: ContextVar[ToldInstructions | None] = ContextVar("turnwise_told_instructions", default=None)


def begin_telling(messages: Iterable[Message]) -> None:
    """From here on, in this task and what is begun in it, the tool `read` tells them. `messages` are those that the session
    carries on: what they hold is not told again."""
    _told.set(ToldInstructions(messages))


def instructions_for(workspace: WorkspacePaths, path: Path) -> list[Path]:
    """Those that hold for the real `path` and were not told yet, the outermost first."""
    told = _told.get()
    if told is None or is_for_program() or not workspace.is_inside(path):
        return []
    if path.name == NAME:
        told.files.add(_key(path))  # the model reads it as a file
    folders = [folder for folder in reversed(path.parents) if folder != workspace.root and workspace.is_inside(folder)]
    found = [
        file
        for folder in folders
        if os.path.lexists(file := folder / NAME) and _key(file) not in told.files and not _is_root_s(file, workspace)
    ]
    return found[:MAX_AT_ONCE]


async def with_instructions(
    result: str | list[Text | File], files: Sequence[Path], *, workspace: WorkspacePaths
) -> list[Text | File]:
    """The result of a tool, with a note for each of the files beside it."""
    told = _told.get()
    parts: list[Text | File] = [Text(result)] if isinstance(result, str) else [*result]
    for file in files:
        if told is None or _key(file) in told.files:  # by a call that ran beside this one
            continue
        told.files.add(_key(file))
        text = await _note(file, workspace=workspace, left_bytes=told.left_bytes)
        told.left_bytes -= len(text.encode())
        if text:
            parts.append(Text(text, note=f"{NOTE}{_key(file)}"))
    return parts


async def _note(file: Path, *, workspace: WorkspacePaths, left_bytes: int) -> str:
    """Empty where the file is."""
    name, folder = shown(workspace.show(file)), shown(workspace.show(file.parent))
    found = await _content(file, workspace=workspace)
    if isinstance(found, LeftOut):
        return f"\n\n[`{name}` is left out of your instructions: it {found.why}]"
    if not found:
        return ""
    text = f"\n\n[`{name}`: the project's instructions for what lies in `{folder}/`]\n\n{shown(found)}\n"
    size = len(text.encode())
    if size <= left_bytes:
        return text
    return (
        f"\n\n[`{name}` is left out of your instructions: it has {size:,} bytes, and of the {MAX_TOGETHER_BYTES:,} that a "
        f"session has for such files {max(0, left_bytes):,} are left; read it if you work there]"
    )


async def _content(file: Path, *, workspace: WorkspacePaths) -> str | LeftOut:
    folders = file.relative_to(workspace.root).parts[:-1]
    if others := next((name for name in folders if name in OTHERS_FOLDERS), ""):
        return LeftOut(f"lies in `{others}`, with other people's files")
    if is_secret(str(file.relative_to(workspace.root))) or is_secret(str(file), home=workspace.home):
        return LeftOut("may hold keys or passwords")
    try:
        if await is_ignored_file(workspace, file, timeout_s=IGNORED_S):
            return LeftOut("lies in what `.gitignore` names")
    except ToolFault:
        return LeftOut("could not be compared with what `.gitignore` names")
    content = read_unasked(file, within=workspace.root, max_bytes=MAX_TOGETHER_BYTES)
    try:
        return content.decode().strip() if isinstance(content, bytes) else content or LeftOut("was removed meanwhile")
    except UnicodeDecodeError as error:
        return LeftOut(f"is not UTF-8 (byte {error.start})")


def _key(file: Path) -> str:
    return os.fsencode(file).decode("utf-8", "replace")


def _is_root_s(file: Path, workspace: WorkspacePaths) -> bool:
    """Whether it is a link to the one of the root, which is among the instructions."""
    return os.path.realpath(file) == str(workspace.root / NAME)
