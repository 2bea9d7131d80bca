"""Hunks of a patch applied to a text: where each stands, and what the lines are afterwards."""

import re

import msgspec

from turnwise.drivers.workspace.near import near_misses
from turnwise.drivers.workspace.patches import Hunk
from turnwise.errors import ToolFault

LINES_TOLD = 10
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# What models write for another: typographic dashes, quotes and spaces (codex-rs/apply-patch/src/seek_sequence.rs has such too).
_PLAIN = str.maketrans("‐‑‒–—―−‘’‚‛“”„‟\u00a0\u2002\u2003\u2009\u202f\u3000", "-------''''\"\"\"\"      ")


class Patched(msgspec.Struct, frozen=True):
    """The text afterwards, and which hunks (counted from 1) matched only apart from blanks at line ends or typography."""

    text: str
    inexact: tuple[int, ...]


def apply_hunks(text: str, hunks: tuple[Hunk, ...], *, name: str) -> Patched:
    """Each in its order. Raises ToolFault where one stands nowhere, or in several places, with what stands there."""
    lines = _LINE.findall(text)
    bare = [line.removesuffix("\n").removesuffix("\r") for line in lines]
    windows = 0 < text.count("\r\n") == text.count("\n")
    end = "\r\n" if windows else "\n"
    ends_with_newline = text.endswith("\n") or not text
    result: list[str] = []
    inexact: list[int] = []
    cursor = 0
    for number, hunk in enumerate(hunks, start=1):
        where = f"hunk {number} of {len(hunks)} for `{name}`" if len(hunks) > 1 else f"the hunk for `{name}`"
        start, exact = _place(bare, hunk, cursor=cursor, where=where)
        if not exact:
            inexact.append(number)
        result += lines[cursor:start]
        cursor = start
        for sign, line in hunk.lines:
            if sign == "+":
                result.append(line + end)
            else:
                if sign == " ":
                    result.append(lines[cursor])  # as it stands there, not as the patch has it
                cursor += 1
        if hunk.ends_with_newline is not None:
            ends_with_newline = hunk.ends_with_newline
    result += lines[cursor:]
    whole = [line if line.endswith("\n") else line + end for line in result]
    if whole and not ends_with_newline:
        whole[-1] = whole[-1].removesuffix("\n").removesuffix("\r")
    return Patched("".join(whole), tuple(inexact))


def _place(bare: list[str], hunk: Hunk, *, cursor: int, where: str) -> tuple[int, bool]:
    """The line (from 0) where it begins, and whether it stands there exactly."""
    for anchor in hunk.anchors:
        cursor = _anchor(bare, anchor, cursor=cursor, where=where)
    old = hunk.old
    if not old:
        if hunk.line:
            return min(hunk.line, len(bare)), True
        return (cursor + 1 if hunk.anchors else len(bare)), True
    for exact, plain in ((True, _same), (False, str.rstrip), (False, _typed)):
        sought = [plain(line) for line in old]
        found = _matches([plain(line) for line in bare], sought, start=cursor)
        if hunk.at_end:
            found = [start for start in found if start + len(old) == len(bare)]
        if len(found) > 1 and hunk.line - 1 in found:
            found = [hunk.line - 1]
        if len(found) == 1 or (found and hunk.anchors):
            return found[0], exact
        if found:
            told = ", ".join(str(start + 1) for start in found[:LINES_TOLD])
            raise ToolFault(
                f"{where} stands in {len(found)} places (lines {told}): add lines around it, or an `@@` line that names "
                f"the function above it. Nothing was changed"
            )
    if earlier := _matches(bare, old, start=0):
        at_end = " and not at the end" if hunk.at_end else ", before the hunk above it (hunks go from top to bottom)"
        raise ToolFault(f"{where} stands in line {earlier[0] + 1}{at_end}. Nothing was changed")
    raise ToolFault(f"{where} does not fit. {near_misses(chr(10).join(bare), chr(10).join(old))}\nNothing was changed")


def _anchor(bare: list[str], anchor: str, *, cursor: int, where: str) -> int:
    for plain in (_same, str.strip):
        for number in range(cursor, len(bare)):
            if plain(bare[number]) == plain(anchor):
                return number
    for number in range(cursor, len(bare)):
        if anchor in bare[number]:  # models shorten it: `@@ class A` for `class A(B):`
            return number
    raise ToolFault(f"{where}: its `@@ {anchor}` is no line below line {cursor}. Nothing was changed")


def _matches(lines: list[str], sought: list[str], *, start: int) -> list[int]:
    first, count = sought[0], len(sought)
    return [
        place
        for place in range(start, len(lines) - count + 1)
        if lines[place] == first and lines[place : place + count] == sought
    ]


def _same(line: str) -> str:
    return line


def _typed(line: str) -> str:
    return line.translate(_PLAIN).rstrip()
