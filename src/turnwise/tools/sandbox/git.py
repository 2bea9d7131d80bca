"""What of a repository a later `git` outside the sandbox would execute, and keeping it as it was.

Hooks are programs; the configuration names programs (`core.fsmonitor`, `core.pager`, filters, aliases), `info/attributes` for
which files; `commondir` and `gitdir` say where else the configuration lies, `objects/info/alternates` whose objects are taken.
Source: githooks(5), git-config(1), gitrepository-layout(5).
"""

import contextlib
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import read_unasked
from turnwise.vocab.file_names import shown_name

# Which folders of git's outside of the workspace a command may write in: those of the repository that it is a part of.
#
# In a worktree, a submodule and a package of a monorepo, `git commit` writes outside. A pointer alone proves nothing, as a
# command or an archive can forge it: each has to be answered by one that lies where no command can write. Source:
# gitrepository-layout(5), git-worktree(1), git-submodule(1), gitmodules(5).


_MAX_SETTINGS_BYTES = 1024 * 1024  # of a pointer or a configuration
_MAX_MODULES = 1000
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*(".*")?\s*\]')
# Text in quotes, an escaped character, other text; what follows `#` or `;` is a comment.
_VALUE = re.compile(r"""[#;].*|"((?:\\.|[^"\\])*)"|\\(.)|([^"\\#;]+)""")
_SETTING = re.compile(r"\s*([A-Za-z][\w-]*)\s*=\s*(.*?)\s*")
_INCLUDES = ("include.path", "includeif.*.path")
_LATER_SETTINGS = ("core.hookspath", "core.attributesfile", *_INCLUDES)


class GitFolder(msgspec.Struct, frozen=True, kw_only=True):
    """One that may be written in. Of one that is `shared` with other working trees: objects, refs, logs and packed refs."""

    at: Path
    shared: bool = False


class GitFolders(msgspec.Struct, frozen=True, kw_only=True):
    """`opened` are what the workspace's repository needs outside of it, `top` its working tree if that lies above. `why` says, of
    the folder `refused`, why it is not opened; empty where none is needed."""

    opened: tuple[GitFolder, ...] = ()
    top: Path | None = None
    refused: str = ""
    why: str = ""

    def since(self, first: "GitFolders") -> "GitFolders":
        """What of it there was at first, too: a pointer that is newer may be a command's, and so may a submodule."""
        if set(self.opened[:1]) <= set(first.opened):
            return GitFolders(
                opened=tuple([one for one in self.opened if one in first.opened]),
                top=self.top,
                refused=self.refused,
                why=self.why,
            )
        return GitFolders(refused=str(self.opened[0].at), why="it was not there when the session began")


class _Refused(Exception):
    """A folder that is not opened, and why."""

    def __init__(self, at: Path, why: str) -> None:
        super().__init__(why)
        self.found = GitFolders(refused=str(at), why=why)


def find_git_folders(root: Path) -> GitFolders:
    """For the workspace `root`, a path without links."""
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None or (top == root and _is_real_folder(top / ".git")):
        return GitFolders()
    try:
        needed = _needed(top / ".git")
        for one in needed:
            _refuse_others(one.at)
        needed = [one for one in needed if not one.at.is_relative_to(root)]
        modules = [GitFolder(at=at) for one in needed if not one.shared for at in _modules_for(one.at, root=root)]
    except _Refused as refused:
        return refused.found
    except OSError as error:
        return GitFolders(refused=str(top / ".git"), why=error.strerror or str(error))
    return GitFolders(opened=(*needed, *modules), top=None if top == root else top)


