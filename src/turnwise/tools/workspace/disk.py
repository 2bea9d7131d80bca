"""The few operations by which the file tools touch the disk, each on a folder that is held open.

A folder is reached by walking from one open folder to the next without following a link, so what was decided on a resolved
path holds where it is opened: a link put in its place meanwhile is refused, not followed.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
# O_PATH needs no right to read a folder that is only passed through; elsewhere that right is needed.
_THROUGH = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _SAFE
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE  # NONBLOCK: opening a named pipe would wait for its writer
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE

Stamp = tuple[int, int, int, int]


class FileAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a file keeps when its content is replaced."""

    mode: int  # permission bits
    user: int
    group: int
    extended: tuple[tuple[str, bytes], ...] = ()  # access control lists, security labels


def nothing(_step: str) -> None:
    """The step of every disk but those that tests fail or kill at a step."""


class Disk:
    """`before` is called with the name of each step that changes something, before it is taken; it may raise OSError."""

    def __init__(self, before: Callable[[str], None] = nothing) -> None:
        self._before = before

    @contextlib.contextmanager
    def folder(self, path: Path, *, base: Path, made: list[Path] | None = None) -> Generator[int]:
        """A descriptor of the resolved folder `path`, at or below `base`. Missing folders are made where `made` is given,
        and added to it. Raises OSError; NotADirectoryError where a link or a file stands in the way."""
        descriptor = os.open(base, _THROUGH)
        reached = base
        try:
            for name in path.relative_to(base).parts:
                reached = reached / name
                try:
                    following = os.open(name, _THROUGH, dir_fd=descriptor)
                except FileNotFoundError:
                    if made is None:
                        raise
                    self._before("mkdir")
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=descriptor)
                        made.append(reached)
                    following = os.open(name, _THROUGH, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = following
            yield descriptor
        finally:
            os.close(descriptor)

    def create(
        self, name: str, *, folder: int, content: bytes, like: FileAttributes | None, mode: int, durable: bool = True
    ) -> None:
        """A new file, on the disk when this returns where `durable`; with the attributes of `like` as far as we may set them,
        else `mode`."""
        self._before("create")
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
        try:
            half = len(content) // 2
            for piece in (content[:half], content[half:]):
                self._before("write")
                _write_all(descriptor, piece)
            if like is not None:
                _take_over(descriptor, like)
            os.fchmod(descriptor, mode if like is None else like.mode)  # after the owner: changing that clears setuid
            if durable:
                self._before("sync")
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: str, new: str, *, folder: int) -> None:
        self._before("rename")
        os.rename(old, new, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, name: str, *, folder: int) -> None:
        self._before("remove")
        os.unlink(name, dir_fd=folder)

    def remove_folder(self, name: str, *, folder: int) -> None:
        self._before("rmdir")
        os.rmdir(name, dir_fd=folder)

    def sync(self, folder: int) -> None:
        """What was renamed in it stays renamed after a power cut, where the file system can promise that."""
        self._before("sync folder")
        try:
            descriptor = os.open(".", os.O_RDONLY, dir_fd=folder)
        except OSError:
            return  # a folder that we may write to and not read
        try:
            with contextlib.suppress(OSError):  # some network file systems know no such thing
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_file(name: str, *, folder: int) -> int:
    """A descriptor for reading. Raises OSError, also where `name` is a link."""
    return os.open(name, _READ, dir_fd=folder)


def stamp_at(name: str, *, folder: int) -> Stamp | None:
    """Of the name itself, not of what a link leads to; None where there is nothing."""
    try:
        return stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def stamp_of(status: os.stat_result) -> Stamp:
    """What tells a file from another one under its name, and from itself after a change: device, inode, size, time in ns."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def attributes_of(descriptor: int, *, status: os.stat_result) -> FileAttributes:
    extended: list[tuple[str, bytes]] = []
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            extended = [(name, os.getxattr(descriptor, name)) for name in os.listxattr(descriptor)]
    mode = stat.S_IMODE(status.st_mode)
    return FileAttributes(mode=mode, user=status.st_uid, group=status.st_gid, extended=tuple(extended))


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _take_over(descriptor: int, like: FileAttributes) -> None:
    """As far as we may: only root gives files away, and only some file systems keep further attributes."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (like.user, like.group):
        try:
            os.fchown(descriptor, like.user, like.group)
        except OSError:
            with contextlib.suppress(OSError):
                os.fchown(descriptor, -1, like.group)
    for name, value in like.extended:
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, name, value)
