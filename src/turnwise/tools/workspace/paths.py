"""One folder that tools may touch, the way to every path in it, and what was read there."""

import difflib
import os
import stat
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from turnwise.errors import CallerError, ToolFault
from turnwise.rules.permission_paths import is_inside
from turnwise.running.run_context import was_judged
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.content import Memory
from turnwise.tools.workspace.output import is_gone_output
from turnwise.tools.workspace.staged_changes import Disk, FileAttributes, Stamp, attributes_of, open_file, stamp_of
from turnwise.vocab.file_names import given_name, looks_like, shown_name, spelled_name

# Folders that hold other people's files or a tool's own: listing and searching pass them over.
SKIPPED_FOLDERS = frozenset(
    """.git .hg .svn .jj node_modules __pycache__ .venv venv .tox .nox .mypy_cache .ruff_cache .pytest_cache
    .hypothesis .gradle .terraform .next .nuxt .direnv .eggs""".split()
)
# All that hold other people's files, the ones too that a project may have written in: what they say of how to work is theirs.
OTHERS_FOLDERS = SKIPPED_FOLDERS | frozenset(
    "vendor third_party third-party thirdparty bower_components jspm_packages site-packages dist-packages Pods Carthage".split()
)
MAX_READ_BYTES = 32 * 1024 * 1024
SHOWN_CHARACTERS = 200
NAMES_COMPARED = 2000  # of a folder, for a near miss
BUSY_S = 10.0  # a change that takes longer hangs on a dead network file system


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A regular file as it was when it was opened. `names` counts its hard links."""

    path: Path
    content: bytes
    attributes: FileAttributes
    stamp: Stamp
    names: int
    writable: bool


class WorkspacePaths:
    """The root that confines every path of the workspace tools, and the memory of one session.

    A path is resolved first (`..`, symbolic links) and judged afterwards; the resolved path is then opened without following
    a link, so it cannot lead elsewhere meanwhile. `outside` says which resolved paths beyond the root may be used by any
    call; one call's own leave is given by `judged_paths`. `withheld` are globs of names, or of paths below the root: `search`
    shows no line of such files, nor of secret ones, unless it is asked for that very file. One workspace is one session's:
    it remembers what was read.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        outside: Callable[[Path], bool] | Collection[Path] = (),
        changes: FileChanges | None = None,
        withheld: Collection[str] = (),
        disk: Disk | None = None,
    ) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
        except OSError:
            raise CallerError(f"the workspace folder `{root}` does not exist") from None
        if not self.root.is_dir():
            raise CallerError(f"the workspace `{root}` is not a folder")
        self._outside = outside if callable(outside) else frozenset(outside).__contains__
        self.changes = changes if changes is not None else FileChanges()
        self.withheld = tuple(withheld)
        self.home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 (`~` stays if the home folder is unknown)
        self.disk = disk or Disk()
        self._kept: set[Callable[[], Path | None]] = set()
        self.seen = Memory()
        self._lock = threading.Lock()

    def reads_from(self, kept: Callable[[], Path | None]) -> None:
        """What lies in that folder, once there is one, may be read: it was written for the model."""
        self._kept.add(kept)

    def resolve(self, text: str, *, to_read: bool = False) -> Path:
        """The real path of `text`, relative to the root or absolute. Raises ToolFault where it may not be used."""
        path = self.real_path(text)
        judged = was_judged(path)
        if judged is False:
            raise ToolFault(
                f"`{shorten(text)}` does not lead to what was judged (it is `{self.show(path)}` now): look at it again"
            )
        if not (judged or self.is_inside(path) or self._outside(path) or (to_read and self._is_kept(path))):
            raise ToolFault(
                f"`{shorten(text)}` is outside the workspace `{shown_name(str(self.root))}`; only paths inside it can be used"
            )
        return path

    def real_path(self, text: str) -> Path:
        """Where `text` leads, inside or not; nothing is judged. Raises ToolFault for what is no path."""
        if "\0" in text:
            raise ToolFault("a path must not hold a NUL character")
        try:
            path = (self.root / given_name(text)).resolve()
            path.exists()
        except PermissionError:
            raise ToolFault(f"`{shorten(text)}` cannot be reached: a folder on the way may not be entered") from None
        except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links, before Python 3.13
            raise ToolFault(f"`{shorten(text)}` is no path (too long, or a loop of symbolic links)") from None
        return path

    def is_inside(self, path: Path) -> bool:
        return is_inside(str(path), folder=str(self.root))

    def base_of(self, path: Path) -> Path:
        """From where the walk to it begins."""
        return self.root if self.is_inside(path) else Path(path.anchor)

    def show(self, path: Path) -> str:
        """How the path is called in results: relative to the root, in one line whatever its bytes are. It is taken back so."""
        if path == self.root:
            return "."
        shown = path.relative_to(self.root).as_posix() if self.is_inside(path) else str(path)
        return shown_name(shown)

    def _is_kept(self, path: Path) -> bool:
        folders = [str(folder.resolve()) for keeper in self._kept if (folder := keeper()) is not None]
        return any(is_inside(str(path), folder=folder) for folder in folders) or is_gone_output(str(path))

    def existing(self, text: str, *, to_read: bool = False) -> Path:
        path = self.resolve(text, to_read=to_read)
        if not path.exists():
            if is_gone_output(str(path)):
                raise ToolFault(f"`{shorten(text)}` went with the run that kept it: run the command again")
            raise ToolFault(f"`{shorten(text)}` does not exist{self._nearest(path)}")
        return path

    def find(self, text: str, *, to_read: bool = False) -> FoundFile:
        """A regular file and its bytes. Raises ToolFault for a missing one, a folder, a device or pipe, one too large."""
        found = self.look_at(self.existing(text, to_read=to_read), name=text)
        if found is None:
            raise ToolFault(f"`{shorten(text)}` does not exist (it was removed meanwhile)")
        return found

    def look_at(self, path: Path, *, name: str) -> FoundFile | None:
        """The regular file at a resolved path; None where there is nothing. Raises ToolFault naming it `name`."""
        name = shorten(name)
        if path == self.root or path.is_dir():
            raise ToolFault(f"`{name}` is a folder: use `list`")
        try:
            with self.disk.folder(path.parent, base=self.base_of(path)) as folder:
                descriptor = open_file(path.name, folder=folder)
                may_write = os.access(path.name, os.W_OK, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ToolFault(f"`{name}` cannot be opened: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ToolFault(f"`{name}` is no regular file (a device, pipe or socket)")
            if status.st_size > MAX_READ_BYTES:
                raise ToolFault(
                    f"`{name}` has {status.st_size:,} bytes, more than {MAX_READ_BYTES:,}: "
                    f"use `search`, or `bash` with head or tail"
                )
            try:
                content = file.read(MAX_READ_BYTES + 1)
            except OSError as error:
                raise ToolFault(f"`{name}` cannot be read: {error.strerror}") from None
            return FoundFile(
                path=path,
                content=content,
                attributes=attributes_of(descriptor, status=status),
                stamp=stamp_of(status),
                names=status.st_nlink,
                # root may write anywhere, and is held to what the file says all the same
                writable=may_write and status.st_mode & 0o222 != 0,
            )

    @contextmanager
    def writing(self) -> Generator[None]:
        """One change at a time, also where a call out of time goes on in its thread. Raises ToolFault if one hangs."""
        if not self._lock.acquire(timeout=BUSY_S):
            raise ToolFault("another change of this workspace has not ended yet; nothing was changed")
        try:
            yield
        finally:
            self._lock.release()

    def _nearest(self, path: Path) -> str:
        """What was probably meant: a name like it in that folder, or a folder like the one that is missing."""
        folder, name = path.parent, path.name
        while not folder.exists():
            folder, name = folder.parent, folder.name
        if not (self.is_inside(folder) or self._outside(folder)):
            return ""
        names = near_names(name, folder=folder)
        if alike := [one for one in names if looks_like(one, name)]:
            spelled = self.show(folder / "x").removesuffix("x") + spelled_name(alike[0])
            return (
                f"; there is `{self.show(folder / alike[0])}`, whose letters are composed of other characters (composed and"
                f" decomposed Unicode): give it as `{spelled}`"
            )
        shown = ", ".join(f"`{self.show(folder / near)}`" for near in names)
        return f"; there is {shown}" if shown else ""


def near_names(name: str, *, folder: Path) -> list[str]:
    """Up to three of the folder's names that are like this one, those that differ in case only first."""
    try:
        names = sorted([path.name for path in folder.iterdir()])[:NAMES_COMPARED]
    except OSError:
        return []
    same = [one for one in names if looks_like(one, name) or one.lower() == name.lower()]
    lower = {one.lower(): one for one in names}
    close = [lower[one] for one in difflib.get_close_matches(name.lower(), list(lower), n=3)]
    return list(dict.fromkeys(same + close))[:3]


def shorten(text: str) -> str:
    return text if len(text) < SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
