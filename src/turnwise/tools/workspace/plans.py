"""What a call would change, before anything is changed: the same plan is shown for approval and carried out."""

import os
import stat
from pathlib import Path

import msgspec

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, kind_of, text_of
from turnwise.tools.workspace.diffs import tell_changes
from turnwise.tools.workspace.paths import FoundFile, WorkspacePaths
from turnwise.tools.workspace.staged_changes import FileChange, KeptFile, apply, content_at, digest
from turnwise.vocab.wording import in_ticks


class ChangePlan(msgspec.Struct, frozen=True, kw_only=True):
    """`said` is the result that the model reads when it has happened. `told` are files whose new content the model knows,
    whatever it knew of the old one; of the others it knows as much as before."""

    changes: tuple[FileChange, ...]
    said: str
    told: frozenset[Path] = frozenset()


def carry_out(workspace: WorkspacePaths, plan: ChangePlan) -> str:
    """All of it or nothing. Raises ToolFault."""
    known = plan.told | {
        change.path
        for change in plan.changes
        if change.before is not None and not workspace.seen.doubt(change.path, change.before)
    }
    if plan.changes:
        apply(plan.changes, disk=workspace.disk, store=workspace.changes)
        tell_changes(plan.changes)
    for change in plan.changes:
        if change.after is not None and change.path in known:
            workspace.seen.keep(change.path, change.after)
        else:
            workspace.seen.drop(change.path)
    linked = [change.shown for change in plan.changes if change.linked]
    return plan.said + "".join(
        f"\n[`{name}` had further names (hard links); they keep the old content]" for name in linked
    )


def replacing(workspace: WorkspacePaths, found: FoundFile, *, after: bytes | None) -> FileChange:
    """A change of a file that is there."""
    return FileChange(
        path=found.path,
        base=workspace.base_of(found.path),
        shown=workspace.show(found.path),
        before=found.content,
        after=after,
        stamp=found.stamp,
        like=found.attributes,
        linked=found.names > 1,
    )


def making(workspace: WorkspacePaths, path: Path, *, after: bytes, like: FoundFile | None = None) -> FileChange:
    """A new file, with the attributes of another one where it was moved."""
    return FileChange(
        path=path,
        base=workspace.base_of(path),
        shown=workspace.show(path),
        before=None,
        after=after,
        like=None if like is None else like.attributes,
    )


def find_text(workspace: WorkspacePaths, given: str) -> tuple[FoundFile, FileText]:
    """A text file to change. Raises ToolFault where it is missing, no text, or write-protected."""
    found = workspace.find(given)
    refuse_write_protected(found, name=given)
    text = text_of(found.content)
    if text is None:
        size = f"{len(found.content):,} bytes"
        raise ToolFault(f"`{given}` is {kind_of(found.content)} ({size}), no text that can be edited")
    return found, text


def refuse_write_protected(found: FoundFile, *, name: str) -> None:
    """Moving over it would get round its protection."""
    if not found.writable:
        raise ToolFault(f"`{name}` is write-protected")


def refuse_special(path: Path, *, name: str) -> None:
    """A device, pipe or socket is never opened for writing; opening alone may do something."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError:
        raise ToolFault(f"`{name}` cannot be made: a file stands where its folder would be") from None
    if stat.S_ISDIR(mode):
        raise ToolFault(f"`{name}` is a folder")
    if not stat.S_ISREG(mode):
        raise ToolFault(f"`{name}` is no regular file (a device, pipe or socket)")


# What became of a change of files whose process has died: the note of it says what was meant, the files' hashes what is.


def told_of_change(workspace: WorkspacePaths, *, call: str) -> str | None:
    """The call's result, in words for the model; None where it has changed nothing.

    Raises ToolFault where that cannot be told, OSError where the disk refuses.
    """
    note = workspace.changes.of_call(call) if call else None
    if note is None:
        return None
    names = in_ticks([file.shown for file in note.files])
    if not all(map(_has_it, note.files)):
        raise ToolFault(f"{names} were changed again since")
    return f"Changed {names}. (The process was interrupted behind the change; the files have it, whole.)"


def _has_it(file: KeptFile) -> bool:
    found = content_at(file.place.parent, name=file.place.name, base=file.root)
    return (None if found is None else digest(found[0])) == file.after
