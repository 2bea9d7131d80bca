"""Changes to one or several files, made whole or not at all.

First everything is written beside its place and reaches the disk, then each file is moved over its name. A failure before the
first move changes nothing, a later one moves back what was moved. If the process is killed, each file for itself is as it was
or as it should be; where it was killed between two moves, some are the one and some the other, and the note that the store
holds lets `recover_changes` finish it.
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from turnwise.errors import ToolFault

# The few operations by which the file tools touch the disk, each on a folder that is held open.
#
# A folder is reached by walking from one open folder to the next without following a link, so what was decided on a resolved
# path holds where it is opened: a link put in its place meanwhile is refused, not followed.


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


TEMPORARY = ".turnwise-"


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its resolved `path` below `base`, and what it holds before and after (None: it is not there).

    `stamp` tells the file that was read from what may stand there by now. `like` are the attributes that the new content
    takes over, those of the replaced file or of the one it was moved from. `shown` names it in messages.
    """

    path: Path
    base: Path
    shown: str
    before: bytes | None
    after: bytes | None
    stamp: Stamp | None = None
    like: FileAttributes | None = None
    linked: bool = False  # it has further names, which go on to hold the old content


class StoreEntry(Protocol):
    """What a store keeps of one set of changes, while it is made and afterwards."""

    def staged(self) -> None: ...
    def finished(self) -> None: ...
    def given_up(self) -> None: ...


class Store(Protocol):
    """Where old contents are kept. `open` raises OSError."""

    def open(
        self, changes: Sequence[FileChange], *, temporaries: Sequence[str], made: Sequence[Path], disk: Disk
    ) -> StoreEntry: ...


def apply(changes: Sequence[FileChange], *, disk: Disk, store: Store) -> None:
    """All of them, or none. Raises ToolFault if nothing was changed, or if one could not be moved back; the error says so."""
    temporaries = [f"{TEMPORARY}{secrets.token_hex(8)}.tmp" for _ in changes]
    made = missing_folders(changes)
    try:
        entry = store.open(changes, temporaries=temporaries, made=made, disk=disk)
    except OSError as error:
        reason = error.strerror or error
        raise ToolFault(f"nothing was changed: the old content cannot be kept for undoing it: {reason}") from None
    with contextlib.ExitStack() as held:
        folders: list[int] = []
        shown = changes[0].shown
        try:
            for change in changes:
                shown = change.shown
                folder = disk.folder(change.path.parent, base=change.base, made=[] if made else None)
                folders.append(held.enter_context(folder))
            for change, temporary, folder in zip(changes, temporaries, folders, strict=True):
                shown = change.shown
                if change.after is not None:
                    mode = 0o666 & ~_umask()
                    disk.create(temporary, folder=folder, content=change.after, like=change.like, mode=mode)
            for change, folder in zip(changes, folders, strict=True):
                _refuse_if_changed(change, folder=folder)
            entry.staged()
        except BaseException as error:  # noqa: BLE001 (raised again, in other words where it is the disk's)
            _forget(disk, changes=changes, temporaries=temporaries, folders=folders, made=made)
            entry.given_up()
            raise _fault(error, shown=shown, many=len(changes) > 1) from None
        _move_all(changes, temporaries=temporaries, folders=folders, made=made, disk=disk, entry=entry)
        # what fails from here on cannot take back what has happened; the note that is left behind says that it has
        with contextlib.suppress(OSError):
            for folder in folders:
                disk.sync(folder)
            entry.finished()


def remove_made(made: Sequence[Path], *, bases: Mapping[Path, Path], disk: Disk) -> None:
    """Folders that were made for a change go, deepest first, where nothing is in them."""
    for path in sorted(made, key=lambda path: len(path.parts), reverse=True):
        with contextlib.suppress(OSError), disk.folder(path.parent, base=bases[path]) as folder:
            disk.remove_folder(path.name, folder=folder)


