"""Files that are read without being asked for: instructions, settings, a repository's own files.

A folder may have come from elsewhere, and so may each of its files: one may be a link to a key, a pipe that nobody writes
to, a device without an end. What is judged is the opened file, never its path alone.
"""

import contextlib
import os
import stat
from pathlib import Path

import msgspec

from turnwise.rules.guarded_names import is_secret
from turnwise.rules.permission_paths import is_inside

_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _SAFE
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _SAFE  # NONBLOCK: opening a named pipe would wait for its writer


class LeftOut(msgspec.Struct, frozen=True):
    """A file that is there and was not read. `why` goes on from its name: "is a link that leads out of the folder"."""

    why: str
    is_too_long: bool = False


_IRREGULAR = LeftOut("is no regular file")


def read_unasked(path: Path, *, within: Path, max_bytes: int) -> bytes | LeftOut | None:
    """The content of a regular file of the folder `within`, at most `max_bytes`; None where there is nothing.

    A link is followed if it ends at a regular file inside `within` that the table of names does not call secret. The file is
    opened from folder to folder without following a link, so a link that is put there meanwhile is refused.
    """
    if not os.path.lexists(path):
        return None
    folder = os.path.realpath(within)
    try:
        real = os.path.realpath(path, strict=True)
    except OSError:
        return LeftOut("is a link that leads nowhere")
    if not is_inside(real, folder=folder):
        return LeftOut("is a link that leads out of the folder")
    below = os.path.relpath(real, folder)
    is_link = real != os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118
    if is_link and (is_secret(below) or is_secret(real, home=os.path.realpath(os.path.expanduser("~")))):  # noqa: PTH111
        return LeftOut("is a link to a file that may hold keys or passwords")
    try:
        descriptor = _open_below(folder, below=below)
    except OSError as error:
        return LeftOut(f"cannot be opened ({error.strerror})")
    return _IRREGULAR if descriptor is None else _content(descriptor, max_bytes=max_bytes)


def read_of_user(path: Path, *, max_bytes: int) -> bytes | LeftOut | None:
    """The same for a file of the user's own, which may lie anywhere and be a link to anywhere. The null device is empty."""
    try:
        if not _may_be_read(path.stat()):
            return _IRREGULAR
        descriptor = os.open(path, _FILE & ~getattr(os, "O_NOFOLLOW", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return LeftOut(f"cannot be opened ({(error.strerror if isinstance(error, OSError) else '') or error})")
    return _content(descriptor, max_bytes=max_bytes)


def _open_below(folder: str, *, below: str) -> int | None:
    """A descriptor of a resolved file; None where it is no regular one. Raises OSError, also where a link stands on the way by
    now."""
    if below == ".":
        return None
    *folders, name = Path(below).parts
    with contextlib.ExitStack() as held:
        above = os.open(folder, _FOLDER)
        held.callback(os.close, above)
        for part in folders:
            above = os.open(part, _FOLDER, dir_fd=above)
            held.callback(os.close, above)
        # a device is not even opened, as opening alone may do something
        if not stat.S_ISREG(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            return None
        return os.open(name, _FILE, dir_fd=above)


def _content(descriptor: int, *, max_bytes: int) -> bytes | LeftOut:
    """Of the opened file, which is closed then."""
    try:
        status = os.fstat(descriptor)
        if not _may_be_read(status):
            return _IRREGULAR
        if status.st_size > max_bytes:
            return LeftOut(f"has {status.st_size} bytes; {max_bytes} at most", is_too_long=True)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(status.st_size + 1)
    except OSError as error:
        return LeftOut(f"cannot be read ({error.strerror})")
    finally:
        os.close(descriptor)
    return content if len(content) <= status.st_size else LeftOut("has more bytes than it says")


def _may_be_read(status: os.stat_result) -> bool:
    if stat.S_ISREG(status.st_mode):
        return True
    with contextlib.suppress(OSError):
        null = os.stat(os.devnull)  # noqa: PTH116
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == null.st_rdev
    return False
