"""Where a block ends that is no whole call. What stands behind it is the answer, and none of it is lost."""

import re

from turnwise.assembly.text_calls.block_cursor import BlockReading
from turnwise.assembly.text_calls.syntaxes import CLOSING, Syntax

_WORD = re.compile(r"[^\W\d_]+\Z")
# Brackets behind a mistake that are looked at for the last one of the call. A text of nothing but such blocks would be read as
# often as it has blocks.
MOST_BRACKETS = 4096
_BRACKETS = re.compile(r"[\[({})\]]")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


def end_mark(text: str, *, syntax: Syntax, behind: int = 0) -> int | None:
    """Behind the first mark that closes such a block, `behind` what was read of it."""
    start = max(len(syntax.marker), behind)
    return min([at + len(one) for one in syntax.ends if (at := text.find(one, start)) >= 0], default=None)


def end_of_wrong(text: str, *, found: BlockReading, syntax: Syntax, is_final: bool = False) -> int | None:
    """The same for a block that cannot become a call; None as long as its end may come yet.

    Where words follow a whole call, it ends with the call. Where no mark closes it, it ends with the bracket that closes its
    first one, or before the word that was wrong if that bracket is far.
    """
    if found.end >= len(text) and not is_final:
        return None  # the next character tells whether a word ends here
    end = len(text[: found.end].rstrip())
    if (word := _WORD.search(text, max(0, end - 16), end)) is not None and text[end : end + 1].isalnum():
        end = word.start()
    if not found.name and not text.startswith("<", found.end):
        return end
    closed = found.end if found.end and text.endswith(syntax.ends, 0, found.end) else None
    if closed is None and (found.syntax or syntax.name) in CLOSING:  # what was read are whole values and tags
        closed = end_mark(text, syntax=syntax, behind=found.end)
    if closed is None and (is_final or (found.syntax or syntax.name) not in CLOSING):
        closed = end_mark(text, syntax=syntax)
    if closed is not None or (syntax.ends and not is_final):
        return closed
    blank = _BLANK_LINE.search(text, found.end)
    last = len(text) if blank is None else blank.start()
    start = len(syntax.marker)
    depth = _count(text, "[({", start, found.end) - _count(text, "])}", start, found.end)
    closing = _count(text, "])}", found.end, last)
    if depth >= 0 and closing < max(1, depth):  # no bracket closes it, so none has to be looked at
        are_many = closing + _count(text, "[({", found.end, last) > MOST_BRACKETS
        return end if is_final or blank is not None or are_many else None
    for count, bracket in enumerate(_BRACKETS.finditer(text, found.end, last)):
        if count == MOST_BRACKETS:
            return end
        depth += 1 if bracket.group() in "[({" else -1
        if depth <= 0:
            return bracket.end()
    return end if is_final or blank is not None else None


def _count(text: str, brackets: str, start: int, end: int) -> int:
    return sum([text.count(one, start, end) for one in brackets])
