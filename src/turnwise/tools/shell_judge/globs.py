"""Which names a glob may match, as bash reads it in any language.

Whether `?` is a character or a byte depends on the locale that the command runs in (`LC_ALL=C; cat ??` finds `é`). So patterns
are made of bytes, and match what either reading matches. Stars do not go back: time grows with the name alone.
"""

import os
import re
from collections.abc import Sequence

import msgspec

MarkedSegment = Sequence[tuple[str, str]]
"""Characters of a word, each with its mark: `q` quoted, `u` not."""

_CHARACTER = rb"(?>[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}|.)"
_BYTE = b"."
_STAR = b"*"


class SegmentGlob(msgspec.Struct, frozen=True, kw_only=True):
    """One segment of a path with wildcards. `shows_hidden`: it spells out the dot with which hidden names begin."""

    pattern: re.Pattern[bytes]
    shows_hidden: bool

    def fits(self, name: str) -> bool:
        """Whether bash may put the name in the glob's place."""
        if name.startswith(".") and not self.shows_hidden:
            return False
        return self.pattern.fullmatch(os.fsencode(name)) is not None


def glob(segment: MarkedSegment) -> SegmentGlob:
    """A pattern for all that bash might match, and more where that depends on the language (`[a-z]`)."""
    both = b"|".join(_joined(_tokens(segment, one=one)) for one in (_CHARACTER, _BYTE))
    return SegmentGlob(pattern=re.compile(both, re.DOTALL), shows_hidden=segment[0][0] == ".")


def is_wild(segment: MarkedSegment) -> bool:
    return any(
        mark == "u" and (char in "*?" or (char == "[" and _bracket_end(segment, start=at) is not None))
        for at, (char, mark) in enumerate(segment)
    )


def _tokens(segment: MarkedSegment, *, one: bytes) -> list[bytes]:
    """What stands for each character: `_STAR`, or a pattern. `one` stands for what `?` takes."""
    found: list[bytes] = []
    at = 0
    while at < len(segment):
        char, mark = segment[at]
        end = _bracket_end(segment, start=at) if (char, mark) == ("[", "u") else None
        if end is not None:
            found.append(_bracket(segment[at + 1 : end], one=one))
            at = end
        elif mark == "u" and char == "*":
            found.append(_STAR)
        elif mark == "u" and char == "?":
            found.append(one)
        else:
            found.append(re.escape(char.encode("utf-8", "surrogatepass")))
        at += 1
    return found


def _bracket(inner: MarkedSegment, *, one: bytes) -> bytes:
    if ("[", "u") in inner:
        return _STAR
    chars = "".join(char for char, _ in inner)
    if chars[0] in "!^" or ("-", "u") in inner or not chars.isascii():
        return one
    return b"[" + re.escape(chars.encode()) + b"]"


def _joined(tokens: list[bytes]) -> bytes:
    """Each star but the last takes as little as what follows it allows, once and for all: that leaves the most to the rest."""
    parts: list[list[bytes]] = [[]]
    for token in tokens:
        if token is _STAR:
            parts.append([])
        else:
            parts[-1].append(token)
    first, *rest = [b"".join(part) for part in parts]
    if not rest:
        return first
    *middle, last = rest
    return first + b"".join(b"(?>.*?" + part + b")" for part in middle if part) + b".*" + last


def _bracket_end(segment: MarkedSegment, *, start: int) -> int | None:
    """Where the bracket closes, the latest place that may be meant; None where it stays a bracket."""
    first = start + 2 + (list(segment[start + 1 : start + 2]) in ([("!", "u")], [("^", "u")]))
    ends = [at for at in range(first, len(segment)) if segment[at] == ("]", "u")]
    if not ends:
        return None
    has_classes = any(one == ("[", "u") for one in segment[start + 1 : ends[-1]])
    return ends[-1] if has_classes else ends[0]
