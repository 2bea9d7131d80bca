"""The store of old contents on the disk: a folder for each set of changes, with a note of what they were."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.tools.workspace.disk import Disk, FileAttributes, Stamp, open_file, stamp_at
from turnwise.tools.workspace.staged_changes import remove_made

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