def _needed(git: Path) -> list[GitFolder]:
    top = git.parent
    if git.is_symlink():
        raise _Refused(git, "`.git` is a link")
    if _is_real_folder(git):
        if not _is_repository(git) or os.path.lexists(git / "commondir") or _working_tree_of(git) not in (None, top):
            raise _Refused(git, "it is not the repository of this folder alone")
        return [GitFolder(at=git)]
    own = pointer(git, prefix="gitdir:")
    if own is None or not _is_real_folder(own):
        raise _Refused(git, "`.git` names no folder")
    _refuse_others(git)
    if own.parent.name == "worktrees":
        shared = own.parent.parent
        if pointer(own / "commondir") != shared or not _is_repository(shared):
            raise _Refused(own, "its `commondir` does not name the repository that it lies in")
        if pointer(own / "gitdir", last=False) != git:
            raise _Refused(own, f"its `gitdir` does not name `{shown_name(str(git))}`")
        return [GitFolder(at=own), GitFolder(at=shared, shared=True)]
    if not _is_repository(own) or os.path.lexists(own / "commondir") or _working_tree_of(own) != top:
        raise _Refused(own, f"its `core.worktree` does not name `{shown_name(str(top))}`")
    return [GitFolder(at=own)]


def _modules_for(git: Path, *, root: Path) -> Iterator[Path]:
    """The submodules of the repository whose working tree is in the workspace and leads back."""
    for at in modules_in(git):
        place = _working_tree_of(at)
        if place is not None and place.is_relative_to(root) and pointer(place / ".git", prefix="gitdir:") == at:
            _refuse_others(at)
            yield at


def modules_in(git: Path) -> list[Path]:
    """The submodules' folders below `modules`, also those in submodules and those with `/` in their names. Raises OSError where
    there are too many to look at, or one cannot be read."""
    found: list[Path] = []
    waiting = [git / "modules"] if _is_real_folder(git / "modules") else []
    for _ in range(10 * _MAX_MODULES):
        if not waiting or len(found) > _MAX_MODULES:
            break
        for entry in list(os.scandir(waiting.pop())):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                continue
            if os.path.lexists(path / "HEAD") or os.path.lexists(path / "config"):
                found.append(path)
                waiting += [path / "modules"] if _is_real_folder(path / "modules") else []
            else:
                waiting.append(path)
    if waiting:
        raise OSError(f"`{git}` has too many submodules")
    return found


def pointer(file: Path, *, prefix: str = "", last: bool = True) -> Path | None:
    """Where a file of git's leads, without links; None where it is no plain file with a path. With `last`, its last name may be a
    link."""
    content = None if file.is_symlink() else read_unasked(file, within=file.parent, max_bytes=_MAX_SETTINGS_BYTES)
    if not isinstance(content, bytes):
        return None
    text = os.fsdecode(content).rstrip("\r\n")
    if not text.startswith(prefix) or "\0" in text or not (name := text.removeprefix(prefix).strip(" ")):
        return None
    path = file.parent / name
    return Path(os.path.realpath(path)) if last else Path(os.path.realpath(path.parent)) / path.name


def _working_tree_of(git: Path) -> Path | None:
    """What `core.worktree` says, without links; None where it says nothing."""
    for config in (git / "config.worktree", git / "config"):
        found = [value for name, value in _settings_in(config) if name == "core.worktree"]
        if found and found[-1] and "\0" not in found[-1]:
            return Path(os.path.realpath(config.parent / found[-1]))
    return None


def _settings_in(config: Path) -> Iterator[tuple[str, str]]:
    """Names, with no part in quotes, and values. Without those of other files that it includes."""
    content = None if config.is_symlink() else read_unasked(config, within=config.parent, max_bytes=_MAX_SETTINGS_BYTES)
    section = ""
    text = os.fsdecode(content).replace("\\\n", "") if isinstance(content, bytes) else ""
    for line in text.split("\n"):
        if header := _SECTION.match(line):
            section = header[1].lower() + (".*" if header[2] else "")
            line = line[header.end() :]
        if entry := _SETTING.fullmatch(line):
            value = "".join([one[1] or one[2] or one[3] or "" for one in _VALUE.finditer(entry[2])])
            yield f"{section}.{entry[1].lower()}", value.strip()


