"""Text for a terminal: no control characters from strangers, colours only where they are wanted."""

import os
import re
import sys
from typing import TextIO

# Everything that could move the cursor, recolour or retitle a terminal or turn text around, and half characters, which
# cannot be written; newline and tab stay.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def clean(text: str) -> str:
    """The text without control characters: a model's or a provider's words cannot drive the terminal."""
    return CONTROL.sub("", text)


def visible(text: str) -> str:
    """The text with everything that a terminal would not show as itself spelled out, for what a person is to judge: nothing
    in it can hide. Line ends and tabs stay."""
    return "".join([char if char in "\n\t" or char.isprintable() else _escaped(char) for char in text])


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def has_colour(stream: TextIO) -> bool:
    """Source: no-color.org; FORCE_COLOR is its counterpart."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def style(text: str, *styles: str, stream: TextIO | None = None) -> str:
    if not has_colour(stream or sys.stdout):
        return text
    return f"\x1b[{';'.join(STYLES[name] for name in styles)}m{text}\x1b[0m"


def shortened(text: str, *, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
