"""Whether a git repository makes `git status` run a program.

What does comes with a folder that was unpacked or copied: git trusts `.git`. So a repository is judged plain by what is known
to be harmless, and anything else is a doubt. Source: git-config(1), gitrepository-layout(5), git's `setup.c`.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from turnwise.drivers.unasked_files import read_unasked
from turnwise.rules.git_settings import IN_REPOSITORY

MAX_CONFIG_BYTES = 256 * 1024
MAX_HEAD_BYTES = 4096
MAX_WALKED = 100_000  # entries of a working tree, some 0.2 s

_HEAD = re.compile(rb"(?:ref: refs/[^\s\x00]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_SECTION = re.compile(r'\[([a-z][a-z0-9-]*)( "(?:[^"\\\n]|\\["\\])*")?\]', re.IGNORECASE)
_ENTRY = re.compile(r"([a-z][a-z0-9-]*)[ \t]*(?:=.*)?", re.IGNORECASE)
_UNUSUAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufeff\ufffd]|\r(?!\n)|\\\r?(?:\n|\Z)")
_KNOWN_SECTIONS = frozenset(name.rpartition(".")[0] for name in IN_REPOSITORY)
# In the environment they lead git to another repository, other settings or other programs.
_STEERING = re.compile(
    r"GIT_(?:DIR|COMMON_DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|CONFIG.*|EXTERNAL_DIFF|EXEC_PATH"
    r"|NAMESPACE|TRACE.*)"
)


def doubt(place: str, *, max_walked: int = MAX_WALKED) -> str:
    """Why a git command in the folder `place` may do more than it says; empty where the repository is plain.

    At most `max_walked` entries of its working tree are looked through; one that has more is a doubt.
    """
    folder = Path(place)
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if os.path.lexists(git):  # git would pass over one that it does not accept, to those above
            return _folder_doubt(git) or _nested_doubt(parent, max_walked=max_walked)
        if _is_bare(parent):
            return "the folder looks like a bare repository, whose settings git would take"
    return "there is no repository, and git would compare folders"


def environment_doubt(environment: Mapping[str, str]) -> str:
    """The same for the variables that git would see; empty where none steers it."""
    found = next((name for name in environment if _STEERING.fullmatch(name)), "")
    return f"the environment's `{found}` steers git" if found else ""


def _is_bare(folder: Path) -> bool:
    return _looks_bare([name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(folder / name)])


def _looks_bare(names: Iterable[str]) -> bool:
    """Whether git would take a folder with these names in it for a repository (`is_git_directory`)."""
    found = {name.casefold() for name in names}
    return "head" in found and ("commondir" in found or {"objects", "refs"} <= found)


def _folder_doubt(git: Path) -> str:
    if not _is_own_folder(git):
        return "its `.git` is no folder, so the repository's settings lie elsewhere"
    head = _content(git / "HEAD", limit=MAX_HEAD_BYTES)
    if head is None or not _HEAD.fullmatch(head) or not all(_is_own_folder(git / name) for name in ("objects", "refs")):
        return "its `.git` is no sound repository, so git may take another one"
    for name in ("commondir", "config.worktree"):
        if os.path.lexists(git / name):
            return f"the repository takes settings from elsewhere (`{name}`)"
    if os.path.lexists(git / "modules"):
        return "the repository has submodules, whose settings git would take"
    # `git status` writes the index, and this is run whenever it is written (githooks, "post-index-change")
    if os.path.lexists(git / "hooks" / "post-index-change"):
        return "the repository has a hook that it would run"
    return _config_doubt(git / "config")


def _config_doubt(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    content = _content(path, limit=MAX_CONFIG_BYTES)
    if content is None:
        return f"`{path.name}` of the repository is too large or no plain file, so it cannot be judged"
    found = _unknown_setting(content.decode("utf-8", "replace"))
    return f"the repository's settings (`{found}`) may run a program" if found else ""


def _unknown_setting(text: str) -> str:
    """The first thing in a configuration that is not known to be harmless. Stricter than git: one header or setting a line."""
    if _UNUSUAL.search(text):
        return "unusual characters"
    section = ""
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            header = _SECTION.fullmatch(line)
            section = f"{header[1].lower()}{'.*' if header[2] else ''}" if header else ""
            if section not in _KNOWN_SECTIONS:
                # what stands in quotes may be an address with a password
                return f"[{header[1]}]" if header else "a line that is not understood"
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or not {f"{section}.{entry[1].lower()}", f"{section}.*"} & IN_REPOSITORY:
            return entry[1] if entry else "a line that is not understood"
    return ""


def _nested_doubt(root: Path, *, max_walked: int) -> str:
    """A repository below is taken with its own settings where the one above has it as a submodule."""
    if os.path.lexists(root / ".gitmodules"):
        return "the repository has submodules, whose settings git would take"
    unread: list[OSError] = []
    walked = 0
    for names, is_root in _walk(root, unread=unread):
        walked += len(names)
        if not is_root and (any(name.casefold() == ".git" for name in names) or _looks_bare(names)):
            return "there is another repository below, whose settings git might take"
        if walked > max_walked:
            return f"it has more than {max_walked:,} files, too many to look for other repositories among them"
    return "part of it cannot be read, and may hold another repository" if unread else ""


def _walk(root: Path, *, unread: list[OSError]) -> Iterator[tuple[list[str], bool]]:
    for place, folders, files in os.walk(root, onerror=unread.append):
        is_root = place == str(root)
        yield folders + files, is_root
        if is_root:
            folders[:] = [name for name in folders if name != ".git"]


def _is_own_folder(path: Path) -> bool:
    """Whether it is a folder, no link to one, that git can enter: root in a sandbox is held to the modes as others are."""
    try:
        status = path.lstat()
    except OSError:
        return False
    needed = 0o500 if status.st_uid == os.geteuid() else 0o005
    return stat.S_ISDIR(status.st_mode) and status.st_mode & needed == needed


def _content(path: Path, *, limit: int) -> bytes | None:
    """None where it is no regular file, cannot be read or is larger than `limit` bytes."""
    if path.is_symlink():
        return None
    content = read_unasked(path, within=path.parent, max_bytes=limit)
    return content if isinstance(content, bytes) else None