def named_in_settings(root: Path) -> set[Path]:
    """The files and folders in `root`, a path without links, that git runs or obeys because the settings of its repository, or
    the user's, name them: hooks, further settings, and programs. Hooks and settings count where there are none yet."""
    top = next((folder for folder in (root, *root.parents) if os.path.lexists(folder / ".git")), None)
    if top is None:
        return set()
    git = top / ".git" if _is_real_folder(top / ".git") else pointer(top / ".git", prefix="gitdir:") or top / ".git"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 (`~` stays if the home folder is unknown)
    found: set[Path] = set()
    for at in (git, pointer(git / "commondir") or git, home, home / ".config" / "git"):
        settings = [one for name in ("config", "config.worktree", ".gitconfig") for one in _settings_in(at / name)]
        for setting, value in settings:
            words = (value,) if setting in _LATER_SETTINGS else (value, *value.lstrip("!").split())
            place = at if setting in _INCLUDES else top
            named = [Path(os.path.realpath(place / word.strip("'\""))) for word in words if "\0" not in word]
            found |= {one for one in named if setting in _LATER_SETTINGS or one.is_file()}
    return {one for one in found if one != root and one.is_relative_to(root) and not one.is_relative_to(root / ".git")}


def _refuse_others(at: Path) -> None:
    if at.lstat().st_uid != os.geteuid():
        raise _Refused(at, "it is another user's")


def _is_repository(git: Path) -> bool:
    return all(_is_real_folder(git / name) for name in ("objects", "refs")) and os.path.lexists(git / "HEAD")


def _is_real_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


_MOUNTED = ("config", "config.worktree", "commondir", "gitdir", "hooks", "info")
_EXECUTED = (*_MOUNTED, "objects/info/alternates", "objects/info/http-alternates")
_OF_WORKTREES = ("config.worktree", "commondir", "gitdir")
# What all working trees of a repository write; the rest of it belongs to one of them, or is executed.
_SHARED = ("objects", "refs", "logs", "packed-refs")
# For each of them by itself: what is too much of one must not leave the others without a guard.
_MAX_FILES = 2000  # a template brings fourteen hooks
_MAX_BYTES = 16 * 1024 * 1024
_MAX_WALKED = 200_000  # entries of the workspace, some 0.5 s
_LOOK = "Tell the user, who should look at it before git is used there again."


def guarded_paths(root: Path) -> Iterator[tuple[Path, bool]]:
    """The paths of the repository at `root` to mount on their own, and whether each may be written.

    The folder itself too: a mount point cannot be renamed, and else it could be moved away with what is guarded in it.
    A `.git` file leads to a repository elsewhere, of which no more can be written than was opened.
    """
    git = root / ".git"
    if git.is_symlink() or not git.exists():
        return
    if git.is_file():
        yield git, False
        return
    yield git, True
    yield from _guarded_in(git)
    for module in _modules_in(git):
        yield from _guarded_in(module)


def opened_paths(folders: Iterable[GitFolder]) -> Iterator[tuple[Path, bool]]:
    """The same for folders of git's outside of the workspace, each after those that it lies in."""
    for folder in sorted(folders, key=lambda one: one.at.parts):
        at = folder.at
        yield at, True
        yield from ((path, False) for path in (at / "modules", at / "worktrees") if _can_be_mounted(path))
        if folder.shared:
            others = [entry for entry in os.scandir(at) if entry.name not in _SHARED]
            yield from ((path, False) for entry in others if _can_be_mounted(path := Path(entry.path)))
        yield from _guarded_in(at)


def shared_paths(git: Path) -> list[Path]:
    """Those of a repository's folder that each of its working trees writes in."""
    return [git / name for name in _SHARED if _is_folder(git / name)]


