"""Markdown that comes line by line, divided into blocks: each line is looked at once, and no more than its beginning.

A judge of where blocks end, not of what is in them: a parser reads a block once it is finished. What this divides otherwise than
CommonMark does is rendered as two blocks, and loses nothing.
"""

import re
from typing import Literal

import msgspec

MarkdownKind = Literal["blank", "paragraph", "heading", "rule", "fence", "quote", "item", "code", "table"]

LOOKED_AT = 1000  # characters of a line: a longer one is text, whatever comes after them

_DIGITS = "0123456789"
_OF_ITEMS = "-*+" + _DIGITS
_STARTS = "#`~>_" + _OF_ITEMS
_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`]*|(~{3,}).*)$")
_CLOSING = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
_INNER_FENCE = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])?[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_QUOTE = re.compile(r" {0,3}>")
_ITEM = re.compile(r"( {0,3})([-*+]|[0-9]{1,9}[.)])([ \t]+|$)(.?)")
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


class MarkdownBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Whole lines that belong together, without their line ends. `head` are the lines that such a part of a fence or a table
    needs in front of it; `open` says that more of it follows."""

    kind: MarkdownKind
    lines: tuple[str, ...]
    head: tuple[str, ...] = ()
    open: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def source(self) -> str:
        """What a parser reads."""
        return "\n".join((*self.head, *self.lines))


class Blocks:
    """Takes one line after the other and gives the blocks that it finishes."""

    def __init__(self) -> None:
        self._kind: MarkdownKind | None = None
        self._lines: list[str] = []
        self._head: tuple[str, ...] = ()
        self._fence = ""  # what opened the fence at hand, or the one inside the item at hand
        self._offset = 0  # of an item: where its text begins
        self._blank = 0  # blank lines at the end of the block at hand
        self._size = 0

    @property
    def kind(self) -> MarkdownKind | None:
        return self._kind

    @property
    def size(self) -> int:
        """Characters of the block at hand."""
        return self._size

    @property
    def lines(self) -> list[str]:
        """Of the block at hand."""
        return self._lines

    def forget(self) -> None:
        """What has come of the block at hand is shown already and not wanted any more; it goes on all the same."""
        if self._kind in ("fence", "table"):
            self._head = self._head_of_next()
        self._lines, self._size = ([""] if self._lines else []), 0

    def take(self, line: str) -> list[MarkdownBlock]:
        start = line[:LOOKED_AT]
        if self._kind == "fence":
            self._add(line)
            return self._finish() if _closes(start, fence=self._fence) else []
        if not start.strip() and not line.strip():
            return self._take_blank(line)
        if self._kind == "item" and self._stays_in_item(start):
            self._add(line)
            return []
        if self._kind in ("paragraph", "quote", "code", "table") and self._goes_on(start):
            return self._continue(line, start)
        return [*self._finish(), *self._begin(line, start)]

    def cut(self) -> list[MarkdownBlock]:
        """What has come of a fence or a table, as a part; nothing if the block at hand cannot be divided."""
        if self._kind not in ("fence", "table") or not self._lines:
            return []
        part = MarkdownBlock(kind=self._kind, lines=tuple(self._lines), head=self._head, open=True)
        self._head, self._lines, self._size = self._head_of_next(), [], 0
        return [part]

    def close(self) -> list[MarkdownBlock]:
        """The text has ended: so has the block at hand."""
        return self._finish()

    def _take_blank(self, line: str) -> list[MarkdownBlock]:
        if self._kind in ("item", "code"):
            self._add(line)
            if not self._fence:
                self._blank += 1
            return []
        return [*self._finish(), MarkdownBlock(kind="blank", lines=("",))]

    def _begin(self, line: str, start: str) -> list[MarkdownBlock]:
        kind = _kind_of(start)
        self._kind, self._blank, self._fence, self._head = kind, 0, "", ()
        self._add(line)
        if kind in ("heading", "rule"):
            return self._finish()
        if kind == "fence" and (found := _FENCE.match(start)):
            self._fence = found[1] or found[2]
        elif kind == "item":
            self._offset = _offset_of(start)
            self._see_inner_fence(start)
        return []

    def _continue(self, line: str, start: str) -> list[MarkdownBlock]:
        """A further line of a paragraph (which may turn out to be a table or a heading), a quote, a table or indented code."""
        if self._kind == "paragraph":
            last = self._lines[-1]
            if "-" in start and len(line) < LOOKED_AT > len(last) and "|" in last and _DELIMITER.match(start):
                before = self._lines[:-1]
                done = [MarkdownBlock(kind="paragraph", lines=tuple(before))] if before else []
                self._kind, self._lines, self._size = "table", [last, line], len(last) + len(line)
                return done
            if _UNDERLINE.match(start):
                self._add(line)
                return self._finish()
        self._blank = 0
        self._add(line)
        return []

    def _goes_on(self, start: str) -> bool:
        """Whether a line that is not blank belongs to the paragraph, quote, code or table at hand."""
        kind = _kind_of(start)
        if self._kind == "code":
            return kind == "code"
        if self._kind == "quote":
            return kind in ("quote", "paragraph", "code")
        if self._kind == "paragraph" and kind == "rule":
            return _UNDERLINE.match(start) is not None
        if self._kind == "paragraph" and kind == "item":
            return not _interrupts(start)
        return kind in ("paragraph", "code")

    def _stays_in_item(self, start: str) -> bool:
        indent = len(start.expandtabs(4)) - len(start.expandtabs(4).lstrip(" "))
        if indent >= self._offset:
            self._blank = 0
            self._see_inner_fence(start)
            return True
        if self._fence or self._blank:
            return False
        return _kind_of(start) in ("paragraph", "code")

    def _see_inner_fence(self, start: str) -> None:
        if self._fence:
            found = re.match(r"[ \t]*(`{3,}|~{3,})[ \t]*$", start)
            if found and found[1].startswith(self._fence):
                self._fence = ""
        elif found := _INNER_FENCE.match(start):
            self._fence = found[1]

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line) + 1

    def _head_of_next(self) -> tuple[str, ...]:
        """What the next part needs in front of it: the line that opened the fence, or the names of the columns."""
        return self._head or tuple(self._lines[: 1 if self._kind == "fence" else 2])

    def _finish(self) -> list[MarkdownBlock]:
        if self._kind is None:
            return []
        done = MarkdownBlock(kind=self._kind, lines=tuple(self._lines), head=self._head)
        self._kind, self._lines, self._head, self._fence, self._size = None, [], (), "", 0
        self._blank = 0
        return [done]


