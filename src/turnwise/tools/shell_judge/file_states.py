"""What the files hold that a call would write: an approval of a change is for a change of that."""

import hashlib
import os
import stat
from collections.abc import Iterable

from turnwise.rules.permission_facts import PathFact
from turnwise.vocab.file_names import unmarked

MAX_BYTES = 64 * 1024 * 1024  # read for one call, 0.1 s; of what is larger, size and times have to do
PIECE = 1024 * 1024


def state_of(paths: Iterable[PathFact]) -> str:
    """Stands for what stands at the paths and what it holds. Empty where nothing would be written."""
    whole = hashlib.sha256()
    left = MAX_BYTES
    found = False
    for path in paths:
        if path.access != "write":
            continue
        found = True
        kind, read = _state(unmarked(path.resolved), most_bytes=left)
        left -= read
        whole.update(f"{path.resolved}\0{kind}\0".encode(errors="surrogateescape"))
    return whole.hexdigest() if found else ""


def _state(path: str, *, most_bytes: int) -> tuple[str, int]:
    """And the bytes that were read for it. A link is not followed, a pipe not waited for: the path is resolved already."""
    if not path:
        return "unknown", 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing", 0
    except (OSError, ValueError) as error:
        return f"cannot be opened: {type(error).__name__} {getattr(error, 'errno', '')}", 0
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return f"no file: {stat.S_IFMT(status.st_mode):o}", 0
        if status.st_size > most_bytes:
            return (
                f"large: {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}",
                0,
            )
        content = hashlib.sha256()
        read = 0
        while piece := os.read(descriptor, PIECE):
            read += len(piece)
            content.update(piece)
            if read > most_bytes:  # it grows while it is read
                return f"growing: {status.st_ino} {read}", read
        return content.hexdigest(), read
    except OSError as error:
        return f"cannot be read: {error.errno}", 0
    finally:
        os.close(descriptor)