def _guarded_in(git: Path) -> Iterator[tuple[Path, bool]]:
    for name in _MOUNTED:
        if _can_be_mounted(git / name):
            yield git / name, False
    info = git / "objects" / "info"
    if _can_be_mounted(info.parent) and _can_be_mounted(info):
        yield info.parent, True
        yield info, False


def _modules_in(git: Path) -> list[Path]:
    try:
        return modules_in(git)
    except OSError:  # nothing runs then, see GitGuard
        return []


def _can_be_mounted(path: Path) -> bool:
    return path.exists() and not path.is_symlink()


class CannotGuard(Exception):
    """What git executes could be changed for good: it cannot be remembered, and nothing else keeps it. Says what to do."""


class _Entry(msgspec.Struct, frozen=True):
    mode: int
    content: bytes


class RestoredFiles(msgspec.Struct, frozen=True):
    """`changed` are paths relative to the root that are as before again; `told` says what else was done, or could not be."""

    changed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class GitGuard:
    """Remembers what a repository executes, and puts it back where a command changed it.

    For what no mount can guard: a file that does not exist yet, and sandboxes without mounts. To be asked when nothing of
    the command runs any more. `mounted`: `guarded_paths` are mounted too. `named` goes before the names that it tells, `opened`
    are folders of git's elsewhere that may be written. Raises CannotGuard where there is too much to remember, or something
    cannot be read: no command may run then.
    """

    def __init__(self, root: Path, *, mounted: bool = False, named: str = "", opened: Sequence[GitFolder] = ()) -> None:
        self._root = root
        self._opened = [folder.at for folder in opened]
        self._named = named
        self._git = root / ".git"
        self._folder = _identity(self._git)
        self._leads = None if self._folder else _entry_at(self._git, limit=_MAX_BYTES)  # a link or file to elsewhere
        if self._folder is None and self._leads is None and os.path.lexists(self._git):
            raise CannotGuard(_refusal(self._git, root=root))
        try:
            # a submodule that is opened by itself, too, is found from the outer folder first
            bases: dict[Path, Path] = {}
            for base, at in self._executed():
                bases.setdefault(at, base)
            kept = {at: (base, _remember(at)) for at, base in bases.items()}
        except OSError:
            raise CannotGuard(_refusal(self._git / "modules", root=root)) from None
        for at, (base, entries) in kept.items():
            is_mounted = mounted and base != self._root and at.parent.parent != base / "worktrees" and _is_mounted(at)
            if entries is None and not is_mounted:
                raise CannotGuard(_refusal(at, root=root))
        self._before = {at: (base, entries) for at, (base, entries) in kept.items() if entries is not None}

    def put_back(self) -> RestoredFiles:
        """What had changed. `.git` is again the folder, link or file that it was, wherever `told` does not say otherwise."""
        try:
            told = tuple([f"{self._named}{one}" for one in self._return_git()])
        except OSError as error:
            return RestoredFiles(
                told=(f"{self._named}.git: it was replaced, and could not be put back ({error.strerror}). {_LOOK}",)
            )
        changed: list[str] = []
        for at, (base, before) in self._before.items():
            try:
                blocked = _first_no_folder(at.parent, base=base)
                if blocked is not None and os.path.lexists(blocked):
                    blocked.unlink()
                    told += (f"{self._shown(blocked)}: a command had put it where a folder of git's was. {_LOOK}",)
            except OSError as error:
                blocked = at
                told += (self._failed(at, error),)
            if blocked is not None:
                continue  # it went with its folder
            for path, error in _put_back(at, before=before):
                if error is None:
                    changed.append(self._shown(path))
                else:
                    told += (self._failed(path, error),)
        return RestoredFiles(tuple(changed), told)

    def _failed(self, path: Path, error: OSError) -> str:
        return f"{self._shown(path)}: it was changed, and could not be put back ({error.strerror}). {_LOOK}"

    def _shown(self, path: Path) -> str:
        if path.is_relative_to(self._root):
            return shown_name(f"{self._named}{path.relative_to(self._root)}")
        return shown_name(str(path))

    def _executed(self) -> Iterator[tuple[Path, Path]]:
        """Where git looks for what it executes: in `.git`, or in the folders of the workspace to which it leads, in their
        submodules and working trees. Each after the folder whose way there may be a link by then. Raises OSError."""
        of_root = [self._git] if self._folder else _led_to(self._git, root=self._root)
        bases = [self._git if self._folder else self._root for _ in of_root]
        for base, folder in zip((*bases, *self._opened), (*of_root, *self._opened), strict=True):
            for git in (folder, *modules_in(folder)):
                yield from ((base, git / name) for name in _EXECUTED)
            worktrees = folder / "worktrees"
            for tree in sorted(worktrees.iterdir()) if _is_folder(worktrees) else ():
                yield from ((base, tree / name) for name in _OF_WORKTREES)
                for git in modules_in(tree):
                    yield from ((base, git / name) for name in _EXECUTED)

    def _return_git(self) -> tuple[str, ...]:
        """Afterwards `.git` itself is what it was, if that is still to be had."""
        if self._folder is None:
            return self._return_lead()
        if _identity(self._git) == self._folder:
            return ()
        moved = self._find_folder()
        if moved is None and _is_folder(self._git):
            return (
                f".git: it is another folder now, and the repository that was there is nowhere in the workspace. {_LOOK}",
            )
        aside, told = self._move_aside()
        if moved is None:
            return (f".git: the repository is gone, and nowhere in the workspace.{told} {_LOOK}",)
        if moved.is_relative_to(self._git):
            moved = aside / moved.relative_to(self._git)
        moved.rename(self._git)
        at = moved.relative_to(self._root)
        return (f".git: the repository had been moved to `{shown_name(str(at))}`, and was moved back.{told}",)

    def _return_lead(self) -> tuple[str, ...]:
        if self._leads is None:
            return (f".git: the command made this repository. {_LOOK}",) if os.path.lexists(self._git) else ()
        if _entry_at(self._git, limit=len(self._leads.content)) == self._leads:
            return ()
        _, told = self._move_aside()
        _restore(self._git, self._leads)
        return (f".git: put back as before; it says where the repository lies.{told}",)

    def _move_aside(self) -> tuple[Path, str]:
        """The new place of what the command put where `.git` was, and a sentence on it; empty where there was nothing."""
        names = (f".git-made-by-a-command-{count}" for count in itertools.count(1))
        aside = next(path for name in names if not os.path.lexists(path := self._root / name))
        if not os.path.lexists(self._git):
            return aside, ""
        self._git.rename(aside)
        return aside, f" What the command had put in its place is `{aside.name}` now."

    def _find_folder(self) -> Path | None:
        """Where in the workspace the repository's folder lies now, among the first entries that a walk meets."""
        walked = 0
        for place, folders, files in os.walk(self._root):
            for name in folders:
                if _identity(Path(place, name)) == self._folder:
                    return Path(place, name)
            walked += len(folders) + len(files)
            if walked > _MAX_WALKED:
                break
        return None


