"""Taking changes back: what it would do to each file, found first; then all of it or nothing."""

import contextlib
import errno
import hashlib
import itertools
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.tools.workspace.disk import Disk, FileAttributes, Stamp, attributes_of, open_file, stamp_of
from turnwise.tools.workspace.kept import KeptChange, KeptFile, content_at, drop_folders
from turnwise.tools.workspace.staged_changes import FileChange, Store, apply, digest

UndoOutcome = Literal["restored", "recreated", "removed", "unchanged", "kept"]


class Undone(msgspec.Struct, frozen=True, kw_only=True):
    """What taking back does to one file: `restored` (it gets its old content), `recreated` (it was deleted and is made anew),
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
