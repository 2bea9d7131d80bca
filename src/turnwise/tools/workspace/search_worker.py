"""Walks a folder or looks for a pattern in its files, as a process of its own: reads a JSON order from standard input, writes
a JSON answer. The folder is its working folder, opened by us, so that no link can lead it elsewhere.

A process, because Python's `re` can take hours on a hostile pattern (the model's, or one in a `.gitignore`) while holding the
interpreter's lock, so that no deadline in our own process would ever be noticed. Standard library only, and `pathspec` from
the given place where there is a `.gitignore`: it is started without site-packages.
"""

import fnmatch
import importlib.util
import json
import os  # paths are texts here: a Path for each of 100,000 files would double the time
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

MAX_DEPTH = 100
MAX_IGNORE_BYTES = 1024 * 1024
MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class IgnoreVerdict(Protocol):
    @property
    def include(self) -> bool | None: ...


class Spec(Protocol):
    def check_file(self, file: str) -> IgnoreVerdict: ...


class SearchOrder(NamedTuple):
    """The search to do. `above` are the folders above whose `.gitignore` holds here, `single` is the one file to search, both as
    Latin-1 of their bytes; `prefix` goes before a path where `glob` looks at it; `rg` is where ripgrep is, or empty. `names` is
    the file with the table of secret names; they are looked for in `place` and a path, for the user of the folder `home`."""

    task: str
    skipped: list[str]
    library: str
    alarm_s: float
    in_git: bool
    above: list[str]
    glob: str = ""
    depth: int = 1
    max_entries: int = 0
    pattern: str = ""
    ignore_case: bool = False
    prefix: str = ""
    single: str | None = None
    withheld: tuple[str, ...] | list[str] = ()
    names: str = ""
    place: str = ""
    home: str = ""
    max_matches: int = 0
    max_bytes: int = 0
    rg: str = ""


class Rules(NamedTuple):
    """The patterns of one `.gitignore`, and the path from its folder to the one we begin in, or from there to its folder."""

    spec: Spec
    above: str = ""  # "src/": it stands above, we begin in its `src`
    below: str = ""  # "lib/": it stands in our `lib`


class FolderEntry(NamedTuple):
    path: str
    kind: str  # file, folder, link, skipped, ignored, other
    folder: int
    name: str


def main() -> None:
    order = SearchOrder(**json.load(sys.stdin))
    # Nobody ends us if turnwise was killed. The signal's default is to end the process, also in the middle of a match.
    signal.setitimer(signal.ITIMER_REAL, order.alarm_s)
    if order.task == "list":
        answer: dict[str, object] = {"entries": listed(Walker(order), order)}
    elif order.task == "ignored":
        answer = {"ignored": is_passed_over(Walker(order), os.fsdecode((order.single or "").encode("latin-1")))}
    elif wrong := fault_of(order.pattern):
        answer = {"wrong": wrong}
    else:
        answer = {"matches": matches_of(Walker(order), order)}
    json.dump(answer, sys.stdout)


