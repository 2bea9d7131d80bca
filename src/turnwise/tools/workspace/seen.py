"""What a model has seen of files: which content, and which of its lines."""

import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

LineSpan = tuple[int, int]
"""The first and the last of some lines; lines count from 1."""


class SeenContent(msgspec.Struct, frozen=True):
    """A content by its digest, and the lines of it that were not shown whole."""

    digest: bytes
    unread: tuple[LineSpan, ...] = ()


class Memory:
    """The files of one session. A file counts as seen when every line of its content was shown whole, in one call or in several,
    or when the model wrote that content itself."""

    def __init__(self) -> None:
        self._files: dict[Path, SeenContent] = {}
        self._lock = threading.Lock()  # calls that read run beside each other

    def keep(self, path: Path, content: bytes) -> None:
        """The model knows all of it."""
        self._files[path] = SeenContent(_digest(content))

    def keep_lines(self, path: Path, content: bytes, *, shown: Iterable[LineSpan], total: int) -> None:
        """The model was shown these lines of `total`."""
        digest = _digest(content)
        with self._lock:
            before = self._files.get(path)
            unread = before.unread if before is not None and before.digest == digest else ((1, total),)
            for span in shown:
                unread = tuple([rest for each in unread for rest in _without(each, span=span)])
            self._files[path] = SeenContent(digest, unread if total else ())

    def drop(self, path: Path) -> None:
        self._files.pop(path, None)

    def doubt(self, path: Path, content: bytes) -> str:
        """Why the model does not know this content; empty where it does. It goes on from the file's name."""
        seen = self._files.get(path)
        if seen is None:
            return "exists, and you have not read it"
        if seen.digest != _digest(content):
            return "changed since you read it"
        if seen.unread:
            shown = ", ".join(
                [str(first) if first == last else f"{first} to {last}" for first, last in seen.unread[:5]]
            )
            more = " and more" if len(seen.unread) > 5 else ""
            return f"was read in part only (not shown whole: line {shown}{more})"
        return ""


def _without(each: LineSpan, *, span: LineSpan) -> list[LineSpan]:
    """What is left of some lines without others."""
    before, after = (each[0], min(each[1], span[0] - 1)), (max(each[0], span[1] + 1), each[1])
    return [rest for rest in dict.fromkeys((before, after)) if rest[0] <= rest[1]]


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
