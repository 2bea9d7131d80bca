"""Finishing what a kill broke off."""

import contextlib
import shutil
import time
from pathlib import Path

from turnwise.base.private_folders import NEW_S
from turnwise.journal.owners import is_alive, is_presumed_gone
from turnwise.tools.workspace.disk import Disk
from turnwise.tools.workspace.kept import (
    NOTE,
    KeptFile,
    Note,
    content_at,
    drop_folders,
    drop_temporary,
    kept_changes,
)
from turnwise.tools.workspace.staged_changes import digest


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
    names = ", ".join(f"`{file.shown}`" for file in note.files)
    if any(not _can_be_finished(file) for file in late):
        for file in note.files:
            drop_temporary(file, disk=disk)
        old = ", ".join(f"`{file.shown}`" for file in late)
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
