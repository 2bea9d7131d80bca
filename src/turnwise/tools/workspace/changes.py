"""What the file tools changed, kept so that it can be taken back."""

import contextlib
import itertools
import os
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.base.private_folders import make_private_folder
from turnwise.errors import ToolFault
from turnwise.journal.owners import our_name
from turnwise.running.grants import call_at_work, turn_at_work
from turnwise.tools.workspace.disk import Disk
from turnwise.tools.workspace.kept import KeptChange, KeptFile, Note, drop_temporaries, kept_changes
from turnwise.tools.workspace.recovery import recover_changes
from turnwise.tools.workspace.staged_changes import FileChange, digest
from turnwise.tools.workspace.undo import Undoing, Undone, carry_out, plan_undoing

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
        """What taking back would do: of the given group, or of the last one that was not taken back yet. None where there is
        nothing. Changes nothing."""
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
