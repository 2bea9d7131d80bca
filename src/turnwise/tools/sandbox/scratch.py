"""The private folder of a run's commands: what they throw away, and what of their output was too long to show; and the names
that they know it by: `$TMPDIR`, and `/tmp` in bubblewrap."""

import shlex
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import msgspec

from turnwise.base.private_folders import make_private_folder

_CACHES = ".cache"  # programs take from there what they run later


class Scratch:
    """A folder for us alone, removed when nobody holds this object any more, at the latest when the process ends; where that
    was killed, at the next start.

    `temporary` is the commands' own; `outputs` is written by us and only read by them, `empty` is an empty file. Made on
    first use.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._making = threading.Lock()  # calls are looked at in threads, those of several sub-agents at once

    @property
    def root(self) -> Path:
        with self._making:
            if self._root is None:
                root = make_private_folder(self, kind="run")
                for name in ("tmp", "outputs", "programs"):
                    (root / name).mkdir()
                (root / "empty").touch(mode=0o400)
                self._root = root
        return self._root

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def _programs(self) -> Path:
        return self.root / "programs"

    @contextmanager
    def programs(self, names: Iterable[tuple[str, str]]) -> Generator[Path]:
        """A folder for PATH in which each name is the program that stands beside it; its parent holds nothing else."""
        folder = Path(tempfile.mkdtemp(dir=self._programs))
        try:
            for name, program in names:
                _write_program(folder / name, program=program)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def empty(self) -> Path:
        return self.root / "empty"


def _write_program(path: Path, *, program: str) -> None:
    """A program that is `program` under the name of `path`. No link: some (Python) look for their files where a link lies."""
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} "$@"\n', encoding="utf-8", errors="surrogateescape")
    path.chmod(0o500)


class PrivateFolder(msgspec.Struct, frozen=True, kw_only=True):
    """`real` is where it lies. `names` are the folders that stand for it in a command, the first is the value of TMPDIR;
    `others` lie below one of those names, and are what they are outside."""

    real: str
    names: tuple[str, ...]
    others: tuple[str, ...] = ()

    def real_path(self, path: str) -> str:
        """Where the absolute `path` of a command lies outside of the sandbox. One with `..` is left as it is: what it leads
        to depends on links that are not looked at here."""
        if ".." in path.split("/") or any(_is_below(path, folder=other) for other in self.others):
            return path
        name = next((name for name in self.names if _is_below(path, folder=name)), None)
        return path if name is None else self.real + path[len(name) :]

    def holds(self, resolved: str) -> bool:
        """Whether the resolved path lies in it, where nothing but commands that were judged looks at it."""
        return _is_below(resolved, folder=self.real) and not _is_below(resolved, folder=f"{self.real}/{_CACHES}")


def _is_below(path: str, *, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
