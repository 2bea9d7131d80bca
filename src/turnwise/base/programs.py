"""Where the name of a program leads, and whether somebody who can write in some folders could change that.

A name is looked for in the folders of PATH, one after another. A folder of PATH may lie in the workspace (an activated virtual
environment, `node_modules/.bin`): a writer there chooses which file runs. Source: execvp(3), bash(1) "COMMAND EXECUTION".
"""

import fcntl
import functools
import marshal
import os
import stat
import sys
from collections.abc import Iterable, Iterator

import msgspec

# The interpreter below a virtual environment: that may lie in the workspace, where its link can be replaced.
OWN_PYTHON = os.path.realpath(sys.executable) if sys.executable else "python3"
# Nothing of the environment, the workspace or the installed packages is imported, and it starts faster.
HELPER = (OWN_PYTHON, "-I", "-S", "-X", "utf8")
# All that hold a descriptor share its offset, so it is read without that.
_COMPILED = "import marshal, os, sys; exec(marshal.loads(os.pread(int(sys.argv[1]), 1 << 20, 0)))"
# No link of another folder leads to the same file there: package managers for projects do not link to them.
_OF_THE_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/nix/store/", "/gnu/store/")
# Source: asdf and mise docs, "path:" as a version. Shims of others (pyenv, rbenv, volta) choose among what is installed.
_SHIMS = ("asdf/shims", "mise/shims")
_CHOOSERS = frozenset({"asdf", "mise"})
_MOST_LINKS = 40  # MAXSYMLINKS of Linux
_MOST_READERS = 4  # scripts that are read by scripts; Linux gives up there, too


def compiled_script(path: str) -> tuple[tuple[str, ...], int]:
    """The words that run the Python script at `path`, which is compiled once, and the descriptor that they need: the caller
    closes it. The script's first argument is this descriptor."""
    descriptor = os.dup(_sealed(path))
    return (*HELPER, "-c", _COMPILED, str(descriptor)), descriptor


