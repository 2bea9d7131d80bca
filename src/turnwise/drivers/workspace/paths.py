"""One folder that tools may touch, and the way to every path in it."""

import os
import stat
from pathlib import Path

from turnwise.errors import CallerError, ToolFault

# Folders that hold other people's files or a tool's own: listing and searching pass them over.
SKIPPED_FOLDERS = frozenset(
    """.git .hg .svn .jj node_modules __pycache__ .venv venv .tox .nox .mypy_cache .ruff_cache .pytest_cache
    .hypothesis .gradle .terraform .next .nuxt .direnv .eggs""".split()
)
MAX_READ_BYTES = 32 * 1024 * 1024
SHOWN_CHARACTERS = 200
SNIFFED_BYTES = 8192  # git looks at the first 8,000 bytes for a NUL as well


class Workspace:
    """The root that confines every path of the workspace tools.

    A path is resolved first (`..`, symbolic links) and judged afterwards, by the hand that opens it.
    """

    def __init__(self, root: Path | str) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
        except OSError:
            raise CallerError(f"the workspace folder `{root}` does not exist") from None
        if not self.root.is_dir():
            raise CallerError(f"the workspace `{root}` is not a folder")

    def resolve(self, text: str) -> Path:
        """The real path of `text`, relative to the root or absolute. Raises ToolFault where it leads outside."""
        if "\0" in text:
            raise ToolFault("a path must not hold a NUL character")
        try:
            path = (self.root / text).resolve()
            path.exists()
        except (OSError, RuntimeError):  # RuntimeError: a loop of symbolic links, before Python 3.13
            shown = text if len(text) < SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
            raise ToolFault(f"`{shown}` is no path (too long, or a loop of symbolic links)") from None
        if path != self.root and self.root not in path.parents:
            raise ToolFault(f"`{text}` is outside the workspace `{self.root}`; only paths inside it can be used")
        return path

    def show(self, path: Path) -> str:
        """How the path is called in results: relative to the root, printable whatever its bytes are."""
        relative = path.relative_to(self.root).as_posix() if path != self.root else "."
        return os.fsencode(relative).decode("utf-8", "replace")

    def existing(self, text: str) -> Path:
        path = self.resolve(text)
        if not path.exists():
            raise ToolFault(f"`{text}` does not exist{_nearest(path)}")
        return path

    def read_bytes(self, text: str) -> tuple[Path, bytes]:
        """A regular file's bytes. Raises ToolFault for a folder, a device or pipe, a binary or a file that is too large."""
        path = self.existing(text)
        if path.is_dir():
            raise ToolFault(f"`{text}` is a folder: use `list`")
        try:
            # NONBLOCK: opening a named pipe would wait for its writer. NOFOLLOW: the resolved path has no link left in it.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            raise ToolFault(f"`{text}` cannot be opened: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ToolFault(f"`{text}` is no regular file (a device, pipe or socket)")
            if status.st_size > MAX_READ_BYTES:
                raise ToolFault(
                    f"`{text}` has {status.st_size:,} bytes, more than {MAX_READ_BYTES:,}: "
                    f"use `search`, or `bash` with head or tail"
                )
            content = file.read(MAX_READ_BYTES + 1)
        if b"\0" in content[:SNIFFED_BYTES]:
            raise ToolFault(f"`{text}` is a binary file ({len(content):,} bytes)")
        return path, content


def _nearest(path: Path) -> str:
    """The names beside it that differ in case only: the usual mistake."""
    try:
        same = sorted(name for name in os.listdir(path.parent) if name.lower() == path.name.lower())  # noqa: PTH208
    except OSError:
        return ""
    return f"; there is `{same[0]}` in that folder" if same else ""
