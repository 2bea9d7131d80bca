"""What the file tools changed, kept so that it can be taken back."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.drivers.owners import our_name
from turnwise.drivers.private_folders import make_private_folder
from turnwise.drivers.workspace.disk import Attributes, Disk, Stamp, open_file, stamp_at
from turnwise.drivers.workspace.staging import Change, apply, digest, remove_made

KEPT_BYTES = 64 * 1024 * 1024  # of old contents; the oldest give way
KEPT_CHANGES = 500
NOTE = "note.json"

State = Literal["staging", "staged", "done", "undone"]


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
    like: Attributes | None = None

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
    state: State
    files: tuple[KeptFile, ...]
    made: tuple[bytes, ...] = ()
    takes_back: bool = False  # itself an undoing, kept for finishing it only

    @property
    def is_shared(self) -> bool:
        """Of several files: it must be on the disk before the first of them is moved, as finishing them depends on it. Of one
        file it may be lost in a power cut (not by a kill), which costs the undoing only and saves 20 ms a change."""
        return len(self.files) > 1


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What taking back did to one file: `restored` (its old content is back), `removed` (it had been made), `kept` (it was
    left as it is, and `why`)."""

    path: Path
    outcome: Literal["restored", "removed", "kept"]
    why: str = ""


class FileChanges:
    """The store of old contents, in `folder`, which outlives the process; without one in a temporary folder, which does not.

    Changes made after `begin(group)` belong together and are taken back together; before any `begin` each is on its own.
    """

    def __init__(
        self, folder: Path | None = None, *, kept_bytes: int = KEPT_BYTES, kept_changes: int = KEPT_CHANGES
    ) -> None:
        self.survives = folder is not None  # another process can take back what this one changed
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._kept_changes = kept_changes
        self._group = ""
        self._takes_back = False

    def begin(self, group: str) -> None:
        """What is changed from now on belongs to `group`, a turn's id."""
        self._group = group

    def open(
        self, changes: Sequence[Change], *, temporaries: Sequence[str], made: Sequence[Path], disk: Disk
    ) -> "KeptChange":
        """The old contents and a note of what is about to happen, on the disk. Raises OSError."""
        root = self._root()
        size = sum(len(change.before or b"") for change in changes)
        keeps = size <= self._kept_bytes
        self._prune(root, room=size if keeps else 0)
        place = _new_place(root)
        try:
            with disk.folder(place, base=root) as folder:
                files = [
                    _keep(change, number=number, temporary=temporary, folder=folder, disk=disk, keeps=keeps)
                    for number, (change, temporary) in enumerate(zip(changes, temporaries, strict=True))
                ]
            note = Note(
                owner=our_name(),
                group=self._group or place.name,
                state="staging",
                files=tuple(files),
                made=tuple([os.fsencode(path) for path in made]),
                takes_back=self._takes_back,
            )
            kept = KeptChange(place, note=note, disk=disk)
            kept.become("staging")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return kept

    def undo_last(self, group: str | None = None, *, disk: Disk | None = None) -> tuple[Undone, ...]:
        """Take back the last group of changes that was not taken back yet, or the given one; () where there is none.

        A file that was changed since is left alone, and said. Raises ToolFault where the disk refuses; nothing is undone then.
        """
        if self._folder is None or not self._folder.is_dir():
            return ()
        root = self._root()
        hands = disk or Disk()
        done = [
            kept for kept in kept_changes(root, disk=hands) if kept.note.state == "done" and not kept.note.takes_back
        ]
        wanted = group if group is not None else done[-1].note.group if done else ""
        taken = [kept for kept in done if kept.note.group == wanted]
        plan = [_undo_file(last, first=first, place=place) for last, first, place in _spans(taken)]
        changes = [change for _, change in plan if change is not None]
        if changes:
            self._takes_back = True
            try:
                apply(changes, disk=hands, store=self)
            finally:
                self._takes_back = False
        for kept in reversed(taken):
            kept.become("undone")
            drop_folders(kept.note, disk=hands)
        for kept in list(kept_changes(root, disk=hands)):
            if kept.note.takes_back and kept.note.owner == our_name():
                kept.given_up()
        return tuple([undone for undone, _ in plan])

    def _root(self) -> Path:
        if self._folder is None:
            self._folder = make_private_folder(self, kind="changes", clear=drop_temporaries)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder.resolve()

    def _prune(self, root: Path, *, room: int) -> None:
        """The oldest go, until there is room for one more. An unfinished one is another process's, or `recover_changes`'."""
        old = [kept for kept in kept_changes(root, disk=Disk()) if kept.note.state in {"done", "undone"}]
        sizes = [kept.size for kept in old]
        total = sum(sizes)
        for number, (kept, size) in enumerate(zip(old, sizes, strict=True)):
            if total + room <= self._kept_bytes and len(old) - number < self._kept_changes:
                return
            kept.given_up()
            total -= size


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

    def become(self, state: State) -> None:
        """The note says so, on the disk. Raises OSError."""
        note = msgspec.structs.replace(self.note, state=state)
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


