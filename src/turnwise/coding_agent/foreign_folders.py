"""The folder that another program names: judged like `--cwd`, and never turnwise's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.journal.journal import journal_path
from turnwise.rules.permission_paths import is_inside
from turnwise.settings.settings import user_folder
from turnwise.vocab.file_names import given_name, shown_name

MAX_PATH = 4096  # Linux takes no longer one


def foreign_folder(given: str, *, name: str, env: Mapping[str, str], below: Path | None = None) -> Path:
    """The resolved folder. `name` is how the other program calls it. With `below`, a resolved folder, the path may be relative to
    that, and has to lead to it or into it. Raises CallerError where it cannot be a run's folder.
    """
    said = f"`{name}` is `{visible_line(given[:200])}`"
    is_absolute = os.path.isabs(given)  # noqa: PTH117 (a stranger's text)
    if "\0" in given or len(given) > MAX_PATH or not (is_absolute or below):
        raise CallerError(f"{said}: give the {'path' if below else 'absolute path'} of a folder")
    try:
        folder = (below / given_name(given) if below else Path(given_name(given))).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise CallerError(f"{said}: there is no such folder, or it cannot be reached") from None
    if below is not None and not is_inside(str(folder), folder=str(below)):
        raise CallerError(f"{said}, which is not below `{shown_name(str(below))}`: name a folder there")
    if not folder.is_dir():
        raise CallerError(f"{said}: it is no folder")
    if folder == Path(folder.anchor):
        raise CallerError(f"`{name}` is the root of the file system: open a folder of your own")
    for own in (journal_path(env).parent, user_folder(env)):
        if is_inside(str(folder), folder=os.path.realpath(own)):
            raise CallerError(f"{said}, where turnwise keeps its own files: open a folder of your own")
    return folder
