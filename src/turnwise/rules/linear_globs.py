"""Patterns with stars, matched in time linear in the text: a project's pattern must not hang whoever matches it.

`re` goes back for each star, so thirty of them and a long name take for ever. Here all places in the pattern are followed at
once, as bits of one number (Baeza-Yates and Gonnet, "A new approach to text searching", 1992).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

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
