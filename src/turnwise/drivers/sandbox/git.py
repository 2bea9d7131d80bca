"""What of a repository a later `git` outside the sandbox would execute, and keeping it as it was.

Hooks are programs; the configuration names programs (`core.fsmonitor`, `core.pager`, filters, aliases); `commondir` says where
else the configuration lies. Source: githooks(5), git-config(1), gitrepository-layout(5).
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

_EXECUTED = ("config", "config.worktree", "commondir", "hooks")
_MAX_FILES = 200  # a template brings fourteen hooks
_MAX_BYTES = 4 * 1024 * 1024


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


class GitGuard:
    """Remembers what a repository executes, and puts it back where a command changed it.

    For what no mount can guard: a file that does not exist yet, and sandboxes without mounts. To be asked when nothing of
    the command runs any more.
    """

    def __init__(self, root: Path) -> None:
        self._git = root / ".git"
        self._before = self._remember()

    def put_back(self) -> tuple[str, ...]:
        """What had changed, relative to the root; it is as before now, but for a `.git` that is no folder any more."""
        before = self._before
        if before is None:
            return ()
        if not _is_folder(self._git):
            return (".git",)  # to write through it might lead anywhere
        changed: list[str] = []
        for path in sorted(
            {*before, *self._names()}
        ):  # outer ones first: what lies in them is written to a real folder
            entry = before.get(path)
            if entry is None or _entry_at(self._git / path, limit=len(entry.content)) != entry:
                changed.append(f".git/{path}")
                _restore(self._git / path, entry)
        return tuple(changed)

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
            shutil.rmtree(path, ignore_errors=True)
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
