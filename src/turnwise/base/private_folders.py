"""Temporary folders for one process alone. A folder goes with its process, or at a later start where that was killed.

A living process holds a lock (flock) on the file `owner` in its folder. The kernel releases it with the process, whatever
ends that, so a folder with a free lock is nobody's. Numbers of processes would not do: two containers that share a temporary
folder know nothing of each other's.
"""

import contextlib
import functools
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path

from turnwise.rules.permission_paths import is_inside

OWNER = "owner"
_NAME = re.compile(r"turnwise-[a-z]+-[a-z0-9_]{8}")  # as `mkdtemp` makes it of `_prefix`
_COMING = "owner.new"  # not locked yet
# A folder is made and marked in a millisecond. One that is older and has no mark was left before it had any.
NEW_S = 3600.0
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)

Clear = Callable[[Path], object]
"""What is done with a folder that a killed process left, before it is removed."""


def make_private_folder(holder: object, *, kind: str, clear: Clear | None = None) -> Path:
    """A new folder that only this user can enter. It is removed when `holder` is, at the latest when the process ends.

    The first one of a `kind` removes those that killed processes left. Raises OSError where no folder can be made.
    """
    folder, lock = _make(kind, clear)
    weakref.finalize(holder, _give_up, folder, lock, os.getpid())
    return folder


@contextlib.contextmanager
def private_folder(*, kind: str) -> Generator[Path]:
    """The same, for as long as it is used."""
    folder, lock = _make(kind, None)
    try:
        yield folder
    finally:
        _give_up(folder, lock, os.getpid())


def _make(kind: str, clear: Clear | None) -> tuple[Path, int]:
    """The folder, and the descriptor that holds its lock."""
    place = Path(tempfile.gettempdir())
    _sweep_once(place, kind, clear)
    # Resolved: rules and mounts know real paths only.
    folder = Path(tempfile.mkdtemp(prefix=_prefix(kind), dir=place)).resolve()
    try:
        lock = _mark(folder)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def private_folder_of(path: str) -> Path | None:
    """The private folder that a resolved path lies in or is, of this process or another one, whether it is still there or not."""
    place = os.path.realpath(tempfile.gettempdir())
    if not is_inside(path, folder=place):
        return None
    first = os.path.relpath(path, place).partition(os.sep)[0]
    return Path(place, first) if _NAME.fullmatch(first) else None


def sweep(place: Path, *, kind: str, clear: Clear | None = None) -> int:
    """Remove the folders of that kind in `place` that killed processes of this user left; how many. Raises no OSError."""
    removed = 0
    with contextlib.suppress(OSError):
        above = os.open(place, os.O_RDONLY)
        try:
            for name in os.listdir(above):  # noqa: PTH208 (of a descriptor)
                if name.startswith(_prefix(kind)):
                    with contextlib.suppress(OSError):
                        removed += _remove_if_left(name, above=above, place=place, clear=clear)
        finally:
            os.close(above)
    return removed


def remove_tree(name: str, *, above: int) -> None:
    """Remove a folder of ours and all in it, whatever the rights of its folders, however deep they lie. Follows no link.

    What lies in a folder is moved up before the folder goes, so no path gets long. The mark of the owner goes last. Raises
    OSError.
    """
    top = os.open(name, _FOLDER, dir_fd=above)
    moved = 0
    try:
        os.fchmod(top, stat.S_IRWXU)
        while names := [entry for entry in os.listdir(top) if entry != OWNER]:  # noqa: PTH208
            for entry in names:
                if not stat.S_ISDIR(os.stat(entry, dir_fd=top, follow_symlinks=False).st_mode):
                    os.unlink(entry, dir_fd=top)
                    continue
                inner = _open_folder(entry, above=top)
                try:
                    os.fchmod(inner, stat.S_IRWXU)
                    for below in os.listdir(inner):  # noqa: PTH208
                        moved += 1
                        os.rename(below, f"{_COMING}.{moved}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(entry, dir_fd=top)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(OWNER, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)


def _prefix(kind: str) -> str:
    return f"turnwise-{kind}-"


@functools.cache
def _sweep_once(place: Path, kind: str, clear: Clear | None) -> int:
    return sweep(place, kind=kind, clear=clear)


def _mark(folder: Path) -> int:
    """Lock the owner's file before it has its name: nobody sees it unlocked. The descriptor holds the lock."""
    coming = folder / _COMING
    lock = os.open(coming, _FILE | os.O_CREAT | os.O_EXCL, 0o600)
    _take(lock)
    coming.rename(folder / OWNER)
    return lock


def _give_up(folder: Path, lock: int, owner: int) -> None:
    """Also called when a copy of the process ends (fork): the folder is not that one's."""
    if os.getpid() != owner:
        return
    if sys.platform == "win32":
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        above = os.open(folder.parent, os.O_RDONLY)
        try:
            remove_tree(folder.name, above=above)
        finally:
            os.close(above)
    os.close(lock)


def _remove_if_left(name: str, *, above: int, place: Path, clear: Clear | None) -> bool:
    """Raises OSError for what is not ours, and what cannot be removed."""
    folder = os.open(name, _FOLDER, dir_fd=above)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            return False
        try:
            lock = os.open(OWNER, _FILE, dir_fd=folder)
        except FileNotFoundError:
            return _remove_unmarked(name, folder=folder, above=above, changed_s=found.st_mtime)
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(lock).st_mode) or not _take(lock):
            return False
        if clear is not None:
            clear(place / name)
        remove_tree(name, above=above)
    finally:
        os.close(lock)
    return True


def _remove_unmarked(name: str, *, folder: int, above: int, changed_s: float) -> bool:
    """Its process was killed before it marked the folder, or marks it now. With anything else in it, it is not ours."""
    if time.time() - changed_s < NEW_S:
        return False
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_COMING, dir_fd=folder)
    os.rmdir(name, dir_fd=above)
    return True


def _open_folder(name: str, *, above: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        return os.open(name, _FOLDER, dir_fd=above)


def _take(lock: int) -> bool:
    """Whether the lock is ours now. Where there are none (Windows), nothing is ever taken for left."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
