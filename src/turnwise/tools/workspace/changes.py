"""What the file tools changed, kept so that it can be taken back."""

import contextlib
import errno
import hashlib
import itertools
import os
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.base.private_folders import NEW_S, make_private_folder
from turnwise.errors import ToolFault
from turnwise.journal.owners import is_alive, is_presumed_gone, our_name
from turnwise.running.run_context import call_at_work, turn_at_work
from turnwise.tools.workspace.staged_changes import (
    NOTE,
    Disk,
    FileAttributes,
    FileChange,
    KeptChange,
    KeptFile,
    Note,
    Stamp,
    Store,
    apply,
    attributes_of,
    content_at,
    digest,
    drop_folders,
    drop_temporaries,
    drop_temporary,
    kept_changes,
    open_file,
    stamp_of,
)
from turnwise.vocab.wording import in_ticks

# Taking changes back: what it would do to each file, found first; then all of it or nothing.


UndoOutcome = Literal["restored", "recreated", "removed", "unchanged", "kept"]


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What taking back does to one file: `restored` (it gets its old content), `recreated` (it was deleted and is created again),
    `removed` (the change made it), `unchanged` (it is as it was before), `kept` (it is left as it is, and `why`; `saved` names
    the copy of its old content)."""

    path: Path
    outcome: UndoOutcome
    why: str = ""
    saved: Path | None = None


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """What taking back a group of changes would do. Nothing has happened yet; `changes` are those of the files that
    something happens to, in order, and hold what the files were when they were looked at."""

    taken: tuple[KeptChange, ...]
    files: tuple[Undone, ...]
    changes: tuple[FileChange, ...]


def plan_undoing(taken: Sequence[KeptChange]) -> Undoing:
    """Look at each file that these sets of one group changed, which are `done`. Changes nothing."""
    is_partial = any(kept.note.is_partial for kept in taken)
    plan = [
        (_left(links[0], "older changes of it gave way to newer ones"), None) if is_partial else _plan_file(links)
        for links in _links(taken)
    ]
    return Undoing(
        taken=tuple(taken),
        files=tuple([undone for undone, _ in plan]),
        changes=tuple([change for _, change in plan if change is not None]),
    )


def carry_out(undoing: Undoing, *, disk: Disk, store: Store) -> None:
    """All of its changes, or none: then ToolFault is raised, and the group can be taken back again."""
    if undoing.changes:
        apply(undoing.changes, disk=disk, store=store)
    for kept in reversed(undoing.taken):
        # What could not be noted (a full disk, a copy that gave way) is found out by the next look: the files are as before.
        with contextlib.suppress(OSError):
            kept.become("undone")
        drop_folders(kept.note, disk=disk)


class _Link(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a file, and the folder that its old content lies in."""

    file: KeptFile
    place: Path

    @property
    def copy(self) -> Path | None:
        return self.place / self.file.backup if self.file.backup else None


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What stands under a file's name. `content` is only there if it is the expected one."""

    digest: str | None
    content: bytes | None = None
    stamp: Stamp | None = None
    attributes: FileAttributes | None = None


class _Unusable(Exception):
    """What stands there is no file to be changed; says why."""


def _links(taken: Sequence[KeptChange]) -> list[list[_Link]]:
    """The changes of each file in order, the file that was changed last first."""
    found: dict[bytes, list[_Link]] = {}
    for kept in reversed(taken):
        for file in kept.note.files:
            found.setdefault(file.path, []).insert(0, _Link(file=file, place=kept.place))
    return list(found.values())


def _plan_file(links: Sequence[_Link]) -> tuple[Undone, FileChange | None]:
    first, last = links[0], links[-1]
    path, before, after = first.file.place, first.file.before, last.file.after
    try:
        now = _look(last.file, expected=after)
    except _Unusable as reason:
        return _left(first, str(reason)), None
    if now.digest == before:
        return Undone(path=path, outcome="unchanged"), None
    if now.digest != after:
        return _left(first, _since(now.digest, after=after)), None
    if any(one.file.after != then.file.before for one, then in itertools.pairwise(links)):
        # what lies between is a command's or somebody else's, and no copy tells it from what was changed here
        return _left(first, "something else changed it between two of these changes"), None
    if now.attributes is not None and not now.attributes.mode & 0o222:
        return _left(first, "it is write-protected"), None
    old = None
    if before is not None:
        try:
            old = _old_content(first)
        except _Unusable as reason:
            return Undone(path=path, outcome="kept", why=str(reason)), None
        if now.digest is None and not first.file.root.is_dir():
            return _left(first, "the folder that it was in is gone"), None
    change = FileChange(
        path=path,
        base=first.file.root,
        shown=first.file.shown,
        before=now.content,
        after=old,
        stamp=now.stamp,
        like=_attributes(first.file, last=last.file, now=now.attributes),
    )
    return Undone(path=path, outcome=_outcome(old, now=now)), change


