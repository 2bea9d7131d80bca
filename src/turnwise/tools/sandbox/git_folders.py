"""Which folders of git's outside of the workspace a command may write in: those of the repository that it is a part of.

In a worktree, a submodule and a package of a monorepo, `git commit` writes outside. A pointer alone proves nothing, as a command
or an archive can forge it: each has to be answered by one that lies where no command can write. Source: gitrepository-layout(5),
git-worktree(1), git-submodule(1), gitmodules(5).
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import read_unasked
from turnwise.vocab.file_names import shown_name

_MAX_BYTES = 1024 * 1024  # of a pointer or a configuration
_MAX_MODULES = 1000
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*(".*")?\s*\]')
_WORKTREE = re.compile(r"\s*worktree\s*=\s*(.*?)\s*", re.IGNORECASE)


class GitFolder(msgspec.Struct, frozen=True, kw_only=True):
    """One that may be written in. Of one that is `shared` with other working trees: objects, refs, logs and packed refs."""

    at: Path
    shared: bool = False


class GitFolders(msgspec.Struct, frozen=True, kw_only=True):
    """`opened` are what the workspace's repository needs outside of it, `top` its working tree if that lies above. `why` says, of
    the folder `refused`, why it is not opened; empty where none is needed."""

    opened: tuple[GitFolder, ...] = ()
    top: Path | None = None
    refused: str = ""
    why: str = ""

    def since(self, first: "GitFolders") -> "GitFolders":
        """What of it there was at first, too: a pointer that is newer may be a command's, and so may a submodule."""
        if set(self.opened[:1]) <= set(first.opened):
            return GitFolders(
                opened=tuple([one for one in self.opened if one in first.opened]),
                top=self.top,
                refused=self.refused,
                why=self.why,
            )
        return GitFolders(refused=str(self.opened[0].at), why="it was not there when the session began")


class _Refused(Exception):
    """A folder that is not opened, and why."""

    def __init__(self, at: Path, why: str) -> None:
        super().__init__(why)
        self.found = GitFolders(refused=str(at), why=why)


def find_git_folders(root: Path) -> GitFolders:
    """For the workspace `root`, a path without links."""
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None or (top == root and _is_folder(top / ".git")):
        return GitFolders()
    try:
        needed = _needed(top / ".git")
        for one in needed:
            _refuse_others(one.at)
        needed = [one for one in needed if not one.at.is_relative_to(root)]
        modules = [GitFolder(at=at) for one in needed if not one.shared for at in _modules_for(one.at, root=root)]
    except _Refused as refused:
        return refused.found
    except OSError as error:
        return GitFolders(refused=str(top / ".git"), why=error.strerror or str(error))
    return GitFolders(opened=(*needed, *modules), top=None if top == root else top)


def _needed(git: Path) -> list[GitFolder]:
    top = git.parent
    if git.is_symlink():
        raise _Refused(git, "`.git` is a link")
    if _is_folder(git):
        if not _is_repository(git) or os.path.lexists(git / "commondir") or _working_tree_of(git) not in (None, top):
            raise _Refused(git, "it is not the repository of this folder alone")
        return [GitFolder(at=git)]
    own = pointer(git, prefix="gitdir:")
    if own is None or not _is_folder(own):
        raise _Refused(git, "`.git` names no folder")
    _refuse_others(git)
    if own.parent.name == "worktrees":
        shared = own.parent.parent
        if pointer(own / "commondir") != shared or not _is_repository(shared):
            raise _Refused(own, "its `commondir` does not name the repository that it lies in")
        if pointer(own / "gitdir", last=False) != git:
            raise _Refused(own, f"its `gitdir` does not name `{shown_name(str(git))}`")
        return [GitFolder(at=own), GitFolder(at=shared, shared=True)]
    if not _is_repository(own) or os.path.lexists(own / "commondir") or _working_tree_of(own) != top:
        raise _Refused(own, f"its `core.worktree` does not name `{shown_name(str(top))}`")
    return [GitFolder(at=own)]


def _modules_for(git: Path, *, root: Path) -> Iterator[Path]:
    """The submodules of the repository whose working tree is in the workspace and leads back."""
    for at in modules_in(git):
        place = _working_tree_of(at)
        if place is not None and place.is_relative_to(root) and pointer(place / ".git", prefix="gitdir:") == at:
            _refuse_others(at)
            yield at


def modules_in(git: Path) -> list[Path]:
    """The submodules' folders below `modules`, also those in submodules and those with `/` in their names. Raises OSError where
    there are too many to look at, or one cannot be read."""
    found: list[Path] = []
    waiting = [git / "modules"] if _is_folder(git / "modules") else []
    for _ in range(10 * _MAX_MODULES):
        if not waiting or len(found) > _MAX_MODULES:
            break
        for entry in list(os.scandir(waiting.pop())):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                continue
            if os.path.lexists(path / "HEAD") or os.path.lexists(path / "config"):
                found.append(path)
                waiting += [path / "modules"] if _is_folder(path / "modules") else []
            else:
                waiting.append(path)
    if waiting:
        raise OSError(f"`{git}` has too many submodules")
    return found


def pointer(file: Path, *, prefix: str = "", last: bool = True) -> Path | None:
    """Where a file of git's leads, without links; None where it is no plain file with a path. With `last`, its last name may be a
    link."""
    content = None if file.is_symlink() else read_unasked(file, within=file.parent, max_bytes=_MAX_BYTES)
    if not isinstance(content, bytes):
        return None
    text = os.fsdecode(content).rstrip("\r\n")
    if not text.startswith(prefix) or "\0" in text or not (name := text.removeprefix(prefix).strip(" ")):
        return None
    path = file.parent / name
    return Path(os.path.realpath(path)) if last else Path(os.path.realpath(path.parent)) / path.name


def _working_tree_of(git: Path) -> Path | None:
    """What `core.worktree` says, without links; None where it says nothing."""
    return _setting_of(git / "config.worktree") or _setting_of(git / "config")


def _setting_of(config: Path) -> Path | None:
    content = None if config.is_symlink() else read_unasked(config, within=config.parent, max_bytes=_MAX_BYTES)
    if not isinstance(content, bytes):
        return None
    section, found = "", ""
    for line in os.fsdecode(content).split("\n"):
        if header := _SECTION.match(line):
            section = "" if header[2] else header[1].lower()
            line = line[header.end() :]
        if section == "core" and (entry := _WORKTREE.fullmatch(line)):
            found = re.sub(r"\\(.)", r"\1", entry[1].strip('"'))
    return Path(os.path.realpath(config.parent / found)) if found and "\0" not in found else None


def _refuse_others(at: Path) -> None:
    if at.lstat().st_uid != os.geteuid():
        raise _Refused(at, "it is another user's")


def _is_repository(git: Path) -> bool:
    return all(_is_folder(git / name) for name in ("objects", "refs")) and os.path.lexists(git / "HEAD")


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
