"""Bytes of a file -> text and back without losing a byte; what a model has seen of it, and where a text nearly stands in it."""

import codecs
import difflib
import hashlib
import re
import threading
import unicodedata
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


# Where a text that is not in a file nearly stands, and what differs.


SHOWN_CHARACTERS = 2000
SHOWN_LINES = 12
COMPARED_LINES = 4000  # comparing two lines takes time quadratic in their length
COMPARED_CHARACTERS = 160
NEAREST = 3
LIKENESS = 0.6
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


def near_misses(text: str, old: str) -> str:
    """What the caller most likely got wrong, with the lines as they are."""
    plain, wanted = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    if _NUMBERED.match(wanted) and _NUMBERED.sub("", wanted) in plain:
        return "It is there without the line numbers: leave them out of `old`."
    if said := composed_otherwise(plain, wanted):
        return said
    lines, sought = plain.split("\n"), wanted.strip("\n").split("\n")
    bare, bare_sought = [_bare(line) for line in lines], [_bare(line) for line in sought]
    for start in range(len(lines) - len(sought) + 1):
        if bare[start] == bare_sought[0] and bare[start : start + len(sought)] == bare_sought:
            found = lines[start : start + len(sought)]
            differs = _white_space(found, sought, first=start + 1)
            return (
                f"Lines {start + 1} to {start + len(sought)} differ from it in white space only"
                f"{f' ({differs})' if differs else ''}. They are exactly:\n{_shown(found)}"
            )
    return _nearest(lines, sought)


def _nearest(lines: list[str], sought: list[str]) -> str:
    """The lines that are most like the most telling line of what was sought, with those that would stand around them."""
    place = max(range(len(sought)), key=lambda number: len(sought[number].strip()))
    telling = sought[place].strip()[:COMPARED_CHARACTERS]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(telling)
    scored: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:COMPARED_CHARACTERS])
        if (
            min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= LIKENESS
            and (ratio := matcher.ratio()) >= LIKENESS
        ):
            scored.append((-ratio, number))
    best = sorted(scored)[:NEAREST]
    if not telling or not best:
        return "Nothing in it is like that. Read the file again: it may have changed."
    start = max(0, best[0][1] - place)
    window = lines[start : start + len(sought)]
    others = ", ".join(str(number + 1) for _, number in best[1:])
    span = f"line is {start + 1}" if len(window) == 1 else f"lines are {start + 1} to {start + len(window)}"
    also = f" (also like it: line {others})" if others else ""
    return f"The nearest {span}{also}:\n{_shown(window)}\nRead the file again around it."


def composed_otherwise(text: str, wanted: str) -> str:
    """Where it stands but for how letters are composed of characters (Unicode, annex 15), in a form that can be given back."""
    if text.isascii() and wanted.isascii():
        return ""
    whole, sought = composed(text), composed(wanted)
    at = whole.find(sought)
    if at < 0:
        return ""
    first, count = whole.count("\n", 0, at), sought.count("\n") + 1
    pairs = list(zip(text.split("\n")[first : first + count], wanted.split("\n"), strict=True))
    at = next((at for at, (there, given) in enumerate(pairs) if given not in there), 0)
    number, (there, given) = first + at + 1, pairs[at]
    return (
        f"It stands in line {number}, but with letters that are composed of other characters (composed and decomposed Unicode"
        f" letters look the same). With escapes for them as in JSON, the line is `{escaped(there)}`, and what you gave is"
        f" `{escaped(given)}`: give the characters of the file."
    )


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def escaped(text: str) -> str:
    """With `\\u0301` for each character that is no ASCII, in UTF-16 as in JSON."""
    units = [one if one.isascii() else one.encode("utf-16-be", "surrogatepass") for one in text[:SHOWN_CHARACTERS]]
    return "".join(
        one if isinstance(one, str) else "".join(f"\\u{one[at : at + 2].hex()}" for at in range(0, len(one), 2))
        for one in units
    )


def _bare(line: str) -> str:
    return "".join(line.split())


def _white_space(found: list[str], sought: list[str], *, first: int) -> str:
    """Names the first line that differs, and how."""
    for number, (there, given) in enumerate(zip(found, sought, strict=True), start=first):
        if there == given:
            continue
        if _indent(there) != _indent(given):
            return f"line {number} is indented by {_named(_indent(there))}, `old` by {_named(_indent(given))}"
        if there.rstrip() == given.rstrip():
            return f"line {number} ends with {_named(_tail(there))}, `old` with {_named(_tail(given))}"
        return f"line {number} has other white space between its words"
    return ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _tail(line: str) -> str:
    return line[len(line.rstrip()) :]


def _named(blank: str) -> str:
    """How many tabs, spaces and others."""
    counts = {"tab": blank.count("\t"), "space": blank.count(" ")}
    counts["other blank"] = len(blank) - sum(counts.values())
    return " and ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items() if count) or "nothing"


def _shown(lines: list[str]) -> str:
    text = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    return text + (f"\n[... and {len(lines) - SHOWN_LINES} more lines]" if len(lines) > SHOWN_LINES else "")
