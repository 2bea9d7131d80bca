"""Whether a git command that reads does no more than that: the repository that git takes, and what the command's words reach.

What makes `git status` run a program comes with a folder that was unpacked or copied: git trusts `.git`. So a repository is
judged plain by what is known to be harmless, and anything else is a doubt. Source: git-config(1), gitrepository-layout(5),
git's `setup.c`.

Where git takes no repository, or a path lies outside of its working tree, `git diff a b` compares any two folders with all that
lies below them. Source: git-diff(1), `--no-index`; git's `builtin/diff.c`.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import read_unasked
from turnwise.rules.git_commands import IN_REPOSITORY, read_git
from turnwise.rules.guarded_names import is_secret
from turnwise.rules.permission_facts import PathFact, Word
from turnwise.rules.permission_paths import is_inside
from turnwise.rules.read_only_commands import git_operands
from turnwise.tools.shell_judge.paths import Paths

MAX_CONFIG_BYTES = 256 * 1024
MAX_HEAD_BYTES = 4096
MAX_WALKED = 100_000  # entries of a working tree, some 0.2 s
MAX_INDEX_BYTES = 64 * 1024 * 1024  # some 500,000 files

_HEAD = re.compile(rb"(?:ref: refs/[^\s\x00]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")
_SECTION = re.compile(r'\[([a-z][a-z0-9-]*)( "(?:[^"\\\n]|\\["\\])*")?\]', re.IGNORECASE)
_ENTRY = re.compile(r"([a-z][a-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?", re.IGNORECASE)
_UNUSUAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufeff\ufffd]|\r(?!\n)|\\\r?(?:\n|\Z)")
# With any other value git takes the folder for no repository, or for one without a working tree.
_VALUES = {
    "core.repositoryformatversion": ("0", "1"),
    "core.bare": ("false", "no", "off", "0"),
    "extensions.objectformat": ("sha1", "sha256"),
}
_KNOWN_SECTIONS = frozenset(name.rpartition(".")[0] for name in IN_REPOSITORY)
# In the environment they lead git to another repository, other settings or other programs.
_STEERING = re.compile(
    r"GIT_(?:DIR|COMMON_DIR|WORK_TREE|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|CONFIG.*|EXTERNAL_DIFF|EXEC_PATH"
    r"|NAMESPACE|TRACE.*|CEILING_DIRECTORIES|IMPLICIT_WORK_TREE)"
)
# In `.git` itself: git reads none of them for what it shows.
_UNREAD = frozenset({"hooks", "lfs", "annex"})
_WILD = re.compile(r"[*?\[\\]")
_RANGE = re.compile(r"[^/.]\.\.|\.\.[^/.]")


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    """The repository that git takes in a folder. `root` is its working tree. `doubt` says why any command may do more than it
    says, `unsure` why git may refuse it, and compare folders instead."""

    root: str = ""
    doubt: str = ""
    unsure: str = ""


def find_repository(place: str, *, max_walked: int = MAX_WALKED) -> Repository:
    """The repository that git finds in the folder `place`, or above it.

    At most `max_walked` entries of its working tree are looked through; one that has more is a doubt.
    """
    folder = Path(place)
    devices: set[int] = set()
    for parent in (folder, *folder.parents):
        devices |= {status.st_dev for status in (_status(parent),) if status is not None}
        if len(devices) > 1:
            return Repository(doubt="git looks for no repository beyond a mount, and would compare folders")
        git = parent / ".git"
        if os.path.lexists(git):  # git would pass over one that it does not accept, to those above
            found = _folder_doubt(git, max_walked=max_walked) or _nested_doubt(parent, max_walked=max_walked)
            return Repository(root=str(parent), doubt=found, unsure=_owner_doubt(parent, git))
        if _is_bare(parent):
            return Repository(doubt="the folder looks like a bare repository, whose settings git would take")
    return Repository(doubt="there is no repository, and git would compare folders")


def reach_doubt(words: Sequence[Word], *, repository: Repository, place: str, paths: Paths) -> str:
    """Why a git command of these words may show more than the history of the repository and the files that it names.

    `words` begin with `git`; `place` is the folder in which it runs. A pathspec that is not literal is asked about anyway.
    """
    line = read_git([word.text for word in words[1:]])
    rest = words[line.at + 2 :]
    named = [path for word in rest for path in _whole(word)]
    there = [path for path in map(partial(_spelled, place=place), named) if os.path.lexists(path)]
    if line.subcommand == "diff":
        if any(_leaves(path, place=place, root=repository.root) for path in named):
            return "git would compare folders, as one of them lies outside of the repository"
        if repository.unsure and len(there) > 1:
            return f"{repository.unsure}, and would compare folders"
    texts = [word.text for word in rest]
    if not _shows_working_tree(line.subcommand, texts=texts, place=place):
        return ""
    # What stands before `--` may be a commit, and git has globs of its own.
    limits = rest[texts.index("--") :] if "--" in texts else git_operands(rest, subcommand=line.subcommand)
    limited = any(_spelled(path, place=place) in there for word in limits for path in _whole(word))
    if line.subcommand != "diff" or not limited or any(_WILD.search(path.given) for path in named):
        there = [repository.root]
    if not all(paths.contains(os.path.realpath(path)) for path in there):
        return "the repository has files outside of the workspace, whose changes it would show"
    found = _changed_secret(repository.root, scopes=there, home=paths.home)
    return f"it would show what was changed in `{found}`" if found else ""


def _whole(word: Word) -> list[PathFact]:
    """The paths that the word may name, and no part of it."""
    return [path for path in word.paths if path.given == word.text or word.glob]


def _spelled(path: PathFact, *, place: str) -> str:
    """The absolute path for a command that runs in `place`, links not followed."""
    return path.lexical if path.given[:1] in ("/", "~") else os.path.normpath(f"{place}/{path.given}")


def _leaves(path: PathFact, *, place: str, root: str) -> bool:
    """Whether git takes it to lie outside: also `../r/x` in `r`, which comes back (`path_inside_repo` in git's `setup.c`)."""
    if path.given[:1] in ("/", "~"):
        return not is_inside(path.lexical, folder=root)
    depth = len(Path(place).relative_to(root).parts)
    for part in path.given.split("/"):
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            return True
    return False


def _shows_working_tree(subcommand: str, *, texts: Sequence[str], place: str) -> bool:
    """Whether the command shows lines of files as they are now, and not only what was committed or staged."""
    if subcommand == "status":  # the second `-v` does
        letters = [text for text in texts if re.match(r"-[^-]", text)]
        return sum(text.count("v") for text in letters) + texts.count("--verbose") > 1
    compares_commits = any(_RANGE.search(text) and not os.path.lexists(f"{place}/{text}") for text in texts)
    return subcommand == "diff" and not compares_commits and not {"--cached", "--staged"} & set(texts)


def _changed_secret(root: str, *, scopes: Sequence[str], home: str) -> str:
    """A secret file that git tracks, and that may hold something else than what was staged; empty where there is none."""
    secrets = [path for scope in scopes for path in _files(scope) if is_secret(path, home=home)]
    if not secrets:
        return ""
    index = Path(root, ".git", "index")
    content, written = _content(index, limit=MAX_INDEX_BYTES), _status(index)
    if not os.path.lexists(index):
        return ""
    for path in secrets:
        if content is None or written is None or _is_changed(path, root=root, index=content, written=written):
            return os.path.relpath(path, root)
    return ""


def _is_changed(path: str, *, root: str, index: bytes, written: os.stat_result) -> bool:
    """Whether the file is in the index, and not as git left it. Source: gitformat-index(5); `is_racy_stat` in git's
    `read-cache.c`."""
    version = int.from_bytes(index[4:8], "big")
    if index[:4] != b"DIRC" or version not in (2, 3) or any(Path(root, ".git").glob("sharedindex.*")):
        return True  # names are shortened there, or lie elsewhere
    name = os.fsencode(os.path.relpath(path, root))
    at = index.find(name + b"\0")
    while at >= 0:
        entry = index[at - 62 : at]
        if int.from_bytes(entry[-4:-2], "big") & 0x4FFF == 0x4000 | len(name) and version == 3:
            return True  # an entry with more flags
        if int.from_bytes(entry[-2:], "big") & 0xFFF == len(name):
            status = os.lstat(path)
            now = (*divmod(status.st_mtime_ns, 10**9), status.st_size)
            staged = tuple([int.from_bytes(entry[start : start + 4], "big") for start in (8, 12, 36)])
            return now != staged or status.st_mtime_ns >= written.st_mtime_ns
        at = index.find(name + b"\0", at + 1)
    return False


def _files(scope: str) -> Iterator[str]:
    if os.path.islink(scope) or not os.path.isdir(scope):  # noqa: PTH112, PTH114
        yield scope
    for place, folders, files in os.walk(scope):
        yield from (f"{place}/{name}" for name in files)
        if ".git" in folders:
            folders.remove(".git")


def environment_doubt(environment: Mapping[str, str]) -> str:
    """The same for the variables that git would see; empty where none steers it."""
    found = next((name for name in environment if _STEERING.fullmatch(name)), "")
    return f"the environment's `{found}` steers git" if found else ""


def _is_bare(folder: Path) -> bool:
    return _looks_bare([name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(folder / name)])


def _looks_bare(names: Iterable[str]) -> bool:
    """Whether git would take a folder with these names in it for a repository (`is_git_directory`)."""
    found = {name.casefold() for name in names}
    return "head" in found and ("commondir" in found or {"objects", "refs"} <= found)


def _owner_doubt(root: Path, git: Path) -> str:
    """git refuses a repository of another user (git-config(1), `safe.directory`)."""
    owners = {status.st_uid for status in (_status(root), _status(git)) if status is not None}
    return "" if owners == {os.geteuid()} else "git may refuse the repository, which is another user's"


def _status(path: Path) -> os.stat_result | None:
    """Of a link, its own."""
    try:
        return path.lstat()
    except OSError:
        return None


def _folder_doubt(git: Path, *, max_walked: int) -> str:
    if not _is_own_folder(git):
        return "its `.git` is no folder, so the repository's settings lie elsewhere"
    head = _content(git / "HEAD", limit=MAX_HEAD_BYTES)
    if head is None or not _HEAD.fullmatch(head) or not all(_is_own_folder(git / name) for name in ("objects", "refs")):
        return "its `.git` is no sound repository, so git may take another one"
    for name in ("commondir", "config.worktree"):
        if os.path.lexists(git / name):
            return f"the repository takes settings from elsewhere (`{name}`)"
    if os.path.lexists(git / "modules"):
        return "the repository has submodules, whose settings git would take"
    # `git status` writes the index, and this is run whenever it is written (githooks, "post-index-change")
    if os.path.lexists(git / "hooks" / "post-index-change"):
        return "the repository has a hook that it would run"
    return _config_doubt(git / "config") or _linked_doubt(git, max_walked=max_walked)


def _linked_doubt(git: Path, *, max_walked: int) -> str:
    """git shows lines of its own files that it does not understand: of `packed-refs`, which may be a link to any other file."""
    if os.path.lexists(git / "objects" / "info" / "alternates"):
        return "the repository takes commits from elsewhere (`objects/info/alternates`)"
    walked = 0
    for place, folders, files in os.walk(git):
        if place == str(git):
            folders[:], files[:] = (sorted({*names} - _UNREAD) for names in (folders, files))
        walked += len(folders) + len(files)
        if walked > max_walked:
            return f"its `.git` has more than {max_walked:,} files, too many to look for links among them"
        found = next((name for name in (*folders, *files) if os.path.islink(f"{place}/{name}")), "")  # noqa: PTH114
        if found:
            return f"a part of the repository lies elsewhere (`{os.path.relpath(f'{place}/{found}', git)}`)"
        if place == f"{git}/objects":  # what is found by its own hash shows nothing else
            folders[:] = [name for name in folders if len(name) > 2]
    return ""


def _config_doubt(path: Path) -> str:
    if not os.path.lexists(path):
        return ""
    content = _content(path, limit=MAX_CONFIG_BYTES)
    if content is None:
        return f"`{path.name}` of the repository is too large or no plain file, so it cannot be judged"
    found = _unknown_setting(content.decode("utf-8", "replace"))
    return f"the repository's settings (`{found}`) may run a program" if found else ""


def _unknown_setting(text: str) -> str:
    """The first thing in a configuration that is not known to be harmless. Stricter than git: one header or setting a line."""
    if _UNUSUAL.search(text):
        return "unusual characters"
    section = ""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            header = _SECTION.fullmatch(line)
            section = f"{header[1].lower()}{'.*' if header[2] else ''}" if header else ""
            if section not in _KNOWN_SECTIONS:
                # what stands in quotes may be an address with a password
                return f"[{header[1]}]" if header else "a line that is not understood"
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or not {f"{section}.{entry[1].lower()}", f"{section}.*"} & IN_REPOSITORY:
            return entry[1] if entry else "a line that is not understood"
        name = f"{section}.{entry[1].lower()}"
        if name in _VALUES and (entry[2] or "").strip() not in _VALUES[name]:
            return entry[1]
        found[name] = (entry[2] or "").strip()
    if "extensions.objectformat" in found and found.get("core.repositoryformatversion") != "1":
        return "objectformat"
    return ""


def _nested_doubt(root: Path, *, max_walked: int) -> str:
    """A repository below is taken with its own settings where the one above has it as a submodule."""
    if os.path.lexists(root / ".gitmodules"):
        return "the repository has submodules, whose settings git would take"
    unread: list[OSError] = []
    walked = 0
    for names, is_root in _walk(root, unread=unread):
        walked += len(names)
        if not is_root and (any(name.casefold() == ".git" for name in names) or _looks_bare(names)):
            return "there is another repository below, whose settings git might take"
        if walked > max_walked:
            return f"it has more than {max_walked:,} files, too many to look for other repositories among them"
    return "part of it cannot be read, and may hold another repository" if unread else ""


def _walk(root: Path, *, unread: list[OSError]) -> Iterator[tuple[list[str], bool]]:
    for place, folders, files in os.walk(root, onerror=unread.append):
        is_root = place == str(root)
        yield folders + files, is_root
        if is_root:
            folders[:] = [name for name in folders if name != ".git"]


def _is_own_folder(path: Path) -> bool:
    """Whether it is a folder, no link to one, that git can enter: root in a sandbox is held to the modes as others are."""
    try:
        status = path.lstat()
    except OSError:
        return False
    needed = 0o500 if status.st_uid == os.geteuid() else 0o005
    return stat.S_ISDIR(status.st_mode) and status.st_mode & needed == needed


def _content(path: Path, *, limit: int) -> bytes | None:
    """None where it is no regular file, cannot be read or is larger than `limit` bytes."""
    if path.is_symlink():
        return None
    content = read_unasked(path, within=path.parent, max_bytes=limit)
    return content if isinstance(content, bytes) else None
