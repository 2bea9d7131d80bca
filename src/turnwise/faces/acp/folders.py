"""The folder that an editor names: judged like `--cwd`, and never turnwise's own."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.drivers.journal.journal import journal_path
from turnwise.drivers.settings.settings import user_folder
from turnwise.errors import CallerError
from turnwise.faces.cli.text import visible_line
from turnwise.rules.permission_paths import is_inside

MAX_PATH = 4096  # Linux takes no longer one


def folder_of(cwd: str, *, others: Sequence[str] | None, env: Mapping[str, str]) -> Path:
    """The resolved folder of a session. Raises CallerError where it cannot be one.

    `others` are further roots: turnwise works in one folder, so they are refused and not left out in silence.
    """
    shown = visible_line(cwd[:200])
    if others:
        raise CallerError("turnwise works in one folder: leave `additionalDirectories` out")
    if "\0" in cwd or len(cwd) > MAX_PATH or not os.path.isabs(cwd):  # noqa: PTH117 (a stranger's text)
        raise CallerError(f"`cwd` is `{shown}`: give the absolute path of a folder")
    try:
        folder = Path(cwd).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise CallerError(f"`cwd` is `{shown}`: there is no such folder, or it cannot be reached") from None
    if not folder.is_dir():
        raise CallerError(f"`cwd` is `{shown}`: it is no folder")
    if folder == Path(folder.anchor):
        raise CallerError("`cwd` is the root of the file system: open a folder of your own")
    for own in (journal_path(env).parent, user_folder(env)):
        if is_inside(str(folder), folder=os.path.realpath(own)):
            raise CallerError(f"`cwd` is `{shown}`, where turnwise keeps its own files: open a folder of your own")
    return folder