@functools.cache
def _sealed(path: str) -> int:
    """A descriptor of the compiled script, which nobody who gets hold of it can change."""
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), path, "exec", dont_inherit=True)
    descriptor = os.memfd_create("turnwise-script", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(descriptor, marshal.dumps(code))
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


class FoundProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The file that a name leads to; `path` is empty if there is none. `apart`: a writer in the folders in question can change
    neither the file nor the choice of the file. `newly`: the file is not `apart`, though it was when the search was set up.
    `names` are the names that were looked for with the files that they lead to, a script's interpreter included."""

    path: str = ""
    apart: bool = False
    newly: bool = False
    names: tuple[tuple[str, str], ...] = ()


class ProgramSearch:
    """The programs that commands with this `path` (the variable's value) find, where they can write in `writable` and below.

    `workspace` is where relative folders of PATH begin, for the first look; it counts as `writable`.
    """

    def __init__(self, path: str | None, *, workspace: str, writable: Iterable[str] = ()) -> None:
        self._writable = tuple(dict.fromkeys(os.path.realpath(folder) for folder in (workspace, *writable)))
        self.path = os.defpath if path is None else path
        self._folders = tuple(self.path.split(":"))
        self._apart = tuple(folder for folder in self._folders if folder.startswith("/") and self.is_apart(folder))
        self._first = frozenset(self._written_names(workspace)) if self.are_mixed else frozenset[str]()

    @property
    def are_mixed(self) -> bool:
        """Whether a folder of PATH can be written in, or depends on where a command runs."""
        return len(self._apart) < len(self._folders)

    @property
    def path_apart(self) -> str:
        """PATH without those folders."""
        return ":".join(self._apart) or os.defpath

    def find(self, name: str, *, places: tuple[str, ...] | None, depth: int = 0) -> FoundProgram:
        """What `name` leads to for a command that runs in one of `places`; None is anywhere."""
        for folder in self._folders:
            if folder in self._apart:
                path = f"{folder}/{name}"
                if is_program(path):
                    return self._judged(path, name=name, places=places, depth=depth)
            elif places is None and not folder.startswith(("/", "~")):
                return self._not_apart(f"{folder or '.'}/{name}", name=name)
            else:
                found = next(filter(is_program, _candidates(folder, name=name, places=places or ())), "")
                if found:
                    return self._not_apart(found, name=name)
        return FoundProgram()

    def _judged(self, path: str, *, name: str, places: tuple[str, ...] | None, depth: int) -> FoundProgram:
        """A script is as sure as the program that reads it, which `env` looks for by name."""
        unsure = _has_other_names(path) or _is_led_by_folder(path) or depth > _MOST_READERS
        if unsure or not self.is_apart(path):
            return self._not_apart(path, name=name)
        reader = _reader_of(path)
        if reader is None:
            return FoundProgram(path=path, apart=True, names=((name, path),))
        if "/" in reader:
            return FoundProgram(path=path, apart=self.is_apart(reader), names=((name, path),))
        below = self.find(reader, places=places, depth=depth + 1)
        return FoundProgram(path=path, apart=below.apart, newly=below.newly, names=((name, path), *below.names))

    def _not_apart(self, path: str, *, name: str) -> FoundProgram:
        newly = name not in self._first and any(is_program(f"{folder}/{name}") for folder in self._apart)
        return FoundProgram(path=path, newly=newly)

    def _written_names(self, workspace: str) -> Iterator[str]:
        for folder in self._folders:
            if folder not in self._apart:
                try:
                    yield from os.listdir(os.path.join(workspace, folder))  # noqa: PTH118, PTH208
                except OSError:
                    continue

    def first_apart(self, name: str) -> str:
        """The first program of that name which they cannot change; empty where there is none."""
        paths = (f"{folder}/{name}" for folder in self._apart)
        return next((path for path in paths if is_program(path) and self.is_apart(path)), "")

    def is_apart(self, path: str) -> bool:
        """Whether no step on the way to `path` lies in a folder that can be written in."""
        return not any(_is_below(step, folder=folder) for step in _steps(path) for folder in self._writable)


def is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113


def _is_below(path: str, *, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _candidates(folder: str, *, name: str, places: tuple[str, ...]) -> list[str]:
    if folder.startswith("~"):  # bash takes it for the home folder, other programs for a name
        return [f"{os.path.expanduser(folder)}/{name}", *[f"{place}/{folder}/{name}" for place in places]]  # noqa: PTH111
    if folder.startswith("/"):
        return [f"{folder}/{name}"]
    return [f"{place}/{folder or '.'}/{name}" for place in places]


def _steps(path: str) -> Iterator[str]:
    """Every file, folder and link that the kernel meets on the way to the absolute `path`, each where it really lies."""
    at, links = "", 0
    rest = path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part == "..":
            at = at.rpartition("/")[0]
        if part in ("", ".", ".."):
            continue
        step = f"{at}/{part}"
        yield step
        try:
            target = os.readlink(step)  # noqa: PTH115
        except OSError:
            at = step
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        if target.startswith("/"):
            at = ""
        rest += target.split("/")[::-1]


def _has_other_names(path: str) -> bool:
    """Whether the file may stand in a project as well: uv links the files of its cache into virtual environments."""
    real = os.path.realpath(path)
    try:
        status = os.stat(real)  # noqa: PTH116
    except OSError:
        return True
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode) and not real.startswith(_OF_THE_SYSTEM)


def _is_led_by_folder(path: str) -> bool:
    """Whether a file of the folder in which it runs says which program it is: `.tool-versions` with `path:./x`."""
    return path.rpartition("/")[0].endswith(_SHIMS) or os.path.basename(os.path.realpath(path)) in _CHOOSERS  # noqa: PTH119


def _reader_of(path: str) -> str | None:
    """The program that the first line of a script names: a path, or a name after `env`. None where it is no script."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            line = file.read(256).partition(b"\n")[0]
    except OSError:
        return None  # it may be executed but not read
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and words[0].rpartition("/")[2] == "env":
        return next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "env")
    return words[0] if words else None
