"""The guarded files of a folder, kept as they are while a command runs that nobody was asked about.

A mount keeps each file that is there. No mount keeps away a new file: it is moved aside when the command has ended.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from turnwise.rules.guarded_names import LATER_PLACES, SECRET_PLACES, is_secret, runs_later
from turnwise.tools.sandbox.git import CannotGuard, find_git_folders, modules_in, named_in_settings
from turnwise.vocab.file_names import shown_name

MAX_WALKED = 200_000  # entries, about a second
MAX_LOOKED_FOR = 20 * MAX_WALKED  # afterwards: a command must not hide what it made among many files
MAX_GUARDED = 300  # each is a mount: 100 take 0.1 s, 1,000 take 3 s
MAX_PARTS = 4  # of a place that is guarded by more than its last name
_FIRST = frozenset([place.casefold().partition("/")[0] for place in (*LATER_PLACES, *SECRET_PLACES)]) | {"proc"}


class _Entry(msgspec.Struct, frozen=True):
    """Which file or folder stands under a name. `link` is where a symbolic link leads, `leads` what stands there."""

    device: int
    inode: int
    link: str = ""
    leads: tuple[int, int] | None = None


class GuardedFiles:
    """Those in the folder `root`, a path without links, at one time. Raises CannotGuard if there are too many, or if a folder
    cannot be read: no command may run unasked then. What of `.git` is guarded has a guard of its own, but for new submodules."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._named = frozenset(map(str, named_in_settings(root)))
        self._modules = self._submodules()
        self._before: dict[str, _Entry] = {}
        self._mounts: dict[Path, None] = {}
        plain, linked = list[str](), set[tuple[int, int]]()
        for entry, guarded, within in _walk(root, named=self._named):
            path = entry.path
            if not (guarded or within):
                plain += [] if entry.is_dir(follow_symlinks=False) else [path]
                continue
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and entry.is_file(follow_symlinks=False):
                linked.add((status.st_dev, status.st_ino))
            if not within:
                self._keep(path)
        if linked:  # a second name of a guarded file is one, too
            for path in plain:
                status = os.lstat(path)
                if status.st_nlink > 1 and (status.st_dev, status.st_ino) in linked:
                    self._mounts[Path(path)] = None
        if len(self._mounts) > MAX_GUARDED:
            raise CannotGuard(f"there are more than {MAX_GUARDED:,} guarded files in `{shown_name(str(root))}`")

    def _keep(self, path: str) -> None:
        self._before[path] = _entry(path)
        real = Path(os.path.realpath(path))
        if real.is_relative_to(self._root) and real != self._root and (real.is_dir() or real.is_file()):
            self._mounts[real] = None

    def _submodules(self) -> set[Path]:
        """The folders of git's from which `git submodule update` would take settings and hooks."""
        git = self._root / ".git"
        own = [git] if git.is_dir() and not git.is_symlink() else []
        try:
            return {
                one for at in (*own, *[one.at for one in find_git_folders(self._root).opened]) for one in modules_in(at)
            }
        except OSError as error:
            raise CannotGuard(str(error)) from None

    @property
    def mounts(self) -> tuple[Path, ...]:
        """What to mount read-only: the files and folders themselves, where links lead, and their other names."""
        return tuple(self._mounts)

    def put_back(self) -> list[str]:
        """Move aside what a command made under a name that runs later by itself, and put back a link. What was done, in words.
        Raises CannotGuard where that cannot be."""
        told: list[str] = []
        try:
            for path in self._made():
                told += self._moved(path)
            for path, entry in self._before.items():
                if entry.link and not os.path.lexists(path) and os.path.isdir(os.path.dirname(path)):  # noqa: PTH112, PTH120
                    Path(path).symlink_to(entry.link)
                real = os.path.realpath(path)
                if entry.link and os.path.islink(path) and _entry(path).leads not in (None, entry.leads):  # noqa: PTH114
                    told += self._moved(real) if Path(real).is_relative_to(self._root / "") else []
        except (OSError, CannotGuard) as error:
            raise CannotGuard(
                f"a command may have made files under guarded names in `{shown_name(str(self._root))}`, and they could not be "
                f"moved aside ({error}): look at the folder before you use it"
            ) from None
        return told

    def _made(self) -> list[str]:
        """What is new under a guarded name, outer folders first. What a mount kept is not, wherever its folder was moved."""
        known = {(os.path.basename(path), entry) for path, entry in self._before.items()}  # noqa: PTH119
        shields: dict[str, bool] = {"": False}  # of guarded folders: whether a mount kept all in it
        made: list[str] = []
        for entry, guarded, within in _walk(self._root, named=self._named, afterwards=True):
            path = entry.path
            if not guarded or shields[within]:
                continue
            now, before = _entry(path), self._before.get(path)
            is_known = (entry.name, now) in known
            if not within:
                shields[path] = is_known
            is_same_link = before is not None and msgspec.structs.replace(now, leads=before.leads) == before
            counts = runs_later(os.path.relpath(path, self._root)) or path in self._named or before is not None
            made += [path] if counts and not is_known and not is_same_link else []
        return sorted(made) + [str(path) for path in sorted(self._submodules() - self._modules)]

    def _moved(self, path: str) -> list[str]:
        """It may have gone with its folder."""
        if not os.path.lexists(path):
            return []
        return [f"{shown_name(os.path.relpath(path, self._root))}: moved to {shown_name(_move_aside(path))}"]


