"""Bytes of a file -> text and back without losing a byte, or what they are if they are no text."""

import codecs
import hashlib
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.errors import ToolFault

SNIFFED_BYTES = 8192  # git looks at the first 8,000 bytes for a NUL as well

LineEnds = Literal["\n", "\r\n", "mixed", ""]
Encoding = Literal["utf-8", "utf-16-le", "utf-16-be"]

_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_MARK: tuple[bytes, Encoding] = (b"", "utf-8")
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_KINDS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or an office document, which is one)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
    (b"OggS", "Ogg audio or video"),
    (b"ID3", "MP3 audio"),
)


class FileText(msgspec.Struct, frozen=True, kw_only=True):
    """A text and how it stands in its file. `mark` is the byte order mark that it began with. Bytes that are no UTF-8 are
    lone surrogates in `text`."""

    text: str
    encoding: Encoding = "utf-8"
    mark: bytes = b""

    @property
    def line_ends(self) -> LineEnds:
        """Of all its lines; empty where it has no line end."""
        windows, every = self.text.count("\r\n"), self.text.count("\n")
        if not every:
            return ""
        return "\r\n" if windows == every else "\n" if not windows else "mixed"

    @property
    def broken(self) -> int:
        """How many bytes are not of its encoding."""
        if self.encoding != "utf-8" or self.text.isascii():
            return 0
        return sum("\udc80" <= character <= "\udcff" for character in self.text)

    @property
    def first_broken(self) -> int | None:
        """The place of the first byte of its file that is not of its encoding."""
        if not self.broken:
            return None
        whole = next(at for at, character in enumerate(self.text) if "\udc80" <= character <= "\udcff")
        return len(self.mark) + len(self.text[:whole].encode())

    def with_text(self, text: str) -> bytes:
        """The file's bytes with this text. Raises ToolFault where the encoding has no way to write it."""
        try:
            return self.mark + text.encode(self.encoding, "surrogateescape")
        except UnicodeEncodeError as error:
            found = text[error.start : error.end]
            raise ToolFault(f"the text holds {found!r}, which cannot be written as {self.encoding.upper()}") from None


def text_of(content: bytes) -> FileText | None:
    """None for what is no text: a NUL near its beginning, an unknown encoding."""
    if content.startswith(_UTF32):
        return None
    mark, encoding = next((row for row in _MARKS if content.startswith(row[0])), _NO_MARK)
    body = content[len(mark) :]
    if encoding != "utf-8":
        try:
            return FileText(text=body.decode(encoding), encoding=encoding, mark=mark)
        except UnicodeDecodeError:
            return None
    if b"\0" in body[:SNIFFED_BYTES]:
        return None
    return FileText(text=body.decode("utf-8", "surrogateescape"), mark=mark)


def image_type(content: bytes) -> str | None:
    """The media type of an image that models can look at."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _IMAGES if content.startswith(magic)), None)


def kind_of(content: bytes) -> str:
    """What a binary is, in words."""
    if image := image_type(content):
        return f"an image ({image})"
    if content.startswith(_UTF32):
        return "text in UTF-32"
    if _is_unmarked_utf16(content):
        return "text in UTF-16 without a byte order mark"
    if content[4:8] == b"ftyp":
        return "a video or audio file (MP4)"
    return next((kind for magic, kind in _KINDS if content.startswith(magic)), "a binary file")


def _is_unmarked_utf16(content: bytes) -> bool:
    """Whether it begins with letters, digits and the like of ASCII, each in two bytes of which one is zero."""
    begins = content[: min(SNIFFED_BYTES, len(content) // 2 * 2)]
    low, high = begins[::2], begins[1::2]
    texts = [letters for zeros, letters in ((high, low), (low, high)) if letters and not any(zeros)]
    return any(
        letters.decode("latin-1").expandtabs().replace("\r", "").replace("\n", "").isprintable() for letters in texts
    )


def with_line_ends(text: str, *, ends: LineEnds) -> str:
    """With all line ends as `ends` says; as given where that is no single kind."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if ends == "\r\n" else plain if ends == "\n" else text


def printable(text: str) -> str:
    """Without the lone surrogates that stand for bytes of no encoding."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# What a model has seen of files: which content, and which of its lines.


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