def _outcome(old: bytes | None, *, now: _Seen) -> UndoOutcome:
    if old is None:
        return "removed"
    return "recreated" if now.digest is None else "restored"


def _since(now: str | None, *, after: str | None) -> str:
    if now is None:
        return "it was removed since"
    return "it was made anew since" if after is None else "it was changed since"


def _left(first: _Link, why: str) -> Undone:
    copy = first.copy
    saved = copy if copy is not None and copy.is_file() else None
    return Undone(path=first.file.place, outcome="kept", why=why, saved=saved)


def _attributes(first: KeptFile, *, last: KeptFile, now: FileAttributes | None) -> FileAttributes | None:
    """Mode and owner as before; of a file whose mode or owner somebody changed since, as they are now."""
    is_touched = now is not None and last.like is not None and now != last.like
    return now if is_touched else first.like


def _old_content(first: _Link) -> bytes:
    """Raises _Unusable where there is no copy of it."""
    if first.copy is None:
        raise _Unusable("its old content was too large to keep")
    try:
        kept = content_at(first.place, name=first.file.backup, base=first.place.parent)
    except OSError as error:
        raise _Unusable(f"the copy of its old content cannot be read: {error.strerror}") from None
    if kept is None:
        raise _Unusable("the copy of its old content is gone")
    if digest(kept[0]) != first.file.before:
        raise _Unusable("the copy of its old content is damaged")
    return kept[0]


def _look(file: KeptFile, *, expected: str | None) -> _Seen:
    """What stands there now, reached without following a link. Raises _Unusable."""
    try:
        with Disk().folder(file.place.parent, base=file.root) as folder:
            descriptor = open_file(file.place.name, folder=folder)
    except FileNotFoundError:
        return _Seen(digest=None)
    except OSError as error:
        raise _Unusable(_reason(error)) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        is_folder = stat.S_ISDIR(status.st_mode)
        raise _Unusable("a folder stands in its place" if is_folder else "it is no regular file any more")
    with os.fdopen(descriptor, "rb") as opened:
        try:
            # in pieces: what somebody put there may be larger than the memory
            found = hashlib.file_digest(opened, "sha256").hexdigest()
            opened.seek(0)
            content = opened.read(status.st_size) if found == expected else None
        except OSError as error:
            raise _Unusable(_reason(error)) from None
        if content is not None and digest(content) != expected:
            raise _Unusable("it is being changed at this moment")
        attributes = attributes_of(descriptor, status=status)
    return _Seen(digest=found, content=content, stamp=stamp_of(status), attributes=attributes)


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ELOOP:
            return "a link stands in its place"
        case errno.ENOTDIR:
            return "a link or a file stands where its folder was"
        case _:
            return f"it cannot be read: {error.strerror}"


# Finishing what a kill broke off.


def recover_changes(folder: Path, *, disk: Disk | None = None) -> tuple[str, ...]:
    """Finish or clear away what killed processes left in the store `folder`; a sentence for each change that was broken off.

    A change whose new contents had all reached the disk is finished. Where somebody has changed one of its files since, each
    file is left as it is, and the sentence names them. Raises OSError where the disk refuses; it can be tried again.
    """
    if not folder.is_dir():
        return ()
    hands = disk or Disk()
    _drop_unnoted(folder)
    told: list[str] = []
    for kept in list(kept_changes(folder.resolve(), disk=hands)):
        is_left = not is_alive(kept.note.owner) or is_presumed_gone(kept.note.owner)
        if kept.note.state in {"done", "undone"} or not is_left:
            continue
        if kept.note.state == "staging" and not all(
            _holds(file, file.place.name, expected=file.after) for file in kept.note.files
        ):
            for file in kept.note.files:
                drop_temporary(file, disk=hands)
            drop_folders(kept.note, disk=hands)
            kept.given_up()
        else:
            told += _finish(kept.note, disk=hands)
            kept.finished()
    return tuple(told)