def fault_of(pattern: str) -> str:
    """Why it is no regular expression. Compiling one of a few thousand characters can take minutes, so that is done here."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return ""


class Walker:
    """The entries below the working folder, in the order of their names' bytes. Links are not followed."""

    def __init__(self, order: SearchOrder) -> None:
        self._skipped = frozenset(order.skipped)
        self._library = order.library
        above = [os.fsdecode(folder.encode("latin-1")) for folder in order.above]
        self.above = [rules for rules in map(self._rules_above, above) if rules]
        self.is_ignored = self._is_start_ignored()
        if self.is_ignored:
            self.above = []  # it was named: then what is in it is meant

    def entries(self, *, depth: int = MAX_DEPTH) -> Iterator[FolderEntry]:
        folder = os.open(".", FOLDER)
        try:
            yield from self._walk(folder, prefix="", rules=self.above, depth=depth)
        finally:
            os.close(folder)

    def has_plain_rules(self) -> bool:
        """Whether every `.gitignore` that holds here or below is a regular file of bounded size: ripgrep follows links, waits
        for pipes and reads devices. Folders alone are looked at, 0.1 s for 100,000 files."""
        above = os.path.realpath(".")
        while above != "/":
            above = above.rpartition("/")[0] or "/"
            if not _is_plain(f"{above}/.gitignore"):
                return False
        folder = os.open(".", FOLDER)
        try:
            return self._is_plain_below(folder, prefix="", rules=self.above, depth=MAX_DEPTH)
        finally:
            os.close(folder)

    def _is_plain_below(self, folder: int, *, prefix: str, rules: list[Rules], depth: int) -> bool:
        if depth == 0:
            return False  # too deep to know
        with os.scandir(folder) as scan:
            found = list(scan)
        names = {entry.name for entry in found}
        if ".git" in names:
            rules = []
        if ".gitignore" in names:
            if not _is_plain(".gitignore", folder=folder):
                return False
            own = self._read(folder, ".gitignore")
            rules = [*rules, Rules(own, below=prefix)] if own else rules
        for entry in found:
            path = prefix + entry.name
            if not entry.is_dir(follow_symlinks=False) or entry.name in self._skipped or is_ignored(path + "/", rules):
                continue
            try:
                inner = os.open(entry.name, FOLDER, dir_fd=folder)
            except OSError:
                continue  # no right to look into it, for ripgrep neither
            try:
                if not self._is_plain_below(inner, prefix=f"{path}/", rules=rules, depth=depth - 1):
                    return False
            finally:
                os.close(inner)
        return True

    def _walk(self, folder: int, *, prefix: str, rules: list[Rules], depth: int) -> Iterator[FolderEntry]:
        with os.scandir(folder) as scan:
            found = sorted(scan, key=lambda entry: os.fsencode(entry.name))
        names = {entry.name for entry in found}
        if ".git" in names:
            rules = []  # another repository: its own rules only
        if ".gitignore" in names and (own := self._read(folder, ".gitignore")):
            rules = [*rules, Rules(own, below=prefix)]
        for entry in found:
            path = prefix + entry.name
            if entry.is_symlink():
                yield FolderEntry(path, "link", folder, entry.name)
            elif entry.is_dir(follow_symlinks=False):
                if entry.name in self._skipped:
                    yield FolderEntry(path, "skipped", folder, entry.name)
                elif is_ignored(path + "/", rules):
                    yield FolderEntry(path, "ignored", folder, entry.name)
                else:
                    yield FolderEntry(path, "folder", folder, entry.name)
                    if depth > 1:
                        yield from self._enter(folder, entry.name, prefix=f"{path}/", rules=rules, depth=depth - 1)
            elif not is_ignored(path, rules):
                kind = "file" if entry.is_file(follow_symlinks=False) else "other"
                yield FolderEntry(path, kind, folder, entry.name)

    def _enter(self, folder: int, name: str, *, prefix: str, rules: list[Rules], depth: int) -> Iterator[FolderEntry]:
        try:
            inner = os.open(name, FOLDER, dir_fd=folder)
        except OSError:
            return  # no right to look into it, or gone
        try:
            yield from self._walk(inner, prefix=prefix, rules=rules, depth=depth)
        finally:
            os.close(inner)

    def _rules_above(self, folder: str) -> Rules | None:
        try:
            descriptor = os.open(folder, FOLDER)
        except OSError:
            return None
        try:
            spec = self._read(descriptor, ".gitignore")
        finally:
            os.close(descriptor)
        return None if spec is None else Rules(spec, above=os.path.relpath(".", folder) + "/")

    def _is_start_ignored(self) -> bool:
        for rules in self.above:
            parts = rules.above.rstrip("/").split("/")
            if any(rules.spec.check_file("/".join(parts[:count]) + "/").include for count in range(1, len(parts) + 1)):
                return True
        return False

    def _read(self, folder: int, name: str) -> Spec | None:
        content = read_file(folder, name, max_bytes=MAX_IGNORE_BYTES)
        if not content:
            return None
        if self._library not in sys.path:
            sys.path.append(self._library)
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines(content.decode("utf-8", "replace").removeprefix("\ufeff").splitlines())


def _is_plain(path: str, *, folder: int | None = None) -> bool:
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_IGNORE_BYTES


def is_ignored(path: str, rules: list[Rules]) -> bool:
    """The innermost `.gitignore` that says something decides."""
    for spec, above, below in reversed(rules):
        verdict = spec.check_file(above + path.removeprefix(below)).include
        if verdict is not None:
            return verdict
    return False


def listed(walker: Walker, order: SearchOrder) -> list[tuple[str, str, int]]:
    """Path (its bytes as Latin-1), kind and size (-1: unknown) of each entry, one more than may be shown at the most."""
    found: list[tuple[str, str, int]] = []
    glob, most, depth = order.glob, order.max_entries, order.depth
    for entry in walker.entries(depth=depth):
        if glob and (entry.kind not in {"file", "other", "link"} or not fits(entry.path, glob)):
            continue
        size = -1
        if entry.kind == "file":
            try:
                size = os.stat(entry.name, dir_fd=entry.folder, follow_symlinks=False).st_size
            except OSError:
                continue  # gone meanwhile
        found.append((as_latin(entry.path), entry.kind, size))
        if len(found) > most:
            break
    return found