def _kind_of(start: str) -> MarkdownKind:
    """What a line begins that stands by itself."""
    first = start.lstrip(" ")[:1]
    if start.startswith(("    ", "\t")):
        return "code"
    if not first or first not in _STARTS:
        return "paragraph"
    if first == "#" and _HEADING.match(start):
        return "heading"
    if first in "`~" and len(start) < LOOKED_AT and _FENCE.match(start):
        return "fence"
    if first == ">" and _QUOTE.match(start):
        return "quote"
    if first in "-*_" and len(start) < LOOKED_AT and _RULE.match(start):
        return "rule"
    if first in _OF_ITEMS and _ITEM.match(start):
        return "item"
    return "paragraph"


def _interrupts(start: str) -> bool:
    """Whether an item may begin right below a line of a paragraph: one with text, numbered 1 if it has a number."""
    found = _ITEM.match(start)
    return found is not None and bool(found[4]) and (found[2][0] not in _DIGITS or int(found[2][:-1]) == 1)


def _offset_of(start: str) -> int:
    found = _ITEM.match(start)
    assert found is not None, "it is an item"
    spaces = len(found[3].expandtabs(4))
    return len(found[1]) + len(found[2]) + (spaces if found[4] and 1 <= spaces <= 4 else 1)


def _closes(start: str, *, fence: str) -> bool:
    found = _CLOSING.match(start)
    return found is not None and found[1].startswith(fence)