def _drop_unnoted(folder: Path) -> None:
    """What a process kept that was killed before it wrote what for; one that lives writes that within moments."""
    for place in folder.iterdir():
        with contextlib.suppress(OSError):
            is_old = time.time() - place.lstat().st_mtime > NEW_S
            if is_old and place.name.isdecimal() and not (place / NOTE).exists():
                shutil.rmtree(place)


def _finish(note: Note, *, disk: Disk) -> list[str]:
    """Roll a staged change forward; says what was done, nothing where it had been whole already."""
    late = [file for file in note.files if not _holds(file, file.place.name, expected=file.after)]
    names = in_ticks([file.shown for file in note.files])
    if any(not _can_be_finished(file) for file in late):
        for file in note.files:
            drop_temporary(file, disk=disk)
        old = in_ticks([file.shown for file in late])
        return [
            f"a change of {names} was broken off and cannot be finished, as something changed since: "
            f"{old} do not have it, the others do"
        ]
    for file in late:
        with disk.folder(file.place.parent, base=file.root) as folder:
            if file.after is None:
                disk.remove(file.place.name, folder=folder)
            else:
                disk.rename(file.temporary, file.place.name, folder=folder)
            disk.sync(folder)
    return [f"a change of {names} that was broken off is finished"] if late else []


def _can_be_finished(file: KeptFile) -> bool:
    """Nobody changed it meanwhile, and the new content still waits beside its place."""
    ready = file.after is None or _holds(file, file.temporary, expected=file.after)
    return ready and _holds(file, file.place.name, expected=file.before)


def _holds(file: KeptFile, name: str, *, expected: str | None) -> bool:
    try:
        found = content_at(file.place.parent, name=name, base=file.root)
    except OSError:
        return False
    return (None if found is None else digest(found[0])) == expected


KEPT_BYTES = 64 * 1024 * 1024  # of old contents; the oldest give way
KEPT_CHANGES = 500


