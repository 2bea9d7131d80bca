"""Which paths are guarded, which lie outside, and which patterns match a path. Text only: paths come in resolved.

What is secret and what runs later by itself stands in `guarded_names`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from turnwise.rules.guarded_names import is_secret, runs_later
from turnwise.rules.permission_facts import Access, PathFact

# Patterns with stars, matched in time linear in the text: a project's pattern must not hang turnwise.
#
# `re` goes back for each star, so thirty of them and a long name take for ever. Here all places in the pattern are followed at
# once, as bits of one number (Baeza-Yates and Gonnet, "A new approach to text searching", 1992).


FEW_STARS = 2  # `re` is at most quadratic then: some 0.1 s for the longest path


class Piece(msgspec.Struct, frozen=True):
    """One step of a pattern. `char` is the character that it takes; empty: any, or any but a slash if `in_name`. `repeats`: any
    number of them, none included. `skips`: it and so many pieces behind it may be left out."""

    char: str = ""
    in_name: bool = False
    repeats: bool = False
    skips: int = 0


class Glob:
    """A pattern, ready to be matched with whole texts."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)
        self._regex = _regex(self._pieces) if sum(piece.repeats for piece in pieces) <= FEW_STARS else None
        self._any = _bits([not piece.char and not piece.in_name for piece in pieces])
        self._name = _bits([not piece.char and piece.in_name for piece in pieces])
        self._repeats = _bits([piece.repeats for piece in pieces])
        self._chars: dict[str, int] = {}
        for at, piece in enumerate(pieces):
            if piece.char:
                self._chars[piece.char] = self._chars.get(piece.char, 0) | 1 << at
        self._skips = [(1 << at, piece.skips) for at, piece in enumerate(pieces) if piece.skips]

    def fits(self, text: str) -> bool:
        """Whether all of the text is what the pattern says."""
        if self._regex is not None:
            return self._regex.fullmatch(text) is not None
        return self.fits_linearly(text)

    def fits_linearly(self, text: str) -> bool:
        """The same without `re`."""
        open_places = self._closed(1)
        for char in text:
            takes = self._chars.get(char, 0) | self._any | (self._name if char != "/" else 0)
            taken = open_places & takes
            open_places = self._closed((taken & ~self._repeats) << 1 | taken & self._repeats)
            if not open_places:
                return False
        return bool(open_places >> len(self._pieces) & 1)

    def _closed(self, places: int) -> int:
        """With the places that are reached by leaving out what may be left out."""
        while True:
            found = places | (places & self._repeats) << 1
            for bit, count in self._skips:
                if found & bit:
                    found |= bit << count + 1
            if found == places:
                return found
            places = found


def _bits(which: Sequence[bool]) -> int:
    return sum(1 << at for at, one in enumerate(which) if one)


def _regex(pieces: Sequence[Piece]) -> re.Pattern[str]:
    closes: dict[int, int] = {}
    parts: list[str] = []
    for at, piece in enumerate(pieces):
        if piece.skips:
            parts.append("(?:")
            closes[at + piece.skips] = closes.get(at + piece.skips, 0) + 1
        parts.append(re.escape(piece.char) if piece.char else "[^/]" if piece.in_name else ".")
        parts.append("*" if piece.repeats else "")
        parts.append(")?" * closes.get(at, 0))
    return re.compile("".join(parts), re.DOTALL)


@lru_cache(maxsize=512)
def word_glob(pattern: str) -> Glob:
    """`*` and `?` stand for anything; a backslash takes the next character as it is."""
    pieces: list[Piece] = []
    for found in re.finditer(r"\\(.)|\*+|.", pattern, re.DOTALL):
        if found[1]:
            pieces.append(Piece(found[1]))
        elif found[0][0] == "*":
            pieces.append(Piece(repeats=True))
        else:
            pieces.append(Piece("" if found[0] == "?" else found[0]))
    return Glob(pieces)


@lru_cache(maxsize=512)
def path_glob(pattern: str) -> Glob:
    """Of an absolute pattern: `*` and `?` stay within a name, `**` spans folders, `x/**` is x as well."""
    pieces: list[Piece] = []
    for found in re.finditer(r"\\(.)|/\*\*/|/\*\*$|\*\*|\*|\?|.", pattern, re.DOTALL):
        match found[0]:
            case "/**/":
                pieces += [Piece("/"), Piece(repeats=True, skips=1), Piece("/")]
            case "/**":
                pieces += [Piece("/", skips=1), Piece(repeats=True)]
            case "**":
                pieces.append(Piece(repeats=True))
            case "*":
                pieces.append(Piece(in_name=True, repeats=True))
            case "?":
                pieces.append(Piece(in_name=True))
            case char:
                pieces.append(Piece(found[1] or char))
    return Glob(pieces)


Guard = Literal["secret", "protected", "outside", "unknown"]


def guard_of(fact: PathFact, *, access: Access, home: str = "") -> Guard | None:
    """Why the path needs more than a general permission; None where it does not. `home` is what `~` stands for."""
    if fact.kept and access == "read":
        return None
    if not fact.resolved:
        return guard_of_text(fact.given, access=access, home=home) or "unknown"
    for path in (fact.resolved, fact.lexical):
        guard = guard_of_text(path, access=access, home=home)
        if guard == "secret" and fact.absent:
            guard = "protected" if access == "write" and runs_later(path, home=home) else None
        if guard is not None:
            return guard
    if fact.later and access == "write":
        return "protected"
    return None if fact.inside else "outside"


def guard_of_text(path: str, *, access: Access, home: str = "") -> Guard | None:
    """The same for the text of a path or pattern alone, which cannot tell what is outside."""
    if is_secret(path, home=home):
        return "secret"
    return "protected" if access == "write" and runs_later(path, home=home) else None


_FIXED = re.compile(r"(?<!\\)(?:\\\\)*[*?]")  # the first wildcard


def is_inside(path: str, *, folder: str) -> bool:
    """Whether a resolved absolute path is the resolved folder, or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def path_matches(pattern: str, *, path: str, workspace: str, home: str, any_case: bool = False) -> bool:
    """Whether a resolved absolute `path` fits. Patterns are relative to the workspace, absolute, or begin with `~/`.

    `*` and `?` stay within one name, `**` spans folders, `x/**` is x as well; a backslash takes the next character as it is.
    A pattern without a slash is a name anywhere below the workspace, `./x` one right in it. `any_case`: as a file system may
    compare names.
    """
    absolute = _absolute(pattern, workspace=workspace, home=home)
    if any_case:
        absolute, path = absolute.casefold(), path.casefold()
    return bool(path) and path_glob(absolute).fits(path)


def may_contain(pattern: str, *, folder: str, workspace: str, home: str) -> bool:
    """Whether what the pattern matches could lie below `folder`: a command upon the folder would touch it too."""
    absolute = _absolute(pattern, workspace=workspace, home=home)
    fixed = re.sub(r"\\(.)", r"\1", _FIXED.split(absolute, maxsplit=1)[0])
    return bool(folder) and fixed.startswith(folder.rstrip("/") + "/")


def _absolute(pattern: str, *, workspace: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return escape_pattern(home) + pattern[1:]
    if pattern.startswith("/"):
        return pattern
    below = pattern.removeprefix("./")
    if below == ".":
        return escape_pattern(workspace)
    root = escape_pattern(workspace.rstrip("/"))
    return f"{root}/{below}" if "/" in pattern else f"{root}/**/{below}"


def escape_pattern(text: str) -> str:
    """The pattern that matches exactly `text`."""
    return re.sub(r"([\\*?])", r"\\\1", text)
