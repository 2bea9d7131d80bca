"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with anything between its lines: numbers, paths, authors, the marks of a diff or of a table, the members
of JSON records. A server may escape it, and a model leaves such things out when it quotes. So both sides are read without
escapes, and compared by their words and brackets. That errs to the side of text: of two blocks that differ only in other marks,
or in lines between, the second does not run either.
"""

import codecs
import re
from collections.abc import Iterator, Sequence

from turnwise.assembly.calls_in_text.comparison import LINE_END, Comparison, beginning_of, is_word, tokens_of
from turnwise.assembly.calls_in_text.escapes import without_escapes
from turnwise.vocab import File, Message, ProviderItem, Text, ToolCall, ToolResult

_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*\w*")
_LINE_ENDS = re.compile(r"[\r\n]+")
# Lines may have been broken anywhere, within an escape too. Quoted-printable and `sed -n l` mark such breaks.
_BREAKS = (None, _LINE_ENDS, re.compile(r"[=\\]\r?\n"))
_HEAD = 4_096  # characters of the block that are read before the whole is
_ENOUGH = 4  # tokens of them
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

    __slots__ = ("_messages", "_texts", "_told", "steps")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts: dict[re.Pattern[str] | None, str] = {}  # as they were read
        self._told = ""  # all of them
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
        beginning, read = beginning_of(head), ""
        name = max(filter(is_word, head[:_ENOUGH]), key=len, default="")
        for breaks in _BREAKS:
            text = self._read(breaks, name=name)
            if beginning.search(text) is not None:
                read = read or without_escapes(block.replace(LINE_END[1:], "").replace("\n", LINE_END))
                comparison = Comparison(read, text)
                is_quoted = comparison.finds(beginning)
                self.steps += comparison.steps
                if is_quoted:
                    return True
        return False

    def _read(self, breaks: re.Pattern[str] | None, *, name: str) -> str:
        """The texts without escapes, and before that without such breaks of lines; these only if the name is in them, because
        escaping leaves letters as they are."""
        if not self._told:
            self._told = "\n".join([one for message in self._messages for one in _told(message)])
        if breaks is not None and (breaks.search(self._told) is None or name not in self._joined(breaks)):
            return ""
        if (text := self._texts.get(breaks)) is None:
            text = self._texts[breaks] = without_escapes(self._told if breaks is None else self._joined(breaks))
        return text

    def _joined(self, breaks: re.Pattern[str]) -> str:
        return _LINE_ENDS.sub("", breaks.sub("", self._told))


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