def _entry(path: str) -> _Entry:
    status = os.lstat(path)
    if not stat.S_ISLNK(status.st_mode):
        return _Entry(status.st_dev, status.st_ino)
    try:
        target = os.stat(path)  # noqa: PTH116
        leads = (target.st_dev, target.st_ino)
    except OSError:
        leads = None
    return _Entry(status.st_dev, status.st_ino, str(Path(path).readlink()), leads)


@lru_cache(maxsize=16_384)  # many files have few names
def _is_guarded(shown: str) -> bool:
    return runs_later(shown) or is_secret(shown)


def _counts(folders: Sequence[str]) -> bool:
    """Whether names below these folders may be guarded by where they stand, and not by themselves."""
    return any(not one.isascii() or one.casefold() in _FIRST or one.casefold().endswith(".git") for one in folders)


def _walk(
    root: Path, *, named: frozenset[str], afterwards: bool = False
) -> Iterator[tuple["os.DirEntry[str]", bool, str]]:
    """Everything below, whether it is guarded, and the outermost guarded folder in which it lies (empty for none). `named` are
    guarded by more than their names. `afterwards`: a folder that cannot be read was made so. Raises CannotGuard."""
    waiting, seen = [(str(root), "")], 0
    most = MAX_LOOKED_FOR if afterwards else MAX_WALKED
    while waiting:
        folder, within = waiting.pop()
        try:
            entries = _entries(folder, opens=afterwards)
        except OSError as error:
            raise CannotGuard(f"`{shown_name(folder)}` cannot be read ({error.strerror})") from None
        seen += len(entries)
        if seen > most:
            raise CannotGuard(f"there are more than {most:,} files in `{shown_name(str(root))}`")
        around = folder[len(str(root)) + 1 :].split("/")[-MAX_PARTS:]
        above = "/".join([*around, ""]) if _counts(around) else ""
        for entry in entries:
            if entry.name == ".git" and folder == str(root):
                continue
            guarded = _is_guarded(above + entry.name) or entry.path in named
            yield entry, guarded, within
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, within or (entry.path if guarded else "")))


def _entries(folder: str, *, opens: bool) -> list["os.DirEntry[str]"]:
    try:
        return list(os.scandir(folder))
    except PermissionError:
        if not opens:
            raise
        Path(folder).chmod(0o700)
        return list(os.scandir(folder))


def _move_aside(path: str) -> str:
    """Its new name, which no program looks for."""
    folder, name = os.path.split(path)
    if not os.access(folder, os.W_OK):
        Path(folder).chmod(0o700)
    for number in range(1, 1000):
        aside = f"made-by-a-command-{number}.{name}.kept"
        if not os.path.lexists(os.path.join(folder, aside)):  # noqa: PTH118
            os.rename(path, os.path.join(folder, aside))  # noqa: PTH104, PTH118
            return aside
    raise OSError("too many of them")