class FileChanges:
    """The store of old contents, in `folder`, which outlives the process; without one in a temporary folder, which does not.

    Changes of one group are taken back together: those made after `begin(group)`; without it those of a turn that an agent
    runs, its sub-agents' too, under the turn's id; else each is on its own.
    """

    def __init__(
        self, folder: Path | None = None, *, kept_bytes: int = KEPT_BYTES, kept_changes: int = KEPT_CHANGES
    ) -> None:
        self._folder = folder
        self._outlives = folder is not None
        self._kept_bytes = kept_bytes
        self._kept_changes = kept_changes
        self._group = ""
        self._partial: set[str] = set()  # groups whose first changes gave way
        self._making = threading.Lock()  # the folder, once: calls of several runs may be the first to need it

    def begin(self, group: str) -> None:
        """What is changed from now on belongs to `group`."""
        self._group = group

    def open(
        self, changes: Sequence[FileChange], *, temporaries: Sequence[str], made: Sequence[Path], disk: Disk
    ) -> KeptChange:
        """The old contents and a note of what is about to happen, on the disk. Raises OSError."""
        return self.note(changes, temporaries=temporaries, made=made, disk=disk, takes_back=False)

    def note(
        self,
        changes: Sequence[FileChange],
        *,
        temporaries: Sequence[str],
        made: Sequence[Path],
        disk: Disk,
        takes_back: bool,
    ) -> KeptChange:
        """The same; of an undoing (`takes_back`) no content is kept, as that would push out the copies that it restores."""
        root = self._root()
        size = sum(len(change.before or b"") for change in changes)
        keeps = size <= self._kept_bytes and not takes_back
        self._prune(root, room=size if keeps else 0)
        place = _new_place(root)
        group = self._group or turn_at_work() or place.name
        try:
            with disk.folder(place, base=root) as folder:
                files = [
                    _keep(change, number=number, temporary=temporary, folder=folder, disk=disk, keeps=keeps)
                    for number, (change, temporary) in enumerate(zip(changes, temporaries, strict=True))
                ]
            note = Note(
                owner=our_name(),
                group=group,
                state="staging",
                files=tuple(files),
                made=tuple([os.fsencode(path) for path in made]),
                takes_back=takes_back,
                call=call_at_work(),
                is_partial=group in self._partial,
            )
            kept = KeptChange(place, note=note, disk=disk)
            kept.become("staging")
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return kept

    def of_call(self, call: str) -> Note | None:
        """The note of the change that a call has made, its process having died; None where it has made none.

        What was broken off is finished or cleared away first. Raises OSError, and ToolFault where nobody can tell: the store did
        not outlive the process.
        """
        if self._folder is None or not self._outlives:
            raise ToolFault("the notes of changes went with the process")
        recover_changes(self._folder)
        notes = [kept.note for kept in self._kept(disk=Disk())]
        return next((note for note in notes if note.call == call and not note.takes_back), None)

    def has_changed(self, path: Path, *, groups: Collection[str]) -> bool:
        """Whether a change of this file is kept, and not taken back, that this process or one of the groups has made."""
        own, name = our_name(), os.fsencode(path)
        notes = [kept.note for kept in self._kept(disk=Disk())]
        return any(
            (note.owner == own or note.group in groups) and any(file.path == name for file in note.files)
            for note in notes
            if note.state != "undone" and not note.takes_back
        )

    def groups(self) -> Mapping[str, int]:
        """Those of which changes are kept, taken back or not, and how many of each."""
        return Counter([kept.note.group for kept in self._kept(disk=Disk()) if not kept.note.takes_back])

    def undoing(self, group: str | None = None) -> Undoing | None:
        """What undoing would do to the given group of changes, or to the last group that is not undone yet. None if there is no
        such group. Changes nothing."""
        done = [kept for kept in self._kept(disk=Disk()) if kept.note.state == "done" and not kept.note.takes_back]
        wanted = group if group is not None else done[-1].note.group if done else ""
        taken = [kept for kept in done if kept.note.group == wanted]
        return plan_undoing(taken) if taken else None

    def take_back(self, undoing: Undoing, *, disk: Disk | None = None) -> None:
        """Do what was planned; a file that is `kept` stays as it is, and the group counts as taken back all the same.

        Raises ToolFault where the disk refuses or a file was changed since it was looked at: nothing is undone then.
        """
        hands = disk or Disk()
        carry_out(undoing, disk=hands, store=_TakingBack(self))
        for kept in self._kept(disk=hands):
            if kept.note.takes_back and kept.note.owner == our_name():
                kept.given_up()

    def undo_last(self, group: str | None = None, *, disk: Disk | None = None) -> tuple[Undone, ...]:
        """Take back the last group of changes that was not taken back yet, or the given one; () where there is none.

        A file that was changed since is left alone, and said; the others are taken back. Raises ToolFault where the disk
        refuses; nothing is undone then.
        """
        undoing = self.undoing(group)
        if undoing is None:
            return ()
        self.take_back(undoing, disk=disk)
        return undoing.files

    def _kept(self, *, disk: Disk) -> list[KeptChange]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return list(kept_changes(self._folder.resolve(), disk=disk))

    def _root(self) -> Path:
        with self._making:
            if self._folder is None:
                self._folder = make_private_folder(self, kind="changes", clear=drop_temporaries)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder.resolve()

    def _prune(self, root: Path, *, room: int) -> None:
        """The oldest go, until there is room for one more. An unfinished one is another process's, or `recover_changes`'."""
        old = [kept for kept in kept_changes(root, disk=Disk()) if kept.note.state in {"done", "undone"}]
        sizes = [kept.size for kept in old]
        total, gone = sum(sizes), 0
        while gone < len(old) and (total + room > self._kept_bytes or len(old) - gone >= self._kept_changes):
            old[gone].given_up()
            total -= sizes[gone]
            gone += 1
        lost = {kept.note.group for kept in old[:gone]}
        self._partial |= lost
        for kept in old[gone:]:
            if kept.note.group in lost and not kept.note.is_partial:
                # without a note of it a file would be taken back half: to what it was between two changes
                with contextlib.suppress(FileNotFoundError):  # another process makes room, too
                    kept.become_partial()


class _TakingBack(msgspec.Struct, frozen=True):
    """The store as an undoing uses it."""

    changes: FileChanges

    def open(
        self, changes: Sequence[FileChange], *, temporaries: Sequence[str], made: Sequence[Path], disk: Disk
    ) -> KeptChange:
        return self.changes.note(changes, temporaries=temporaries, made=made, disk=disk, takes_back=True)


def _keep(change: FileChange, *, number: int, temporary: str, folder: int, disk: Disk, keeps: bool) -> KeptFile:
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