def missing_folders(changes: Sequence[FileChange]) -> list[Path]:
    """The folders that have to be made, parents first."""
    missing: dict[Path, None] = {}
    for change in changes:
        if change.after is not None:
            above = [folder for folder in change.path.parents if not folder.exists()]
            missing |= dict.fromkeys(reversed(above))
    return list(missing)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _move_all(
    changes: Sequence[FileChange],
    *,
    temporaries: Sequence[str],
    folders: Sequence[int],
    made: Sequence[Path],
    disk: Disk,
    entry: StoreEntry,
) -> None:
    moved = 0
    try:
        for change, temporary, folder in zip(changes, temporaries, folders, strict=True):
            _refuse_if_changed(change, folder=folder)
            if change.after is None:
                disk.remove(change.path.name, folder=folder)
            else:
                disk.rename(temporary, change.path.name, folder=folder)
            moved += 1
    except BaseException as error:  # noqa: BLE001 (raised again, in other words where it is the disk's)
        shown = changes[moved].shown
        stuck = _move_back(changes[:moved], folders=folders[:moved], disk=disk)
        _forget(disk, changes=changes, temporaries=temporaries, folders=folders, made=made)
        if not stuck:
            entry.given_up()
            raise _fault(error, shown=shown, many=len(changes) > 1) from None
        with contextlib.suppress(OSError):
            entry.finished()  # so that it can be undone
        raise ToolFault(
            f"`{shown}` cannot be changed ({_reason(error)}), and what was changed before it could not all be put back: "
            f"{', '.join(stuck)} hold the new content, all others the old"
        ) from None


def _move_back(changes: Sequence[FileChange], *, folders: Sequence[int], disk: Disk) -> list[str]:
    """The names of those that could not be."""
    stuck: list[str] = []
    for change, folder in reversed(list(zip(changes, folders, strict=True))):
        temporary = f"{TEMPORARY}{secrets.token_hex(8)}.tmp"
        try:
            if change.before is None:
                disk.remove(change.path.name, folder=folder)
                continue
            disk.create(temporary, folder=folder, content=change.before, like=change.like, mode=0o600)
            disk.rename(temporary, change.path.name, folder=folder)
        except OSError:
            stuck.append(f"`{change.shown}`")
            with contextlib.suppress(OSError):
                disk.remove(temporary, folder=folder)
    return stuck


def _forget(
    disk: Disk,
    *,
    changes: Sequence[FileChange],
    temporaries: Sequence[str],
    folders: Sequence[int],
    made: Sequence[Path],
) -> None:
    """Nothing that was made on the way stays, as far as it can be removed."""
    for temporary, folder in zip(temporaries, folders, strict=False):
        with contextlib.suppress(OSError):
            disk.remove(temporary, folder=folder)
    bases = {above: change.base for change in changes for above in change.path.parents}
    remove_made(made, bases=bases, disk=disk)


def _refuse_if_changed(change: FileChange, *, folder: int) -> None:
    stamp = stamp_at(change.path.name, folder=folder)
    if stamp != change.stamp:
        happened = "was made" if change.stamp is None else "was removed" if stamp is None else "was changed"
        raise ToolFault(f"`{change.shown}` {happened} by somebody else at this moment: read it again")


def _fault(error: BaseException, *, shown: str, many: bool) -> BaseException:
    """The failure in words for the model; what is no failure of the disk goes on as it is."""
    rest = "; no file was changed" if many else ""
    match error:
        case ToolFault():
            return ToolFault(f"{error}{rest}")
        case FileExistsError() | NotADirectoryError():
            return ToolFault(f"`{shown}` cannot be made: a file or a link stands where its folder would be{rest}")
        case OSError():
            return ToolFault(f"`{shown}` cannot be written: {_reason(error)}{rest or '; it is as it was'}")
        case _:
            return error


