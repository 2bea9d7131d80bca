"""What a command that searches all files below a folder would look at."""

import fnmatch
import os
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from turnwise.tools.shell_judge.wrappers import CommandWords

# Of ripgrep: a line with `!` brings back what is passed over, hidden files too (its guide, Automatic filtering).
_IGNORE_FILES = (".ignore", ".rgignore", ".gitignore", ".git/info/exclude")
MAX_IGNORE_BYTES = 64 * 1024
_LINKING = frozenset({"grep", "egrep", "fgrep"})


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """`hidden`: files whose names begin with a dot are shown as well. `follows`: symbolic links below the folder, too."""

    hidden: bool
    follows: bool = False


def search_of(words: CommandWords, *, environment: Collection[str]) -> Search | None:
    """The search that a command is; None where it is none. `environment` are the names of the variables that it inherits."""
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
