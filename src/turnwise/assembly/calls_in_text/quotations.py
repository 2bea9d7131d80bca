"""What was said to the model before: a block that stands there is quoted, and no call.

A tool may number the lines of what it shows, a server may escape it, and a model leaves such things out when it quotes. So both
sides are compared without blanks, line numbers and escapes.
"""

import html
import re
from collections.abc import Sequence

from turnwise.vocab import Message, Text, ToolResult

_NUMBERS = re.compile(r"(?m)^[ \t]*\d+(?:\t|[ \t]*[|:│→])")
_CODES = re.compile(r"\\+u([0-9a-fA-F]{4})")
_ESCAPED_BLANKS = re.compile(r"\\+[nrt]")
_LEFT_OUT = re.compile(r"[\s\\>]+")


class Quotations:
    """The texts of the user's messages and of tool results, files that were read among them. Nothing is looked at before the
    first block asks."""

    __slots__ = ("_messages", "_texts")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts: list[str] | None = None

    def hold(self, block: str) -> bool:
        """Whether the block stands in one of them."""
        if self._texts is None:
            self._texts = [_bare(text) for message in self._messages for text in _told(message)]
        searched = _bare(block)
        return bool(searched) and any(searched in text for text in self._texts)


def _told(message: Message) -> list[str]:
    found: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            found += [one.text for one in part.content if isinstance(one, Text)]
        elif isinstance(part, Text) and message.role == "user":
            found.append(part.text)
    return ["\n".join(found)] if found else []


def _bare(text: str) -> str:
    if "\\u" in text:
        text = _CODES.sub(lambda found: chr(int(found.group(1), 16)), text)
    if "&" in text:
        text = html.unescape(text)
    if "\\" in text:
        text = _ESCAPED_BLANKS.sub(" ", text)
    return _LEFT_OUT.sub("", _NUMBERS.sub("", text))
