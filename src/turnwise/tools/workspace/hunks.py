"""Hunks of a patch applied to a text: where each stands, and what the lines are afterwards."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec

from turnwise.errors import ToolFault
from turnwise.tools.workspace.near_matches import composed_otherwise, near_misses
from turnwise.tools.workspace.patches import Hunk

LINES_TOLD = 10
MAX_COMPARED = 20_000_000  # lines, a few seconds: thousands of hunks that fit everywhere
# What models write for another: typographic dashes, quotes and spaces (codex-rs/apply-patch/src/seek_sequence.rs has such too).
_PLAIN = str.maketrans("‐‑‒–—―−‘’‚‛“”„‟\u00a0\u2002\u2003\u2009\u202f\u3000", "-------''''\"\"\"\"      ")

LineReading = Callable[[str], str]


class Patched(msgspec.Struct, frozen=True):
    """The text afterwards, and which hunks (counted from 1) matched only apart from blanks at line ends or typography."""

    text: str
    inexact: tuple[int, ...]


def apply_hunks(text: str, hunks: tuple[Hunk, ...], *, name: str) -> Patched:
    """Each in its order. Raises ToolFault where one stands nowhere, or in several places, with what stands there."""
    lines = text.split("\n")  # each without its end but for the `\r` of a Windows file
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    bare = _Lines([line.removesuffix("\r") for line in lines] if "\r" in text else lines, hunks=hunks)
    if not ends_with_newline and len(lines) > 1 and lines[-2].endswith("\r"):
        lines[-1] += "\r"  # as it must end where a line comes behind it
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
        replaced: list[str] = []
        for sign, line in hunk.lines:
            if sign == "+":
                result.append(line + _end_for_new(lines, at=cursor, replaced=replaced))
                continue
            if sign == " ":
                result.append(lines[cursor])  # as it stands there, not as the patch has it
                replaced = []
            else:
                replaced.append(lines[cursor])
            cursor += 1
        if hunk.ends_with_newline is not None:
            ends_with_newline = hunk.ends_with_newline
    result += lines[cursor:]
    if result and ends_with_newline:
        result.append("")
    elif result:
        result[-1] = result[-1].removesuffix("\r")
    return Patched("\n".join(result), tuple(inexact))


def _end_for_new(lines: Sequence[str], *, at: int, replaced: list[str]) -> str:
    """A new line ends as the line whose place it takes, or as that before which it stands; behind the last, as that does."""
    beside = next(iter(replaced or lines[at : at + 1] or lines[-1:]), "")
    if len(replaced) > 1:
        replaced.pop(0)
    return "\r" if beside.endswith("\r") else ""


class _Lines:
    """The lines of a file, and where each that a hunk names stands: found once for all hunks, as a patch may have thousands."""

    def __init__(self, bare: list[str], *, hunks: tuple[Hunk, ...]) -> None:
        self.bare = bare
        self._sought = [line for hunk in hunks for line in (*hunk.old, *hunk.anchors)]
        self._read: dict[LineReading, list[str]] = {_same: bare}
        self._places: dict[LineReading, dict[str, list[int]]] = {}
        self._compared = 0

    def places(self, line: str, *, plain: LineReading) -> list[int]:
        """Where a line that reads like this one, of a hunk, stands, from the top."""
        if plain not in self._places:
            found: dict[str, list[int]] = {plain(one): [] for one in self._sought}
            lines = self._read_by(plain)
            for place in [place for place, one in enumerate(lines) if one in found]:
                found[lines[place]].append(place)
            self._places[plain] = found
        return self._places[plain][line]

    def matches(self, old: Sequence[str], *, plain: LineReading, start: int, where: str) -> list[int]:
        """Where all of the lines stand, by that line of them that is rarest. Raises ToolFault where looking takes too long."""
        lines, sought = self._read_by(plain), [plain(line) for line in old]
        known = [self.places(line, plain=plain) for line in sought]
        rarest = min(range(len(sought)), key=lambda at: len(known[at]))
        found: list[int] = []
        for place in known[rarest][bisect_left(known[rarest], start + rarest) :]:
            if lines[place - rarest : place - rarest + len(sought)] == sought:
                found.append(place - rarest)
            self.spend(len(sought), where=where)
        return found

    def _read_by(self, plain: LineReading) -> list[str]:
        if plain not in self._read:
            self._read[plain] = [plain(line) for line in self.bare]
        return self._read[plain]

    def spend(self, lines: int, *, where: str) -> None:
        self._compared += lines
        if self._compared > MAX_COMPARED:
            raise ToolFault(
                f"{where}: its lines stand in too many places to look at all of them: give fewer hunks at once, with lines "
                "that are not everywhere, or write the file anew. Nothing was changed"
            )


def _place(lines: _Lines, hunk: Hunk, *, cursor: int, where: str) -> tuple[int, bool]:
    """The line (from 0) where it begins, and whether it stands there exactly."""
    bare = lines.bare
    for anchor in hunk.anchors:
        cursor = _anchor(lines, anchor, cursor=cursor, where=where)
    old = hunk.old
    if not old:
        if hunk.line:
            return min(hunk.line, len(bare)), True
        return (cursor + 1 if hunk.anchors else len(bare)), True
    for exact, plain in ((True, _same), (False, str.rstrip), (False, _typed)):
        found = lines.matches(old, plain=plain, start=cursor, where=where)
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
    if earlier := lines.matches(old, plain=_same, start=0, where=where):
        at_end = " and not at the end" if hunk.at_end else ", before the hunk above it (hunks go from top to bottom)"
        raise ToolFault(f"{where} stands in line {earlier[0] + 1}{at_end}. Nothing was changed")
    raise ToolFault(f"{where} does not fit. {near_misses(chr(10).join(bare), chr(10).join(old))}\nNothing was changed")


def _anchor(lines: _Lines, anchor: str, *, cursor: int, where: str) -> int:
    for plain in (_same, str.strip):
        places = lines.places(plain(anchor), plain=plain)
        if (at := bisect_left(places, cursor)) < len(places):
            return places[at]
    for number in range(cursor, len(lines.bare)):
        lines.spend(1, where=where)
        if anchor in lines.bare[number]:  # models shorten it: `@@ class A` for `class A(B):`
            return number
    said = composed_otherwise("\n".join(lines.bare), anchor)
    raise ToolFault(
        f"{where}: its `@@ {anchor}` is no line below line {cursor}. {f'{said} ' if said else ''}Nothing was changed"
    )


def _same(line: str) -> str:
    return line


def _typed(line: str) -> str:
    return line.translate(_PLAIN).rstrip()
