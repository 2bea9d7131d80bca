"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with anything between its lines: numbers, paths, authors, the marks of a diff or of a table, the members
of JSON records. A server may escape it, and a model leaves such things out when it quotes. So both sides are read without
escapes, and compared by their words and brackets. That errs to the side of text: of two blocks that differ only in other marks,
or in lines between, the second does not run either.
"""

import codecs
import re
from collections.abc import Iterator, Sequence

from turnwise.assembly.text_calls.comparison import (
    BARRIER,
    LINE_END,
    BlockComparison,
    beginning_of,
    hidden_parts,
    inner_words_of,
    is_word,
    tokens_of,
    without_escapes,
)
from turnwise.assembly.text_calls.quoted_calls import QuotedCalls, calls_of, without_barriers
from turnwise.assembly.text_calls.syntaxes import BY_MARKER, MARKERS
from turnwise.assembly.text_calls.values import OfferedTools
from turnwise.vocab import File, Message, ProviderItem, Text, ToolCall, ToolResult

# What was said to the model, as it is read for a comparison: without escapes, and also with the ends of lines joined.
#
# Each text is read once, whatever is looked for, and each place where a block may begin is found once.


_LINE_ENDS = re.compile(r"[\r\n]+")
# Lines may have been broken anywhere, within an escape too. Quoted-printable and `sed -n l` mark such breaks; YAML indents the
# line behind them as well.
BREAKS = (None, _LINE_ENDS, re.compile(r"[=\\]\r?\n"), re.compile(r"\\\r?\n[ \t]+\\?"))
_LONGEST_NAME = 64  # characters by which it is looked for
_NO_LETTERS = re.compile(r"[\W\d]+")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]")
_MARKUP = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|(?:<|&lt;|\\u003c)[^<>&\\]{0,200}(?:>|&gt;|\\u003e)")
_SHORT = 20_000  # characters that are read whatever stands in them
_MOST_PAGES = 2  # in which a block goes on
_LONGEST_WORD = 128  # that is looked for in pieces


class ReadText:
    """The texts that may hold a name, in one way to read them. `find_beginnings` costs no more where it was asked before."""

    __slots__ = ("_begins", "_words", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._begins: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._words: frozenset[str] | None = None

    def knows(self, head: Sequence[str]) -> bool:
        """Whether beginnings of these tokens were looked for before."""
        return tuple(head[:2]) in self._begins

    def find_beginnings(self, head: Sequence[str]) -> tuple[int, ...]:
        """The places where a block with these first tokens may begin."""
        key = tuple(head[:2])
        if (begins := self._begins.get(key)) is None:
            begins = tuple([found.start() for found in beginning_of(head).finditer(self.text)])
            self._begins[key] = begins
        return begins

    def has_pieces_of(self, words: Sequence[str]) -> bool:
        """Whether each of the words stands in the text, as a whole or in pieces."""
        if self._words is None:
            self._words = frozenset(tokens_of(self.text))
        known = self._words
        return all(word in known or _is_made_of(word, known) for word in words)


def _is_made_of(word: str, known: frozenset[str]) -> bool:
    if len(word) > _LONGEST_WORD:
        return True  # too long to find out
    ends = {0}
    for end in range(1, len(word) + 1):
        if any(word[begin:end] in known for begin in ends):
            ends.add(end)
    return len(word) in ends


class _Part:
    """One text, in which names are looked for before it is read."""

    __slots__ = ("_letters", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._letters: list[str] | None = None

    def may_hold(self, name: str) -> bool:
        """Whether the name stands in the text. Ends of lines, colours, tags and escapes may have parted or hidden it."""
        name, text = name[:_LONGEST_NAME], self.text
        if name in text:
            return True
        # The longest beginning that stands there has the shortest rest.
        least, most = 0, len(name)
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if name[:middle] in text else (least, middle)
        if least and name[least:] in text:
            return True
        if self._letters is None:
            self._letters = list(_letters_of(text))
        return any(name in one for one in self._letters)


def _letters_of(text: str) -> Iterator[str]:
    yield _NO_LETTERS.sub("", text)
    if "\x1b" in text:  # a mark that they part is no tag
        yield _NO_LETTERS.sub("", _COLOURS.sub("", text))
    if "<" in text or "&lt;" in text or "\x1b" in text or "\\u003c" in text:
        yield _NO_LETTERS.sub("", _MARKUP.sub("", text))
    if hidden := hidden_parts(text):
        # A line's end may part an escape.
        for read in (without_escapes(hidden), without_escapes(_LINE_ENDS.sub("", hidden))):
            yield read
            yield _NO_LETTERS.sub("", read)
            yield _NO_LETTERS.sub("", _MARKUP.sub("", read))


class Readings:
    """The texts, and all the ways in which they are read."""

    __slots__ = ("_held", "_parts", "_read", "_readings", "_selected", "_short", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._parts = [_Part(text) for text in texts]
        self._short = _Part("".join([text for text in texts if len(text) <= _SHORT]))
        self._held: dict[str, bool] = {}  # by the name
        self._selected: dict[str, tuple[int, ...]] = {}  # by the name
        self._read: dict[tuple[int, int], str] = {}  # by the number of the text and of the breaks
        self._readings: dict[
            tuple[int, tuple[int, ...]], ReadText
        ] = {}  # by the number of the breaks, and those of the texts

    def knows(self, name: str) -> bool:
        return name in self._held

    def may_hold(self, name: str) -> bool:
        """Whether the name stands in one of the texts, or begins in one page and ends in the next."""
        if (is_held := self._held.get(name)) is None:
            long = [part for part in self._parts if len(part.text) > _SHORT]
            is_held = self._held[name] = any(part.may_hold(name) for part in (self._short, *long))
        return is_held

    def has_read(self, number: int, *, name: str) -> bool:
        return (number, self._selected.get(name)) in self._readings

    def read(self, number: int, *, name: str) -> ReadText:
        """The texts around the name without escapes, and before that without `BREAKS[number]`."""
        if (selected := self._selected.get(name)) is None:
            selected = self._selected[name] = tuple(self._around(name))
        if (reading := self._readings.get((number, selected))) is None:
            reading = self._readings[number, selected] = ReadText(self._join(number, selected))
        return reading

    def _around(self, name: str) -> Iterator[int]:
        """The texts that may hold the name and those behind, in which a block may end that begins there; short ones always."""
        near = 0
        for at, part in enumerate(self._parts):
            near = _MOST_PAGES if part.may_hold(name) else near - 1
            if near >= 0 or len(part.text) <= _SHORT:
                yield at

    def _join(self, number: int, selected: tuple[int, ...]) -> str:
        breaks = BREAKS[number]
        if breaks is None:
            return "\n".join([self._read_part(number, at) for at in selected])
        if not any(breaks.search(self.texts[at]) for at in selected):
            return ""
        return "".join([self._read_part(number, at) for at in selected])

    def _read_part(self, number: int, at: int) -> str:
        if (text := self._read.get((number, at))) is None:
            text, breaks = self.texts[at], BREAKS[number]
            if breaks is not None:
                text = _LINE_ENDS.sub("", breaks.sub("", text))
            text = self._read[number, at] = _without_escapes(text)
        return text


def _without_escapes(text: str) -> str:
    """The same, and no barrier comes from an escape."""
    return BARRIER.join([without_escapes(one).replace(BARRIER, " ") for one in text.split(BARRIER)])


# The texts that were said to the model: messages of the user, tool results, files, and what calls had for arguments.
_NO_TEXT = ("image/", "audio/", "video/", "application/pdf")
_TEXT_AFTER_ALL = ("+xml", "+json", "+yaml")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def told_by(message: Message) -> Iterator[str]:
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
    if data is None or not _is_text(part.media_type):
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


def _is_text(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return kind.endswith(_TEXT_AFTER_ALL) or not kind.startswith(_NO_TEXT)


_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w*")
_HEAD = 4_096  # characters of the block that are read before the whole is
_ENOUGH = 4  # tokens of them
# Steps for all blocks of a response, many times what texts without malice need. A text that is made to cost much uses them up.
# Then a block counts as quoted, as it does wherever it is in doubt.
_MOST_STEPS = 200_000
_STEPS_A_CHARACTER = 1
# Characters for which one step counts: to look for a name, to read a text, to find where blocks may begin.
_LOOK, _READ, _BEGIN = 64, 16, 32


class Quotations:
    """The texts of the user's messages and of tool results, files that were read among them, and what the model itself wrote into
    the arguments of its calls, such as a page about calls. Nothing is looked at before the first block asks."""

    __slots__ = ("_length", "_looked", "_messages", "_parts", "_quoted", "_readings", "_tools", "steps")

    def __init__(self, messages: Sequence[Message], *, tools: OfferedTools) -> None:
        self._messages = messages
        self._tools = tools
        self._parts: list[str] = []
        self._length = 0  # of all of them, and of the blocks that have asked
        self._quoted: dict[str, QuotedCalls] = {}  # by the marker
        self._readings: dict[str, Readings] = {}  # by the marker without whose calls these are
        self._looked = 0  # steps for what is found out once for all blocks
        self.steps = 0  # tokens that were compared so far

    def hold(self, block: str) -> bool:
        """Whether the block stands in one of them, or begins in one page of a file and ends in the next."""
        if (fence := _FENCE.match(block)) is not None:
            block = block[fence.end() :]
        head = tokens_of(without_escapes(block[:_HEAD]))
        if len(head) < _ENOUGH and len(block) > _HEAD:
            head = tokens_of(without_escapes(block))
        if not any(map(is_word, head)):
            return False
        if not self._parts:
            self._parts = [without_barriers(part) for message in self._messages for part in told_by(message)]
            self._length = sum(map(len, self._parts))
            self._readings[""] = Readings(self._parts)
        self._length += len(block)
        name = _name_of(block, head=head)
        if not self._may_hold(name):
            return False
        told = self._what_is_not_quoted(block)
        return told is None or self._stands_in(self._readings_of(told), block=block, head=head, name=name)

    @property
    def _left(self) -> int:
        return _MOST_STEPS + _STEPS_A_CHARACTER * self._length - self.steps - self._looked

    def _may_hold(self, name: str) -> bool:
        """Whether the name stands in the texts, or nobody can look any more."""
        readings = self._readings[""]
        if not readings.knows(name):
            if self._left < 0:
                return True
            self._looked += self._length // _LOOK
        return readings.may_hold(name)

    def _what_is_not_quoted(self, block: str) -> str | None:
        """The marker without whose calls the texts are compared, because all of these are other calls, or "". None where each of
        the block's calls is one of them."""
        found = calls_of(block, tools=self._tools)
        mark = MARKERS.match(block)
        if found is None or mark is None:
            return ""
        marker = mark.group()
        if (quoted := self._quoted.get(marker)) is None:
            quoted = self._quoted[marker] = QuotedCalls(self._parts, syntax=BY_MARKER[marker], tools=self._tools)
        syntax = found.syntax or BY_MARKER[marker].name
        are_quoted = [quoted.has(call, syntax=syntax) for call in found.calls]
        if all(are_quoted):
            return None
        return "" if any(are_quoted) else marker

    def _readings_of(self, told: str) -> Readings:
        if (readings := self._readings.get(told)) is None:
            others = self._quoted[told].others
            readings = self._readings[told] = self._readings[""] if others == self._parts else Readings(others)
        return readings

    def _stands_in(self, readings: Readings, *, block: str, head: Sequence[str], name: str) -> bool:
        read, words = "", []
        for number in range(len(BREAKS)):
            if not readings.has_read(number, name=name):
                if self._left < 0:
                    return True
                self._looked += self._length // _READ
            reading = readings.read(number, name=name)
            if not reading.knows(head):
                self._looked += len(reading.text) // _BEGIN
            if not (begins := reading.find_beginnings(head)):
                continue
            if not read:
                read = without_escapes(block.replace(LINE_END[1:], "").replace("\n", LINE_END))
                words = inner_words_of(read)
            if not reading.has_pieces_of(words):
                continue
            comparison = BlockComparison(read, reading.text)
            is_quoted = comparison.finds(begins, most=self._left)
            self.steps += comparison.steps
            if is_quoted:
                return True
        return False


def _name_of(block: str, *, head: Sequence[str]) -> str:
    """A word by which the block is looked for: of its marker, so that a syntax has few of them, or of its beginning."""
    mark = MARKERS.match(block)
    words = list(filter(is_word, tokens_of(mark.group()) if mark is not None else ()))
    return max(words or filter(is_word, head[:_ENOUGH]), key=len, default="")