def is_passed_over(walker: Walker, name: str) -> bool:
    """Whether the file of our folder, or the folder, is ignored."""
    return walker.is_ignored or all(entry.name != name for entry in walker.entries(depth=1))


def matches_of(walker: Walker, order: SearchOrder) -> list[tuple[str, int]]:
    """File (its name's bytes as Latin-1) and line number of each match, one more than may be shown at the most."""
    most, glob = order.max_matches, order.glob
    if order.single is not None:
        name = os.fsdecode(order.single.encode("latin-1"))
        return list(lines_in([(name, os.open(".", FOLDER), name)], order))[: most + 1]

    is_secret = secrets_by(order)

    def wanted(path: str) -> bool:
        shown = order.prefix + path
        if glob and not fits(shown, glob):
            return False
        return not any(fits(shown, pattern) for pattern in order.withheld) and not is_secret(path)

    # Its versions differ in what holds where there is no repository.
    if order.rg and order.in_git and walker.has_plain_rules():
        found = from_ripgrep(walker, order, wanted=wanted)
        if found is not None:
            return found
    files = (
        (entry.path, entry.folder, entry.name)
        for entry in walker.entries()
        if entry.kind == "file" and wanted(entry.path)
    )
    result: list[tuple[str, int]] = []
    for match in lines_in(files, order):
        result.append(match)
        if len(result) > most:
            break
    return result


def secrets_by(order: SearchOrder) -> Callable[[str], bool]:
    """Whether a path below our folder is secret, by the one table, which is a file of the pure rooms: they are not here."""
    spec = importlib.util.spec_from_file_location("guarded_names", order.names)
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    return lambda path: table.is_secret(f"{order.place}/{path}", home=order.home)


def lines_in(files: Iterable[tuple[str, int, str]], order: SearchOrder) -> Iterator[tuple[str, int]]:
    pattern = re.compile(order.pattern, re.IGNORECASE if order.ignore_case else 0)
    for path, folder, name in files:
        content = read_file(folder, name, max_bytes=order.max_bytes)
        for number, line in enumerate(lines_of(content or b""), start=1):
            if pattern.search(line):
                yield as_latin(path), number


def lines_of(content: bytes) -> list[str]:
    """Nothing of a binary."""
    mark, encoding = next(((mark, name) for mark, name in MARKS if content.startswith(mark)), (b"", "utf-8"))
    if b"\0" in content and encoding == "utf-8":
        return []
    lines = content[len(mark) :].decode(encoding, "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def from_ripgrep(walker: Walker, order: SearchOrder, *, wanted: Callable[[str], bool]) -> list[tuple[str, int]] | None:
    """The same by ripgrep; None where it cannot answer (a pattern of another dialect, another version)."""
    command = [order.rg, "--json", "--no-config", "--no-messages", "--hidden", "--crlf", "--sort=path"]
    command += ["--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot", f"--max-filesize={order.max_bytes}"]
    command += ["--max-count", str(order.max_matches + 1)]
    command += [f"--glob=!**/{name}/" for name in order.skipped]
    if not walker.above:
        command.append("--no-ignore-parent")
    if order.ignore_case:
        command.append("--ignore-case")
    command += ["--regexp", order.pattern, "./"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        found: list[tuple[str, int]] = []
        of_file: list[tuple[str, int]] = []
        for line in process.stdout:
            event = json.loads(line)
            match event["type"]:
                case "match":
                    path = path_of(event["data"]["path"])
                    if wanted(path):
                        of_file.append((as_latin(path), event["data"]["line_number"]))
                case "end":
                    if event["data"]["binary_offset"] is None:
                        found += of_file
                    of_file = []
                    if len(found) > order.max_matches:
                        process.kill()
                        return found[: order.max_matches + 1]
                case _:
                    pass
    return found if process.returncode in {0, 1} else None


def path_of(told: dict[str, str]) -> str:
    if "text" in told:
        return told["text"].removeprefix("./")
    import base64

    return os.fsdecode(base64.b64decode(told["bytes"])).removeprefix("./")


def read_file(folder: int, name: str, *, max_bytes: int) -> bytes | None:
    """None for what is no regular file, cannot be read, or is too large."""
    try:
        descriptor = os.open(name, FILE, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
            return None
        try:
            return file.read(max_bytes)
        except OSError:
            return None


def fits(path: str, glob: str) -> bool:
    return fnmatch.fnmatch(path, glob) or fnmatch.fnmatch(path.rpartition("/")[2], glob)


def as_latin(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


if __name__ == "__main__":
    main()
