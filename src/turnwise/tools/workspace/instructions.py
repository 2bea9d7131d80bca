"""AGENTS.md of the folders below the workspace's root: told once a session, beside the first result that reads a file there.

They come with the folder, unasked, so the rules of files that are read unasked hold. What other people's folders say
(dependencies, whatever `.gitignore` names) is no instruction of this project.
"""

import os
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path

from turnwise.base.unasked_files import LeftOut, read_unasked
from turnwise.errors import ToolFault
from turnwise.rules.permission_paths import is_secret
from turnwise.running.grants import is_for_program
from turnwise.tools.workspace.paths import OTHERS_FOLDERS, WorkspacePaths
from turnwise.tools.workspace.search_tool import is_ignored_file
from turnwise.vocab import File, Message, Text, notes_of
from turnwise.vocab.hidden_characters import shown

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
