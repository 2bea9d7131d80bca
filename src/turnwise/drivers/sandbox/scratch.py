"""The private folder of a run's commands: what they throw away, and what of their output was too long to show."""

import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """A folder for us alone, removed when nobody holds this object any more, at the latest when the process ends.

    `temporary` is the commands' own; `outputs` is written by us and only read by them, `empty` is an empty file. Made on
    first use.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    @property
    def root(self) -> Path:
        if self._root is None:
            # Resolved: rules and mounts know real paths only.
            self._root = Path(tempfile.mkdtemp(prefix="turnwise-")).resolve()
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            self.temporary.mkdir()
            self.outputs.mkdir()
            self.empty.touch(mode=0o400)
        return self._root

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def empty(self) -> Path:
        return self.root / "empty"