def _spans(taken: list[KeptChange]) -> list[tuple[KeptFile, KeptFile, Path]]:
    """Each file once: its last change, and the first one from which on nobody else changed it in between, and where the old
    content of that is."""
    spans: dict[bytes, tuple[KeptFile, KeptFile, Path]] = {}
    for kept in reversed(taken):
        for file in kept.note.files:
            if file.path not in spans:
                spans[file.path] = (file, file, kept.place)
            elif spans[file.path][1].before == file.after:
                spans[file.path] = (spans[file.path][0], file, kept.place)
    return list(spans.values())


def _undo_file(last: KeptFile, *, first: KeptFile, place: Path) -> tuple[Undone, Change | None]:
    path = first.place
    try:
        found = content_at(path.parent, name=path.name, base=first.root)
    except OSError as error:
        return Undone(path=path, outcome="kept", why=f"it cannot be read: {error.strerror}"), None
    now = None if found is None else digest(found[0])
    if now == first.before:
        return Undone(path=path, outcome="kept", why="it is as it was before"), None
    if now != last.after:
        return Undone(path=path, outcome="kept", why="it was changed since"), None
    old = None
    if first.before is not None:
        kept = content_at(place, name=first.backup, base=place.parent) if first.backup else None
        if kept is None or digest(kept[0]) != first.before:
            return Undone(path=path, outcome="kept", why="its old content was too large to keep"), None
        old = kept[0]
    change = Change(
        path=path,
        base=first.root,
        shown=first.shown,
        before=None if found is None else found[0],
        after=old,
        stamp=None if found is None else found[1],
        like=first.like,
    )
    return Undone(path=path, outcome="removed" if old is None else "restored"), change


def _keep(change: Change, *, number: int, temporary: str, folder: int, disk: Disk, keeps: bool) -> KeptFile:
    backup = f"{number}.before" if change.before is not None and keeps else ""
    if backup:
        disk.create(backup, folder=folder, content=change.before or b"", like=None, mode=0o600, durable=False)
    return KeptFile(
        path=os.fsencode(change.path),
        base=os.fsencode(change.base),
        shown=change.shown,
        temporary=temporary,
        before=None if change.before is None else digest(change.before),
        after=None if change.after is None else digest(change.after),
        backup=backup,
        like=change.like,
    )


def _new_place(root: Path) -> Path:
    """A folder of its own, numbered after all others."""
    numbers = [int(place.name) for place in root.iterdir() if place.name.isdecimal()]
    for number in itertools.count(max(numbers, default=0) + 1):
        place = root / f"{number:08}"
        with contextlib.suppress(FileExistsError):  # another process was faster
            place.mkdir(mode=0o700)
            return place
    raise AssertionError("numbers do not end")