def _reason(error: BaseException) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _umask() -> int:
    """Read where it can be read without changing it for the other threads."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        return 0o022
    return 0o022


# The store of old contents on the disk: a folder for each set of changes, with a note of what they were.


NOTE = "note.json"

ChangeState = Literal["staging", "staged", "done", "undone"]


class KeptFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a change. Paths are bytes, as a file's name may be no text; digests are SHA-256, None: not there.
    `backup` names the old content's file beside the note; empty where there is none."""

    path: bytes
    base: bytes
    shown: str
    temporary: str
    before: str | None
    after: str | None
    backup: str = ""
    like: FileAttributes | None = None

    @property
    def place(self) -> Path:
        return Path(os.fsdecode(self.path))

    @property
    def root(self) -> Path:
        return Path(os.fsdecode(self.base))


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One set of changes. `staging`: no file is touched yet (of a single one: it may have been); `staged`: all new contents are
    on the disk, the moves began."""

    owner: str
    group: str
    state: ChangeState
    files: tuple[KeptFile, ...]
    made: tuple[bytes, ...] = ()
    takes_back: bool = False  # itself an undoing, kept for finishing it only
    call: str = ""  # whose change it is (`grants.call_at_work`)
    is_partial: bool = False  # other changes of its group gave way to newer ones

    @property
    def is_shared(self) -> bool:
        """Of several files: it must be on the disk before the first of them is moved, as finishing them depends on it. Of one
        file it may be lost in a power cut (not by a kill), which costs the undoing only and saves 20 ms a change."""
        return len(self.files) > 1


class KeptChange:
    """One set of changes in the store: a folder with a note and the old contents."""

    def __init__(self, place: Path, *, note: Note, disk: Disk) -> None:
        self.place = place
        self.note = note
        self._disk = disk

    @property
    def size(self) -> int:
        """Bytes of the old contents."""
        with contextlib.suppress(FileNotFoundError):
            return sum(file.stat().st_size for file in self.place.iterdir() if file.name != NOTE)
        return 0

    def become(self, state: ChangeState) -> None:
        """The note says so, on the disk. Raises OSError."""
        self._write(msgspec.structs.replace(self.note, state=state))

    def become_partial(self) -> None:
        """The same of its group. Raises OSError."""
        self._write(msgspec.structs.replace(self.note, is_partial=True))

    def _write(self, note: Note) -> None:
        with self._disk.folder(self.place, base=self.place.parent) as folder:
            with contextlib.suppress(FileNotFoundError):
                os.unlink("new", dir_fd=folder)  # of a note that was broken off
            written = msgspec.json.encode(note)
            self._disk.create("new", folder=folder, content=written, like=None, mode=0o600, durable=note.is_shared)
            self._disk.rename("new", NOTE, folder=folder)
            if note.is_shared:
                self._disk.sync(folder)
        self.note = note

    def staged(self) -> None:
        if self.note.is_shared:  # a single file is moved or not: there is nothing to finish
            self.become("staged")

    def finished(self) -> None:
        self.become("done")

    def given_up(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def kept_changes(root: Path, *, disk: Disk) -> Iterator[KeptChange]:
    """Oldest first. A folder without a note is somebody's who is about to write one, or nobody's: nothing happened then."""
    for place in sorted(root.iterdir()):
        if place.name.isdecimal():
            with contextlib.suppress(OSError, msgspec.DecodeError):
                note = msgspec.json.decode((place / NOTE).read_bytes(), type=Note)
                yield KeptChange(place, note=note, disk=disk)


def drop_temporaries(root: Path) -> None:
    """New contents that wait beside their places go, where a killed process left them and nobody will finish the change."""
    hands = Disk()
    for kept in kept_changes(root, disk=hands):
        if kept.note.state not in {"done", "undone"}:
            for file in kept.note.files:
                drop_temporary(file, disk=hands)


def drop_temporary(file: KeptFile, *, disk: Disk) -> None:
    with contextlib.suppress(OSError), disk.folder(file.place.parent, base=file.root) as folder:
        disk.remove(file.temporary, folder=folder)


def drop_folders(note: Note, *, disk: Disk) -> None:
    """What was made for it and holds nothing goes."""
    made = [Path(os.fsdecode(path)) for path in note.made]
    bases = {above: file.root for file in note.files for above in file.place.parents}
    remove_made(made, bases=bases, disk=disk)


def content_at(folder_path: Path, *, name: str, base: Path) -> tuple[bytes, Stamp] | None:
    """A file's content and stamp, opened without following a link; None where it is not there. Raises OSError."""
    try:
        with Disk().folder(folder_path, base=base) as folder:
            stamp = stamp_at(name, folder=folder)
            if stamp is None:
                return None
            with os.fdopen(open_file(name, folder=folder), "rb") as file:
                return file.read(), stamp
    except FileNotFoundError:
        return None
