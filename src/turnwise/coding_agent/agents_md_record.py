"""What is known of a folder's AGENTS.md between turns: which text, and which link, appeared while a turn was running.

A time of the file cannot say it: a `chmod` sets it anew. So the content's hash is kept at the start and at the end of each turn.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import LeftOut
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError


class FileMark(msgspec.Struct, frozen=True):
    """The file at one time: the hash of its text, empty where there is none, and `link`: where its name leads, empty for a plain
    file."""

    text: str = ""
    link: str = ""


class KeptMarks(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the file when a turn began or ended, `ended_s` when it ended (None: it runs, or was killed). The text and the
    link in `doubtful` appeared while a turn was running. `refused` is the text that the person did not want to be followed."""

    last: FileMark = FileMark()
    ended_s: float | None = None
    doubtful: FileMark = FileMark()
    has_doubt: bool = False  # of the text; it may be the empty one of a file that is gone
    refused: str | None = None

    def is_doubtful(self, mark: FileMark) -> bool:
        """Whether a turn may have written this text, or made this link."""
        return (self.has_doubt and self.doubtful.text == mark.text) or self.is_made_link(mark)

    def is_made_link(self, mark: FileMark) -> bool:
        """Whether the name leads where a turn may have led it."""
        return bool(mark.link) and self.doubtful.link == mark.link

    def seen(self, now: FileMark, *, in_turn: bool) -> "KeptMarks":
        """After a look at the file. `in_turn`: a turn was running since the last look, so what is new may be its work; else it is
        a person's. A doubt ends when the text, or the link, is another."""
        has_doubt = self.has_doubt and self.doubtful.text == now.text
        link = now.link if self.doubtful.link == now.link else ""
        if in_turn:
            has_doubt = has_doubt or self.last.text != now.text
            link = link or ("" if self.last.link == now.link else now.link)
        return msgspec.structs.replace(
            self,
            last=now,
            doubtful=FileMark(now.text, link),
            has_doubt=has_doubt,
            refused=self.refused if self.refused == now.text else None,
        )


def mark_of(path: Path, *, text: str | LeftOut | None) -> FileMark:
    """The mark of the file at `path`, whose text was read."""
    said = "" if text is None else f"left out: {text.why}" if isinstance(text, LeftOut) else f"text: {text}"
    return FileMark(hashlib.sha256(said.encode()).hexdigest() if said else "", _link_of(path))


def _link_of(path: Path) -> str:
    """Where the name leads, if not to a file that it alone names: of a link the path, of a second name of a file its number."""
    plain, real = os.path.join(os.path.realpath(path.parent), path.name), os.path.realpath(path)  # noqa: PTH118
    try:
        status = path.stat()
    except OSError:
        return "" if real == plain else real
    number = f"{status.st_dev}:{status.st_ino}" if status.st_nlink > 1 else ""
    return " ".join([one for one in ("" if real == plain else real, number) if one])


def load_marks(path: Path) -> KeptMarks | None:
    """None where none are kept, or where they cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptMarks)
    except (OSError, msgspec.DecodeError):
        return None


def save_marks(path: Path, marks: KeptMarks) -> None:
    """Where they cannot be saved, a later turn takes a changed file for a doubtful one."""
    with contextlib.suppress(OSError, CallerError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with in_place_of(path) as descriptor, os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(msgspec.json.encode(marks))
