"""The words that bash makes of one with braces (`a.{py,txt}`), where that is certain; else the word cannot be known.

Characters come with marks (`Spelled.marks`): only those that are not quoted count. Source: bash manual, Brace Expansion.
"""

import re

MarkedWord = tuple[tuple[str, str], ...]
"""Characters, each with its mark: `q` quoted, `u` not."""

MAX_WORDS = 100
_NUMBERS = re.compile(r"(0|-?[1-9]\d{0,8})\.\.(0|-?[1-9]\d{0,8})")


def expand_braces(word: MarkedWord) -> list[MarkedWord] | None:
    """All words in bash's order; None where they are not certain or more than MAX_WORDS."""
    bare = "".join(char if mark == "u" else "q" for char, mark in word)
    if "{" not in bare or not ("," in bare or ".." in bare):
        return [word]  # `HEAD@{1}`, `{}`: nothing to choose from
    return _expand(word)


def _expand(word: MarkedWord) -> list[MarkedWord] | None:
    start = next((at for at, one in enumerate(word) if one == ("{", "u")), None)
    if start is None:
        return None if ("}", "u") in word else [word]
    end = _closing(word, start=start)
    if end is None:
        return None
    choices = _choices(word[start + 1 : end])
    tails = _expand(word[end + 1 :])
    if choices is None or tails is None or len(choices) * len(tails) > MAX_WORDS:
        return None
    return [word[:start] + choice + tail for choice in choices for tail in tails]


def _closing(word: MarkedWord, *, start: int) -> int | None:
    depth = 0
    for at in range(start, len(word)):
        depth += (word[at] == ("{", "u")) - (word[at] == ("}", "u"))
        if depth == 0:
            return at
    return None


def _choices(inner: MarkedWord) -> list[MarkedWord] | None:
    parts = _split(inner)
    if len(parts) > 1:
        found: list[MarkedWord] = []
        for part in parts:
            expanded = _expand(part)
            if expanded is None or len(found) + len(expanded) > MAX_WORDS:
                return None
            found += expanded
        return found
    text = "".join(char for char, _ in inner)
    numbers = _NUMBERS.fullmatch(text) if all(mark == "u" for _, mark in inner) else None
    if numbers is not None:
        first, last = int(numbers[1]), int(numbers[2])
        if abs(last - first) >= MAX_WORDS:
            return None
        step = 1 if last >= first else -1
        return [tuple((char, "u") for char in str(number)) for number in range(first, last + step, step)]
    if text:
        return None  # `{a}`, `{a..c}`: for certain only in words without any choice
    return [(("{", "u"), ("}", "u"))]


def _split(inner: MarkedWord) -> list[MarkedWord]:
    parts: list[MarkedWord] = []
    depth = start = 0
    for at, one in enumerate(inner):
        depth += (one == ("{", "u")) - (one == ("}", "u"))
        if depth == 0 and one == (",", "u"):
            parts.append(inner[start:at])
            start = at + 1
    return [*parts, inner[start:]]