def _first_no_folder(folder: Path, *, base: Path) -> Path | None:
    """On the way from `base` to the folder in it, both included, the first that is not a folder, or is a link to one."""
    way = [folder, *folder.parents]
    return next((one for one in reversed(way[: way.index(base) + 1]) if not _is_folder(one)), None)


def _is_mounted(at: Path) -> bool:
    return at.name in _MOUNTED and _can_be_mounted(at)


def _refusal(at: Path, *, root: Path) -> str:
    name = shown_name(os.path.relpath(at, root))
    return (
        f"the command was not run: it could change what git executes, as `{name}` cannot be put back "
        f"afterwards (it has more than {_MAX_FILES:,} files or {_MAX_BYTES // 1024 // 1024} MiB, or cannot be read). "
        "Ask the user to make it smaller, or readable"
    )


def _led_to(lead: Path, *, root: Path) -> list[Path]:
    """The repository's folders in the workspace, where `.git` is a link or a file that leads there (`gitdir: .bare`), and where
    settings and hooks are shared (`commondir`). Others cannot be written."""
    first = lead if lead.is_symlink() else _named_in(lead, prefix=b"gitdir:")
    if first is None:
        return []
    shared = _named_in(first / "commondir", prefix=b"")
    real = root.resolve()
    found = dict.fromkeys([Path(os.path.realpath(path)) for path in (first, shared) if path is not None])
    return [root / path.relative_to(real) for path in found if path.is_relative_to(real) and path.is_dir()]


