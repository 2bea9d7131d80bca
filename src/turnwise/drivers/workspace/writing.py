"""The tool `write`, and the one way in which the workspace tools put bytes into a file: whole or not at all."""

import os
import stat
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import Workspace
from turnwise.errors import ToolFault

DESCRIPTION = """Write a file, replacing what was in it; missing folders are made. With `append` the content is added at \
the end: use that to write a long file in several calls."""


class WriteArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    content: Annotated[str, Meta(description="The text to write")]
    append: Annotated[bool, Meta(description="Add to the end instead of replacing")] = False


def write(workspace: Workspace, given: WriteArguments) -> str:
    path = workspace.resolve(given.path)
    if path.is_dir():
        raise ToolFault(f"`{given.path}` is a folder")
    content = given.content.encode("utf-8", "surrogatepass")
    existed = path.exists()
    before = workspace.read_bytes(given.path)[1] if given.append and existed else b""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ToolFault(f"`{given.path}` cannot be made: a file stands where its folder would be") from None
    except OSError as error:
        raise ToolFault(f"the folder of `{given.path}` cannot be made: {error.strerror}") from None
    replace_file(path, before + content, name=given.path)
    size = f"{len(content):,} bytes, {given.content.count(chr(10)) + (not given.content.endswith(chr(10)))} lines"
    if given.append and existed:
        return f"added {size} to `{given.path}`, which has {len(before) + len(content):,} bytes now"
    return f"{'replaced' if existed else 'wrote'} `{given.path}` ({size})"


def replace_file(path: Path, content: bytes, *, name: str) -> None:
    """Afterwards `path` holds `content` with its mode kept, or is as it was: a reader never sees half of it.

    Written beside it and moved over it (`os.replace` is atomic within a file system). Raises ToolFault naming `name`.
    """
    mode = _mode_of(path, name=name)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".turnwise-", suffix=".tmp")
    except OSError as error:
        raise ToolFault(f"`{name}` cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, mode)  # noqa: PTH101
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ToolFault(f"`{name}` cannot be written: {error.strerror}") from None


def _mode_of(path: Path, *, name: str) -> int:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0o666 & ~_umask()
    if not stat.S_ISREG(status.st_mode):
        raise ToolFault(f"`{name}` is no regular file (a device, pipe or socket)")
    if not os.access(path, os.W_OK):
        raise ToolFault(f"`{name}` is write-protected")  # moving over it would get round that
    return stat.S_IMODE(status.st_mode)


def _umask() -> int:
    """Read where it can be read without changing it for the other threads."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    except (OSError, ValueError):
        return 0o022
    return 0o022
