"""The private folder of a run's commands: what they throw away, and what of their output was too long to show."""

from pathlib import Path

from turnwise.drivers.private_folders import make_private_folder


class Scratch:
    """A folder for us alone, removed when nobody holds this object any more, at the latest when the process ends; where that
    was killed, at the next start.

    `temporary` is the commands' own; `outputs` is written by us and only read by them, `empty` is an empty file. Made on
    first use.
    """

    def __init__(self) -> None:
        self._root: Path | None = None

    @property
    def root(self) -> Path:
        if self._root is None:
            self._root = make_private_folder(self, kind="run")
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
