"""What became of a change of files whose process has died: the note of it says what was meant, the files' hashes what is."""

from turnwise.errors import ToolFault
from turnwise.tools.workspace.kept import KeptFile, content_at
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.staged_changes import digest


def told_of_change(workspace: WorkspacePaths, *, call: str) -> str | None:
    """The call's result, in words for the model; None where it has changed nothing.

    Raises ToolFault where that cannot be told, OSError where the disk refuses.
    """
    note = workspace.changes.of_call(call) if call else None
    if note is None:
        return None
    names = ", ".join([f"`{file.shown}`" for file in note.files])
    if not all(map(_has_it, note.files)):
        raise ToolFault(f"{names} were changed again since")
    return f"Changed {names}. (The process was interrupted behind the change; the files have it, whole.)"


def _has_it(file: KeptFile) -> bool:
    found = content_at(file.place.parent, name=file.place.name, base=file.root)
    return (None if found is None else digest(found[0])) == file.after
