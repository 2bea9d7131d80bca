"""What of a repository a later `git` outside the sandbox would execute, and keeping it as it was.

Hooks are programs; the configuration names programs (`core.fsmonitor`, `core.pager`, filters, aliases); `commondir` says where
else the configuration lies. Source: githooks(5), git-config(1), gitrepository-layout(5).
"""

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

_EXECUTED = ("config", "config.worktree", "commondir", "hooks")
_MAX_FILES = 200  # a template brings fourteen hooks
_MAX_BYTES = 4 * 1024 * 1024
_MAX_WALKED = 200_000  # entries of the workspace, some 0.5 s
_LOOK = "Tell the user, who should look at it before git is used there again."


def guarded_paths(root: Path) -> Iterator[tuple[Path, bool]]:
    """The paths of the repository at `root` to mount on their own, and whether each may be written.

    The folder itself too: a mount point cannot be renamed, and else it could be moved away with what is guarded in it.
    A `.git` file leads to a repository elsewhere, which stays read-only with the rest.
    """
    git = root / ".git"
    if git.is_symlink() or not git.exists():
        return
    if git.is_file():
        yield git, False
        return
    yield git, True
    for name in ("config", "config.worktree", "hooks"):
        path = git / name
        if path.exists() and not path.is_symlink():
            yield path, False


class _Entry(msgspec.Struct, frozen=True):
    mode: int
    content: bytes


class PutBack(msgspec.Struct, frozen=True):
    """`changed` are paths relative to the root that are as before again; `told` says what else was done, or could not be."""

    changed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class GitGuard:
    """Remembers what a repository executes, and puts it back where a command changed it.

    For what no mount can guard: a file that does not exist yet, and sandboxes without mounts. To be asked when nothing of
    the command runs any more.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._git = root / ".git"
        self._folder = _identity(self._git)
        self._leads = None if self._folder else _entry_at(self._git, limit=_MAX_BYTES)  # a link or file to elsewhere
        self._before = self._remember()

    def put_back(self) -> PutBack:
        """What had changed. `.git` is again the folder, link or file that it was, wherever `told` does not say otherwise."""
        try:
            told = self._return_git()
        except OSError as error:
            return PutBack(told=(f".git: it was replaced, and could not be put back ({error.strerror}). {_LOOK}",))
        before = self._before
        if before is None or not _is_folder(self._git):
            return PutBack(told=told)
        changed: list[str] = []
        # outer ones first: what lies in them is written to a real folder
        for path in sorted({*before, *self._names()}):
            entry = before.get(path)
            if entry is not None and _entry_at(self._git / path, limit=len(entry.content)) == entry:
                continue
            try:
                _restore(self._git / path, entry)
                changed.append(f".git/{path}")
            except OSError as error:
                told += (f".git/{path}: it was changed, and could not be put back ({error.strerror}). {_LOOK}",)
        return PutBack(tuple(changed), told)

    def _return_git(self) -> tuple[str, ...]:
        """Afterwards `.git` itself is what it was, if that is still to be had."""
        if self._folder is None:
            return self._return_lead()
        if _identity(self._git) == self._folder:
            return ()
        moved = self._find_folder()
        if moved is None and _is_folder(self._git):
            return (
                f".git: it is another folder now, and the repository that was there is nowhere in the workspace. {_LOOK}",
            )
        aside, told = self._move_aside()
        if moved is None:
            return (f".git: the repository is gone, and nowhere in the workspace.{told} {_LOOK}",)
        if moved.is_relative_to(self._git):
            moved = aside / moved.relative_to(self._git)
        moved.rename(self._git)
        at = moved.relative_to(self._root)
        return (f".git: the repository had been moved to `{at}`, and was moved back.{told}",)

    def _return_lead(self) -> tuple[str, ...]:
        if self._leads is None:
            return (f".git: the command made this repository. {_LOOK}",) if os.path.lexists(self._git) else ()
        if _entry_at(self._git, limit=len(self._leads.content)) == self._leads:
            return ()
        _, told = self._move_aside()
        _restore(self._git, self._leads)
        return (f".git: put back as before; it says where the repository lies.{told}",)

    def _move_aside(self) -> tuple[Path, str]:
        """The new place of what the command put where `.git` was, and a sentence on it; empty where there was nothing."""
        names = (f".git-made-by-a-command-{count}" for count in itertools.count(1))
        aside = next(path for name in names if not os.path.lexists(path := self._root / name))
        if not os.path.lexists(self._git):
            return aside, ""
        self._git.rename(aside)
        return aside, f" What the command had put in its place is `{aside.name}` now."

    def _find_folder(self) -> Path | None:
        """Where in the workspace the repository's folder lies now, among the first entries that a walk meets."""
        walked = 0
        for place, folders, files in os.walk(self._root):
            for name in folders:
                if _identity(Path(place, name)) == self._folder:
                    return Path(place, name)
            walked += len(folders) + len(files)
            if walked > _MAX_WALKED:
                break
        return None

    def _remember(self) -> dict[str, _Entry] | None:
        """By path in `.git`. None where there is no repository of its own, or more than we can remember."""
        if not _is_folder(self._git):
            return None
        found: dict[str, _Entry] = {}
        room = _MAX_BYTES
        for path in self._names():
            entry = _entry_at(self._git / path, limit=room)
            if entry is None or len(found) == _MAX_FILES:
                return None
            found[path] = entry
            room -= len(entry.content)
        return found

    def _names(self) -> list[str]:
        found: list[str] = []
        for name in _EXECUTED:
            path = self._git / name
            if os.path.lexists(path):
                found.append(name)
            if _is_folder(path):
                found += [f"{name}/{inner}" for inner in os.listdir(path)]  # noqa: PTH208
        return found


def _identity(path: Path) -> tuple[int, int] | None:
    """Of a folder that is no link: the same wherever it is moved in its file system."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            return status.st_dev, status.st_ino
    return None


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entry_at(path: Path, *, limit: int) -> _Entry | None:
    """None where it is absent, unreadable or has more than `limit` bytes."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return _Entry(status.st_mode, os.fsencode(path.readlink()))
        if not stat.S_ISREG(status.st_mode):
            return _Entry(status.st_mode, b"")
        if status.st_size <= limit:
            return _Entry(status.st_mode, path.read_bytes())
    return None


def _restore(path: Path, entry: _Entry | None) -> None:
    """Afterwards there is at `path` what `entry` says, or nothing. A folder that stays one keeps what is in it."""
    if _is_folder(path):
        if entry is None or not stat.S_ISDIR(entry.mode):
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if entry is None:
        return
    if stat.S_ISLNK(entry.mode):
        path.symlink_to(os.fsdecode(entry.content))
        return
    if stat.S_ISDIR(entry.mode):
        path.mkdir(exist_ok=True)
    elif stat.S_ISREG(entry.mode):
        path.write_bytes(entry.content)
    path.chmod(stat.S_IMODE(entry.mode))
