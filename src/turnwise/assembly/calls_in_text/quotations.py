"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with anything before its lines (numbers, paths, authors), as a diff or as a comment, a server may escape
it, and a model leaves such things out when it quotes. So both sides are compared without marks and blanks, line after line: each
line of the earlier text must end with the next piece of the block. That errs to the side of text: of two blocks that differ in
nothing else, the second does not run either.
"""

import codecs
import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnwise.vocab import File, Message, ProviderItem, Text, ToolCall, ToolResult

_SLASHES = re.compile(r"\\{2,}")
_CODES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2}))")
_BREAKS = re.compile(r"\\[nr]|\r")
_HALVES = re.compile(r"[\ud800-\udfff]")
_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\?))")
# Marks of comments, quotations, diffs, tables and strings, and characters that nobody sees.
_LEFT_OUT = re.compile("[^\\S\n]+|[\\\\>+#*/;:%!|\"',→\u2500-\u257f\u200b-\u200f\ufeff-]+")
_WORDS = re.compile(r"[A-Za-z_]{4,}")
_MOST_WORDS = 8  # that are looked for before a text is looked at
_PIECE = 8  # characters of the block that a line must hold, unless fewer of them end it
# Lines that were compared in one text, and stretches of the block: many times what a text without malice needs. Beyond it the
# block counts as quoted, as it does wherever it is in doubt.
_MOST_STEPS = 100_000
_DIGITS = re.compile(r"\d+")
_MOST_BEFORE = 256  # characters that are compared of what stands before two lines
_NO_TEXT = ("image/", "audio/", "video/", "application/pdf")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Quotations:
    """The texts of the user's messages and of tool results, files that were read among them, and what the model itself wrote into
    the arguments of its calls, such as a page about calls. Nothing is looked at before the first block asks."""

    __slots__ = ("_bare", "_messages", "_texts")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts: list[str] | None = None
        self._bare: dict[int, list[str]] = {}  # the lines of those texts that were looked at

    def hold(self, block: str) -> bool:
        """Whether the block stands in one of them."""
        lines = _bare_lines(block)
        if not lines:
            return False
        if self._texts is None:
            self._texts = ["\n".join(_told(message)) for message in self._messages]
        words = sorted(set(_WORDS.findall(_plain(block))), key=len)[-_MOST_WORDS:]
        for at, text in enumerate(self._texts):
            if text and (not words or any(word in text for word in words)):
                if at not in self._bare:
                    self._bare[at] = _bare_lines(text)
                if _Comparison(lines).finds(self._bare[at]):
                    return True
        return False


def _told(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case ToolResult(content=content):
                for one in content:
                    yield from _texts_of(one)
            case Text() | File() if message.role == "user":
                yield from _texts_of(part)
            case ToolCall(arguments=arguments):
                yield arguments
            case ProviderItem(json=json):  # what a search of the provider's own has found
                yield json
            case _:
                pass


def _texts_of(part: Text | File) -> Iterator[str]:
    """The text; of a file whose encoding only its reader knows, each that it may be."""
    if isinstance(part, Text):
        yield part.text
        return
    data = part.data
    if data is None or part.media_type.startswith(_NO_TEXT):
        return
    if (encoding := next((name for mark, name in _MARKS if data.startswith(mark)), None)) is not None:
        yield data.decode(encoding, errors="replace")
        return
    text = data.decode(errors="replace")
    yield text
    if "\0" in text:
        yield data.decode("utf-16-le", errors="replace")
        yield data.decode("utf-16-be", errors="replace")
    elif "\ufffd" in text:
        yield data.decode("cp1252", errors="replace")


def _bare_lines(text: str) -> list[str]:
    return [line for line in _LEFT_OUT.sub("", _plain(text)).split("\n") if line]


def _plain(text: str) -> str:
    """The text without its escapes and colours."""
    if "\\" in text:
        text = _CODES.sub(_character, _SLASHES.sub(r"\\", text))
    if "&" in text:
        text = html.unescape(html.unescape(text))
    if "\\" in text or "\r" in text:
        text = _BREAKS.sub("\n", text).replace("\\t", "\t")
    if _HALVES.search(text) is not None:
        text = text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
    return _COLOURS.sub("", text) if "\x1b" in text else text


def _character(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups())), 16)
    return chr(code) if code <= 0x10FFFF else ""


class _Place(NamedTuple):
    """How far the lines so far have come in the block, and what kind of thing stood before the first of them, before the others,
    and before the last."""

    end: int = 0
    first: str = ""
    others: str = ""
    last: str = ""

    def may_skip(self, line: str) -> bool:
        """Whether the line holds nothing of a text: no word, or only what stands before each."""
        return not any(map(str.isalnum, line)) or (self.last != "" and self.last == _shape(line))

    def behind(self, before: str, *, end: int) -> "_Place | None":
        """The place behind a line; None where lines of one text, shown in one way, cannot have this before them. A line that an
        escape has broken has nothing there."""
        kind, last = _kind(before), _shape(before)
        if not self.end:
            return _Place(end, kind, "", last)
        if kind == "nothing":
            return _Place(end, self.first, self.others or kind, self.last)
        is_alike = self.others in ("", kind) or (self.others == "nothing" and kind == self.first)
        return _Place(end, self.first, kind, last) if is_alike else None


_NOWHERE = _Place()


class _Comparison:
    """One block beside the lines of one text. Both are bare."""

    __slots__ = ("_block", "_first", "_steps")

    def __init__(self, lines: Sequence[str]) -> None:
        self._block = "".join(lines)
        self._first = min(len(lines[0]), _PIECE)
        self._steps = 0

    def finds(self, lines: Sequence[str]) -> bool:
        if self._block in "".join(lines):
            return True
        begin = self._block[: self._first]
        places: set[_Place] = set()
        for line in lines:
            if not places and begin not in line:
                continue
            after = {place for place in places if place.may_skip(line)}
            for place in (*places, _NOWHERE):
                for before, end in self._pieces(line, place=place.end):
                    if (now := place.behind(line[:before], end=end)) is None:
                        continue
                    if end == len(self._block):
                        return True
                    after.add(now)
                if self._steps > _MOST_STEPS:
                    return True
            places = after
        return False

    def _pieces(self, line: str, *, place: int) -> Iterator[tuple[int, int]]:
        """Where in the line a piece of the block begins, and where it ends in the block: with the line, or with the block."""
        block = self._block
        longest = min(_PIECE, len(block) - place) if place else self._first
        at = line.find(block[place : place + longest])
        while at >= 0 and self._steps <= _MOST_STEPS:
            length = self._common(line, at=at, place=place)
            rest = line[at + length : at + length + 64]
            if place + length == len(block) or not any(map(str.isalnum, rest.removeprefix("<br"))):
                yield at, place + length
            at = line.find(block[place : place + longest], at + 1)
        self._steps += place > 0
        for length in range(1, longest) if place else ():
            if line.endswith(block[place : place + length]):
                yield len(line) - length, place + length

    def _common(self, line: str, *, at: int, place: int) -> int:
        """How many characters agree from there on."""
        block, most, length, step = self._block, min(len(line) - at, len(self._block) - place), 0, 64
        while length < most and step:
            end = min(length + step, most)
            if line[at + length : at + end] == block[place + length : place + end]:
                length, step = end, step * 2
            else:
                step //= 2
        self._steps += 1 + length // 1024
        return length


def _kind(before: str) -> str:
    """Of what stands before a line: nothing, a number, a word, or the mark that it ends with."""
    last = before[-1:]
    if last.isdigit():
        return "number"
    return "word" if last.isalpha() else last or "nothing"


def _shape(before: str) -> str:
    """The same for every line that a tool has numbered."""
    return _DIGITS.sub("0", before[-_MOST_BEFORE:])