def _named_in(file: Path, *, prefix: bytes) -> Path | None:
    entry = _entry_at(file, limit=_MAX_BYTES)
    if entry is None or not stat.S_ISREG(entry.mode) or not entry.content.startswith(prefix):
        return None
    name = os.fsdecode(entry.content.removeprefix(prefix).strip())
    return file.parent / name if name and "\0" not in name else None


def _remember(at: Path) -> dict[Path, _Entry] | None:
    """The entries at `at` and below it; None if they are too large to remember, or unreadable."""
    found: dict[Path, _Entry] = {}
    room = _MAX_BYTES
    try:
        for path in _paths_at(at):
            entry = _entry_at(path, limit=room)
            if entry is None or len(found) == _MAX_FILES:
                return None
            found[path] = entry
            room -= len(entry.content)
    except OSError:
        return None
    return found


def _paths_at(at: Path) -> Iterator[Path]:
    """It and all below it, folders before what lies in them. Raises OSError for a folder that cannot be read."""
    waiting = [at] if os.path.lexists(at) else []
    while waiting:
        path = waiting.pop()
        yield path
        if _is_folder(path):
            waiting += [path / name for name in os.listdir(path)]  # noqa: PTH208


def _put_back(at: Path, *, before: dict[Path, _Entry]) -> Iterator[tuple[Path, OSError | None]]:
    """Each path that was changed, with the error if it stays so."""
    try:
        found = list(itertools.islice(_paths_at(at), 2 * _MAX_FILES + 1))
        if len(found) > 2 * _MAX_FILES:  # too many to look at
            shutil.rmtree(at)
            found = []
    except OSError as error:
        yield at, error
        return
    for path in sorted({*before, *found}):  # outer ones first: what lies in them is written to a real folder
        entry = before.get(path)
        if entry is None and not os.path.lexists(path):
            continue  # it went with its folder
        if entry is not None and _entry_at(path, limit=len(entry.content)) == entry:
            continue
        try:
            _restore(path, entry)
        except OSError as error:
            yield path, error
        else:
            yield path, None


def _identity(path: Path) -> tuple[int, int] | None:
    """Of a folder that is no link: the same wherever it is moved in its file system."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            return status.st_dev, status.st_ino
    return None


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entry_at(path: Path, *, limit: int) -> _Entry | None:
    """None where it is absent, unreadable or has more than `limit` bytes."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return _Entry(status.st_mode, os.fsencode(path.readlink()))
        if not stat.S_ISREG(status.st_mode):
            return _Entry(status.st_mode, b"")
        if status.st_size <= limit:
            return _Entry(status.st_mode, path.read_bytes())
    return None


def _restore(path: Path, entry: _Entry | None) -> None:
    """Afterwards there is at `path` what `entry` says, or nothing. A folder that stays one keeps what is in it."""
    if _is_folder(path):
        if entry is None or not stat.S_ISDIR(entry.mode):
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if entry is None:
        return
    if stat.S_ISLNK(entry.mode):
        path.symlink_to(os.fsdecode(entry.content))
        return
    if stat.S_ISDIR(entry.mode):
        path.mkdir(exist_ok=True)
    elif stat.S_ISREG(entry.mode):
        path.write_bytes(entry.content)
    path.chmod(stat.S_IMODE(entry.mode))
