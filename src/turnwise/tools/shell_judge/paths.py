"""Where the path of a call leads: links followed, `..` and `~` resolved, a missing tail kept."""

import contextlib
import fnmatch
import functools
import os
import re
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from turnwise.base.private_folders import private_folder_of
from turnwise.rules.guarded_names import is_secret, runs_later
from turnwise.rules.permission_facts import Access, PathFact
from turnwise.rules.permission_paths import is_inside
from turnwise.tools.sandbox.environment import PrivateFolder
from turnwise.tools.sandbox.git import named_in_settings
from turnwise.tools.shell_judge.word_spelling import SegmentGlob
from turnwise.tools.shell_judge.wrappers import CommandWords
from turnwise.tools.workspace.output import is_gone_output
from turnwise.vocab.file_names import marked

# What a command that searches all files below a folder would look at.


# Of ripgrep: a line with `!` brings back what is passed over, hidden files too (its guide, Automatic filtering).
_IGNORE_FILES = (".ignore", ".rgignore", ".gitignore", ".git/info/exclude")
MAX_IGNORE_BYTES = 64 * 1024
_LINKING = frozenset({"grep", "egrep", "fgrep"})


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """`hidden`: files whose names begin with a dot are shown as well. `follows`: symbolic links below the folder, too."""

    hidden: bool
    follows: bool = False


def search_of(words: CommandWords, *, environment: Collection[str]) -> Search | None:
    """The search that a command does; None if it is not a search. `environment` are the names of the variables that it
    inherits."""
    name = words[0].text if words and words[0].literal else ""
    options = [word.text for word in words[1:] if word.text.startswith("-")]
    if name == "rg" and "RIPGREP_CONFIG_PATH" in environment and "--no-config" not in options:
        return Search(hidden=True, follows=True)  # the file may say so
    if name == "rg":
        return Search(hidden=False, follows=any(_has(text, letter="L", long="--follow") for text in options))
    if name == "diff":  # of two folders it shows the files
        return Search(hidden=True, follows=True)
    if name in _LINKING and any("r" in text or "R" in text for text in options):
        return Search(hidden=True, follows=any(_has(text, letter="R", long="--dereference") for text in options))
    return None


def _has(text: str, *, letter: str, long: str) -> bool:
    return text.startswith(long) if text.startswith("--") else letter in text


class Looked:
    """Which names a search shows, folder by folder from the outside in."""

    def __init__(self, folder: str, *, search: Search) -> None:
        self._hidden = search.hidden
        self._brought_back: list[str] = []
        if not search.hidden:
            for above in Path(folder).parents:
                self._read(str(above))

    def enter(self, place: str) -> None:
        """Reads what the folder says of its names, before they are asked about."""
        if not self._hidden:
            self._read(place)

    def shows(self, name: str) -> bool:
        """Whether the search would show a file, or enter a folder, of that name."""
        return (
            self._hidden
            or not name.startswith(".")
            or any(fnmatch.fnmatch(name, pattern) for pattern in self._brought_back)
        )

    def _read(self, place: str) -> None:
        for name in _IGNORE_FILES:
            self._read_one(f"{place}/{name}")

    def _read_one(self, path: str) -> None:
        try:
            if not os.path.isfile(path):  # noqa: PTH113
                return
            with open(path, "rb") as file:  # noqa: PTH123
                lines = file.read(MAX_IGNORE_BYTES + 1)
        except OSError:
            return
        if len(lines) > MAX_IGNORE_BYTES:
            self._brought_back.append("*")
        for line in lines.decode("utf-8-sig", "replace").splitlines():
            if line.startswith("!"):
                pattern = re.sub(r"\{.*\}", "*", line[1:].strip()).replace("\\", "")
                self._brought_back += [part for part in pattern.split("/") if part]


# Names that are no UTF-8, as text that a journal, an ask and a provider can carry.


T = TypeVar("T")

_BYTE = re.compile("[\udc80-\udcff]")  # how Python holds a byte of a name that it cannot decode (PEP 383)
_UNWRITABLE = re.compile("[\ud800-\udfff]")


def escaped(text: str) -> str:
    """The text with `\\xff` for such a byte; the very same where there is none, as what is a default is not written."""
    if _UNWRITABLE.search(text) is None:
        return text
    told = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
    return told.encode("utf-8", "backslashreplace").decode()


