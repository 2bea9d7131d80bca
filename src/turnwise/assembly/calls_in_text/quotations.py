"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may show a file with line numbers, with a path before each line, as a diff or as a comment, a server may escape it, and a
model leaves such things out when it quotes. So both sides are compared without them. That errs to the side of text: of two blocks
that differ in nothing else, the second does not run either.
"""

import html
import re
from collections.abc import Iterator, Sequence

from turnwise.vocab import File, Message, Text, ToolCall, ToolResult

# What stands before the lines of a file that is shown: their number (`cat -n`, most tools), or the path and it (`rg`, `grep -n`).
_NUMBERS = re.compile(r"(?m)^(?:[ \t>+#*/;%!│|-]*(?:[^\s:]{1,256}[:-])?\d+(?:\t|[ \t]*[|:│→)-]))+")
_CODES = re.compile(r"\\+u([0-9a-fA-F]{4})")
_BREAKS = re.compile(r"\\+[nr]")
_TABS = re.compile(r"\\+t")
_LEFT_OUT = re.compile(r"[\s\\>+#*/;%!│|→-]+")
_NO_TEXT = ("image/", "audio/", "video/", "application/pdf")


class Quotations:
    """The texts of the user's messages and of tool results, files that were read among them, and what the model itself wrote into
    the arguments of its calls, such as a page about calls. Nothing is looked at before the first block asks."""

    __slots__ = ("_messages", "_texts")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts: list[str] | None = None

    def hold(self, block: str) -> bool:
        """Whether the block stands in one of them."""
        if self._texts is None:
            self._texts = [_bare("\n".join(_told(message))) for message in self._messages]
        searched = _bare(block)
        return bool(searched) and any(searched in text for text in self._texts)


def _told(message: Message) -> Iterator[str]:
    for part in message.parts:
        match part:
            case ToolResult(content=content):
                yield from [_text(one) for one in content]
            case Text() | File() if message.role == "user":
                yield _text(part)
            case ToolCall(arguments=arguments):
                yield arguments
            case _:
                pass


def _text(part: Text | File) -> str:
    if isinstance(part, Text):
        return part.text
    if part.data is None or part.media_type.startswith(_NO_TEXT):
        return ""
    return part.data.decode(errors="replace")


def _bare(text: str) -> str:
    if "\\u" in text:
        text = _CODES.sub(lambda found: chr(int(found.group(1), 16)), text)
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _TABS.sub("\t", _BREAKS.sub("\n", text))
    return _LEFT_OUT.sub("", _NUMBERS.sub("", text))
