"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with anything between its lines: numbers, paths, authors, the marks of a diff or of a table, the members
of JSON records. A server may escape it, and a model leaves such things out when it quotes. So both sides are read without
escapes, and compared by their words and brackets. That errs to the side of text: of two blocks that differ only in other marks,
or in lines between, the second does not run either.
"""

import codecs
import re
from collections.abc import Iterator, Sequence

from turnwise.assembly.text_calls.comparison import LINE_END, BlockComparison, inner_words_of, is_word, tokens_of
from turnwise.assembly.text_calls.escapes import without_escapes
from turnwise.assembly.text_calls.quoted_calls import QuotedCalls, calls_of, without_barriers
from turnwise.assembly.text_calls.readings import BREAKS, Readings
from turnwise.assembly.text_calls.syntaxes import BY_MARKER, MARKERS
from turnwise.assembly.text_calls.tools import OfferedTools
from turnwise.vocab import File, Message, ProviderItem, Text, ToolCall, ToolResult

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