def is_marked(path: str) -> bool:
    return "//" in path


def readable(value: T) -> T:
    """The same facts, every text in them escaped."""
    found: object = value
    if isinstance(value, str):
        found = escaped(value)
    elif isinstance(value, tuple):
        found = tuple([readable(one) for one in cast("tuple[object, ...]", value)])
    elif isinstance(value, msgspec.Struct):
        fields = {name: readable(cast("object", getattr(value, name))) for name in value.__struct_fields__}
        found = msgspec.structs.replace(value, **fields)
    return cast("T", found)


MAX_PATH_CHARS = 4096  # PATH_MAX of Linux
MAX_GLOB_ENTRIES = 2000  # looked at for one word
MAX_GLOB_MATCHES = 100
MAX_SEARCHED = 10_000  # entries below a folder, some 20 ms
MAX_CONFIG_BYTES = 64 * 1024
# In a repository's configuration: a name in an address, or a word of settings that hold a key or name a program that does.
_MAY_HOLD_KEY = re.compile(
    rb"://[^/\s]*@|[^\x09-\x7e]|\x0b|\x0c|header|token|pass|secret|cookie|cred|key|smtp|imap", re.IGNORECASE
)

# Nothing is kept and nothing is revealed by them.
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
# What they lead to depends on the process that asks.
_PROCESS_BOUND = ("/proc/", "/dev/")


