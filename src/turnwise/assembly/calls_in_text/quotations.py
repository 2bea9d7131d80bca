"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with anything between its lines: numbers, paths, authors, the marks of a diff or of a table, the members
of JSON records. A server may escape it, and a model leaves such things out when it quotes. So both sides are read without
escapes, and compared by their words and brackets. That errs to the side of text: of two blocks that differ only in other marks,
or in lines between, the second does not run either.
"""

import codecs
import re
from collections.abc import Iterator, Sequence

from turnwise.assembly.calls_in_text.comparison import BARRIER, LINE_END, Comparison, beginning_of, is_word, tokens_of
from turnwise.assembly.calls_in_text.escapes import without_escapes
from turnwise.assembly.calls_in_text.quoted_calls import QuotedCalls, calls_of, without_barriers
from turnwise.assembly.calls_in_text.syntaxes import BY_MARKER, MARKERS
from turnwise.assembly.calls_in_text.tools import OfferedTools
from turnwise.vocab import File, Message, ProviderItem, Text, ToolCall, ToolResult

_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w*")
_LINE_ENDS = re.compile(r"[\r\n]+")
# Lines may have been broken anywhere, within an escape too. Quoted-printable and `sed -n l` mark such breaks.
_BREAKS = (None, _LINE_ENDS, re.compile(r"[=\\]\r?\n"))
_HEAD = 4_096  # characters of the block that are read before the whole is
_ENOUGH = 4  # tokens of them
_LONGEST_NAME = 64  # characters by which it is looked for
_NO_LETTERS = re.compile(r"[\W\d]+")
_MARKUP = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|(?:<|&lt;|\\u003c)[^<>&\\]{0,200}(?:>|&gt;|\\u003e)")
_SHORT = 20_000  # characters that are read whatever stands in them
_MOST_PAGES = 2  # in which a block goes on
_NO_TEXT = ("image/", "audio/", "video/", "application/pdf")
_TEXT_AFTER_ALL = ("+xml", "+json", "+yaml")
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

    __slots__ = ("_messages", "_parts", "_quoted", "_texts", "_tools", "steps")

    def __init__(self, messages: Sequence[Message], *, tools: OfferedTools) -> None:
        self._messages = messages
        self._tools = tools
        self._parts: list[str] = []
        self._quoted: dict[str, QuotedCalls] = {}  # by the marker
        self._texts: dict[tuple[str, re.Pattern[str] | None, str], str] = {}  # as they were read
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
            self._parts = [without_barriers(part) for message in self._messages for part in _told(message)]
        name = max(filter(is_word, head[:_ENOUGH]), key=len, default="")
        if not _may_hold("".join(self._parts), name):
            return False
        told = self._what_is_not_quoted(block)
        return told is None or self._stands_in(told, block=block, head=head, name=name)

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

    def _stands_in(self, told: str, *, block: str, head: Sequence[str], name: str) -> bool:
        beginning, read = beginning_of(head), ""
        for breaks in _BREAKS:
            text = self._read(told, breaks=breaks, name=name)
            if beginning.search(text) is not None:
                read = read or without_escapes(block.replace(LINE_END[1:], "").replace("\n", LINE_END))
                comparison = Comparison(read, text)
                is_quoted = comparison.finds(beginning)
                self.steps += comparison.steps
                if is_quoted:
                    return True
        return False

    def _read(self, told: str, *, breaks: re.Pattern[str] | None, name: str) -> str:
        """The texts without escapes, and before that without such breaks of lines; these only if the name is in them, because
        escaping leaves letters as they are."""
        key = told, breaks, name
        if (text := self._texts.get(key)) is None:
            text = self._texts[key] = self._read_anew(told, breaks=breaks, name=name)
        return text

    def _read_anew(self, told: str, *, breaks: re.Pattern[str] | None, name: str) -> str:
        parts = list(_around(self._quoted[told].others if told else self._parts, name=name))
        if breaks is None:
            return "\n".join(map(_without_escapes, parts))
        if not any(breaks.search(part) for part in parts):
            return ""
        joined = [_LINE_ENDS.sub("", breaks.sub("", part)) for part in parts]
        return "".join(map(_without_escapes, joined)) if name in "".join(joined) else ""


def _without_escapes(text: str) -> str:
    """The same, and no barrier comes from an escape."""
    return BARRIER.join([without_barriers(without_escapes(one)) for one in text.split(BARRIER)])


def _may_hold(text: str, name: str) -> bool:
    """Whether the name stands in the text. Ends of lines, colours and tags may have parted it."""
    name = name[:_LONGEST_NAME]
    if name in text or any(name[:at] in text and name[at:] in text for at in range(1, len(name))):
        return True
    return name in _NO_LETTERS.sub("", text) or name in _NO_LETTERS.sub("", _MARKUP.sub("", text))


def _around(parts: Sequence[str], *, name: str) -> Iterator[str]:
    """The texts that may hold the name and those behind, in which a block may end that begins there; short ones always."""
    near = 0
    for part in parts:
        near = _MOST_PAGES if _may_hold(part, name) else near - 1
        if near >= 0 or len(part) <= _SHORT:
            yield part


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
