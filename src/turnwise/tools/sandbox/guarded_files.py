"""The guarded files of a folder, kept as they are while a command runs that nobody was asked about.

A mount keeps each file that is there. No mount keeps away a new file: it is moved aside when the command has ended.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from turnwise.rules.guarded_names import LATER_PLACES, SECRET_PLACES, is_secret, runs_later
from turnwise.tools.sandbox.git import CannotGuard
from turnwise.vocab.file_names import shown_name

MAX_WALKED = 200_000  # entries, about a second
MAX_GUARDED = 300  # each is a mount: 100 take 0.1 s, 1,000 take 3 s
MAX_PARTS = 4  # of a place that is guarded by more than its last name
_FIRST = frozenset([place.casefold().partition("/")[0] for place in (*LATER_PLACES, *SECRET_PLACES)]) | {"proc"}


class _Entry(msgspec.Struct, frozen=True):
    """Which file or folder stands under a name; `link` is where a symbolic link leads."""

    device: int
    inode: int
    link: str = ""


class GuardedFiles:
    """Those in the folder `root`, a path without links, at one time. Raises CannotGuard if there are too many, or if a folder
    cannot be read: no command may run unasked then. What of `.git` is guarded has a guard of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before: dict[str, _Entry] = {}
        self._mounts: dict[Path, None] = {}
        plain, linked = list[str](), set[tuple[int, int]]()
        for entry, guarded, within in _walk(root):
            path = entry.path
            if not (guarded or within):
                plain += [] if entry.is_dir(follow_symlinks=False) else [path]
                continue
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and entry.is_file(follow_symlinks=False):
                linked.add((status.st_dev, status.st_ino))
            if not within:
                self._keep(entry, status)
        if linked:  # a second name of a guarded file is one, too
            for path in plain:
                status = os.lstat(path)
                if status.st_nlink > 1 and (status.st_dev, status.st_ino) in linked:
                    self._mounts[Path(path)] = None
        if len(self._mounts) > MAX_GUARDED:
            raise CannotGuard(f"there are more than {MAX_GUARDED:,} guarded files in `{shown_name(str(root))}`")

    def _keep(self, entry: "os.DirEntry[str]", status: os.stat_result) -> None:
        self._before[entry.path] = _entry(entry, status)
        real = Path(os.path.realpath(entry.path))
        if real.is_relative_to(self._root) and real != self._root and (real.is_dir() or real.is_file()):
            self._mounts[real] = None

    @property
    def mounts(self) -> tuple[Path, ...]:
        """What to mount read-only: the files and folders themselves, where links lead, and their other names."""
        return tuple(self._mounts)

    def put_back(self) -> list[str]:
        """Move aside what a command made under a name that runs later by itself, and put back a link. What was done, in words."""
        told: list[str] = []
        known = set(self._before.values())
        try:
            now = {
                entry.path: _entry(entry, entry.stat(follow_symlinks=False))
                for entry, guarded, within in _walk(self._root)
                if guarded and not within
            }
            for path in sorted(now, reverse=True):
                shown = os.path.relpath(path, self._root)
                if now[path] not in known and (runs_later(shown) or path in self._before):
                    told.append(f"{shown_name(shown)}: moved to {shown_name(_move_aside(path))}")
            for path, entry in self._before.items():
                if entry.link and not os.path.lexists(path) and os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120
                    Path(path).symlink_to(entry.link)
        except (OSError, CannotGuard) as error:
            told.append(f"what it made under guarded names could not be moved aside ({error}): tell the user")
        return told


def _entry(entry: "os.DirEntry[str]", status: os.stat_result) -> _Entry:
    return _Entry(status.st_dev, status.st_ino, str(Path(entry.path).readlink()) if entry.is_symlink() else "")


@lru_cache(maxsize=16_384)  # many files have few names
def _is_guarded(shown: str) -> bool:
    return runs_later(shown) or is_secret(shown)


def _counts(folders: Sequence[str]) -> bool:
    """Whether names below these folders may be guarded by where they stand, and not by themselves."""
    return any(not one.isascii() or one.casefold() in _FIRST or one.casefold().endswith(".git") for one in folders)


def _walk(root: Path) -> Iterator[tuple["os.DirEntry[str]", bool, bool]]:
    """Everything below, whether it is guarded by its name, and whether it lies in a folder that is. Raises CannotGuard."""
    waiting, seen = [(str(root), False)], 0
    while waiting:
        folder, within = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            raise CannotGuard(f"`{shown_name(folder)}` cannot be read ({error.strerror})") from None
        seen += len(entries)
        if seen > MAX_WALKED:
            raise CannotGuard(f"there are more than {MAX_WALKED:,} files in `{shown_name(str(root))}`")
        around = folder[len(str(root)) + 1 :].split("/")[-MAX_PARTS:]
        above = "/".join([*around, ""]) if _counts(around) else ""
        for entry in entries:
            if entry.name == ".git" and folder == str(root):
                continue
            guarded = _is_guarded(above + entry.name)
            yield entry, guarded, within
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, within or guarded))


def _move_aside(path: str) -> str:
    """Its new name, which no program looks for."""
    folder, name = os.path.split(path)
    for number in range(1, 1000):
        aside = f"made-by-a-command-{number}.{name}.kept"
        if not os.path.lexists(os.path.join(folder, aside)):  # noqa: PTH118
            os.rename(path, os.path.join(folder, aside))  # noqa: PTH104, PTH118
            return aside
    raise OSError("too many of them")