class Paths:
    """Resolves paths as a call in `workspace` would see them. `home` is what `~` stands for, `private` the folder that commands
    have for themselves; in the folders `kept` lies what turnwise wrote for the model."""

    def __init__(
        self,
        workspace: os.PathLike[str],
        *,
        home: str,
        private: PrivateFolder | None = None,
        kept: Iterable[os.PathLike[str]] = (),
    ) -> None:
        self.workspace = os.path.realpath(workspace)
        self.is_linked = os.path.abspath(workspace) != self.workspace  # noqa: PTH100 - bash may have come by this path
        self.home = home
        self.private = private
        self._kept = tuple([os.path.realpath(folder) for folder in kept])

    def fact(self, text: str, *, place: str | None = None, access: Access = "read", tilde: bool = False) -> PathFact:
        """The fact of `text`, relative to `place` (the workspace by default). `tilde`: a leading `~` is the home folder."""
        if tilde and text.startswith("~"):
            if text != "~" and not text.startswith("~/"):
                return PathFact(given=text, access=access)
            full = self.home + text[1:]
        else:
            full = os.path.join(self.workspace if place is None else place, text)  # noqa: PTH118 - keeps `..` for realpath
        if "\0" in text or len(full) > MAX_PATH_CHARS or not full.startswith("/"):
            return PathFact(given=text[:MAX_PATH_CHARS], access=access)
        lexical = os.path.normpath(full).replace("//", "/", 1)
        if lexical in HARMLESS_DEVICES:
            return PathFact(given=text, resolved=lexical, lexical=lexical, inside=True, access=access)
        try:
            resolved = os.path.realpath(self._real(full))
        except (OSError, ValueError):
            return PathFact(given=text, access=access)
        private = self.private is not None and self.private.holds(resolved)
        inside = private or (self.contains(resolved) and not lexical.startswith(_PROCESS_BOUND))
        passing = not inside and private_folder_of(resolved) is not None
        kept = any(is_inside(resolved, folder=folder) for folder in self._kept) or (
            passing and is_gone_output(resolved)
        )
        return PathFact(
            given=escaped(text),
            resolved=marked(resolved),
            lexical=marked(lexical),
            inside=inside,
            access=access,
            kept=kept,
            passing=passing,
            private=private,
            later=any(is_inside(resolved, folder=named) for named in self._named),
        )

    @functools.cached_property
    def _named(self) -> list[str]:
        """What runs later though its own name does not say so: git's settings name it, or a link right in the workspace does."""
        links: list[str] = []
        with contextlib.suppress(OSError), os.scandir(self.workspace) as entries:
            links = [entry.path for entry in entries if entry.is_symlink() and runs_later(entry.name)]
        targets = [os.path.realpath(link) for link in links]
        return [one for one in targets if one != self.workspace] + [
            str(path) for path in named_in_settings(Path(self.workspace))
        ]

    def _real(self, full: str) -> str:
        return full if self.private is None or self.contains(full) else self.private.real_path(full)

    def contains(self, path: str) -> bool:
        return is_inside(path, folder=self.workspace)

    def is_unreachable(self, fact: PathFact) -> bool:
        """Whether it is absolute text that leads nowhere (`s` of `sed`, a pattern): below a folder of `/` that does not exist."""
        parts = fact.lexical.split("/")
        if not fact.resolved or fact.inside or (len(parts) < 3 and not fact.given.endswith("/")):
            return False
        return not os.path.lexists(f"/{parts[1]}")

    def is_folder(self, path: str) -> bool:
        return is_marked(path) or os.path.isdir(path)  # noqa: PTH112

    def may_enter(self, path: str) -> bool:
        """Whether `cd` to the path surely succeeds. A right that a group has does not count, nor one that root has anyway: in a
        sandbox it may have none."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except (OSError, ValueError):
            return False
        needed = 0o100 if status.st_uid == os.geteuid() else 0o001
        return stat.S_ISDIR(status.st_mode) and status.st_mode & needed != 0

    def secret_below(self, folder: str, *, search: Search) -> str:
        """The first secret file that a search of the folder would show, or a link that leads it out of the folder; empty where
        there is none. A folder too large to be looked through counts as one that has some."""
        if is_marked(folder):
            return "a folder whose name is no UTF-8"
        looked = Looked(folder, search=search)
        seen = 0
        for place, folders, files in os.walk(folder):
            seen += len(folders) + len(files)
            if seen > MAX_SEARCHED:
                return f"more than {MAX_SEARCHED:,} files"
            looked.enter(place)
            folders[:] = [name for name in folders if looked.shows(name)]
            for name in filter(looked.shows, files):
                if is_secret(f"{place}/{name}", home=self.home) and not self._is_plain_config(place, name):
                    return name
            if search.follows:
                for name in (*folders, *files):
                    if not is_inside(os.path.realpath(f"{place}/{name}"), folder=folder):
                        return name
        return ""

    def _is_plain_config(self, place: str, name: str) -> bool:
        """Whether it is a repository's configuration, which is secret for what may stand in it, and nothing of that does."""
        path = f"{place}/{name}"
        if (
            name != "config"
            or not place.endswith("/.git")
            or is_secret(place, home=self.home)
            or not os.path.isfile(path)  # noqa: PTH113
        ):
            return False
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                text = file.read(MAX_CONFIG_BYTES + 1)
        except OSError:
            return False
        return len(text) <= MAX_CONFIG_BYTES and _MAY_HOLD_KEY.search(text) is None

    def matches(self, segment: SegmentGlob | str, *, place: str) -> list[str] | None:
        """The names in `place` that one segment of a glob matches; None where there are too many to look at."""
        if isinstance(segment, str):
            return [segment] if os.path.lexists(os.path.join(place, segment)) else []  # noqa: PTH118
        found: list[str] = []
        try:
            with os.scandir(place) as entries:
                for count, entry in enumerate(entries):
                    if count >= MAX_GLOB_ENTRIES:
                        return None
                    if segment.fits(entry.name):
                        found.append(entry.name)
        except OSError:
            return []
        return sorted(found)

    def expand(self, segments: list[SegmentGlob | str], *, place: str) -> list[str] | None:
        """All paths that a glob matches, relative to `place`, and the folders outside of the workspace that it looks into. None
        where there are too many to look at."""
        found = [""]
        outside: list[str] = []
        for at, segment in enumerate(segments):
            longer: list[str] = []
            for head in found:
                names = [segment] if segment == "" else self.matches(segment, place=os.path.join(place, head))  # noqa: PTH118
                if names is None:
                    return None
                longer += [f"{head}{name}/" if at < len(segments) - 1 else f"{head}{name}" for name in names]
                if isinstance(segment, SegmentGlob) and head and not self._lies_inside(os.path.join(place, head)):  # noqa: PTH118
                    outside.append(head)
            found = longer
            if len(found) > MAX_GLOB_MATCHES:
                return None
        return [*found, *outside]

    def _lies_inside(self, path: str) -> bool:
        """Whether it is no folder outside; a file is not looked into."""
        return self.contains(os.path.realpath(path)) or not os.path.isdir(path)  # noqa: PTH112
