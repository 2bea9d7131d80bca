"""Text for a terminal: no control or hidden characters from strangers, colours only where they are wanted."""

import os
import sys
from typing import TextIO

from turnwise.vocab.hidden_characters import shown, shown_answer, spelled, visible, visible_line

__all__ = [
    "clean",
    "clean_answer",
    "clean_line",
    "clean_row",
    "has_colour",
    "short_id",
    "shortened",
    "style",
    "visible",
    "visible_line",
]

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}

clean = shown  # a model's or a provider's words cannot drive the terminal, and nothing of them is hidden
clean_answer = shown_answer


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


def short_id(session: str) -> str:
    """The last letters of a session's id, which name the session in every command. Any caller may have chosen the id."""
    return visible_line(session[-8:])


def clean_line(text: str) -> str:
    """Any text as one safe line: each line end and each run of spaces becomes one space."""
    return " ".join(clean(text).split())


def clean_row(text: str) -> str:
    """Any text as one safe line: its blanks stay, and a line end is spelled out."""
    return clean(text).replace("\n", spelled("\n"))


def shortened(text: str, *, limit: int) -> str:
    """One line of at most `limit` characters."""
    line = clean_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"
