"""What comes behind the calls of a text, and whether it shows that they were none.

A value that closes its own call leaves the call's real closing marks behind. They stand anywhere in the words that follow: in
code and behind other marks too, because all of that may be the rest of the value.

Reasoning whose opening mark stands in the prompt, or behind some words, is not known as such until its closing mark comes.
"""

import re
from collections.abc import Sequence

import msgspec

from turnwise.assembly.calls_in_text import thinking

WITHIN_REASONING = (
    "it stands in reasoning, whose closing mark comes behind it; call tools only outside of your reasoning"
)
CLOSED_BY_A_VALUE = "a value in it holds the marks that close it"

# What a value between tags may be, as far as nothing in it looks like a tag.
_VALUE = r"(?:[^<]|<(?!/?(?:tool_call|function|parameter|arg_key|arg_value|invoke|minimax:|｜DSML｜)))*+"


def _invokes(outer: str, *, prefix: str = "") -> str:
    parameter = rf"\s*<{prefix}parameter [^>\n]*>{_VALUE}</{prefix}parameter>"
    return rf"<{outer}>(?:\s*<{prefix}invoke [^>\n]*>(?:{parameter})*\s*</{prefix}invoke>)+\s*</{outer}>"


# Blocks that are whole whatever tool they name.
_WHOLE = re.compile(
    "|".join(
        [
            rf"(?:<tool_call>\s*)?<function=[^>\n]*>(?:\s*<parameter=[^>\n]*>{_VALUE}</parameter>)*\s*</function>"
            r"(?:\s*</tool_call>)?",
            rf"<tool_call>\s*[^\s<{{]+\s*(?:<arg_key>{_VALUE}</arg_key>\s*<arg_value>{_VALUE}</arg_value>\s*)*</tool_call>",
            rf"<tool_call>\s*\{{{_VALUE}</tool_call>",
            _invokes("minimax:tool_call"),
            _invokes("｜DSML｜(?:function|tool)_calls", prefix="｜DSML｜"),
        ]
    )
)
_SPACE = re.compile(r"\s*+")


class Doubted(msgspec.Struct, frozen=True):
    """The first so many calls of the text are in doubt, and none of them may run."""

    calls: int
    why: str


class Aftermath:
    """Told of every call and of all that comes behind the first one, in order."""

    __slots__ = ("_calls", "_closing", "_failed", "_pieces", "_said")

    def __init__(self) -> None:
        self._calls = 0
        self._closing: frozenset[str] = frozenset()
        self._pieces: list[str] = []  # words behind the last call
        self._failed: list[str] = []  # blocks behind it that are no whole calls
        self._said: list[tuple[int, frozenset[str], str, str]] = []  # the same behind the calls before it

    @property
    def is_watched(self) -> bool:
        """Whether words have to be told."""
        return self._calls > 0

    def add_calls(self, count: int, *, closing: Sequence[str]) -> None:
        """So many calls were read; `closing` are the marks that a value in them may have taken for its own."""
        self._end_words()
        self._calls += count
        self._closing |= frozenset(closing)

    def add_words(self, text: str) -> None:
        if self._calls:
            self._pieces.append(text)

    def add_failed(self, block: str) -> None:
        """A block that is no whole call, and that nobody is shown."""
        if self._calls:
            self._failed.append(block)

    def doubts(self) -> list[Doubted]:
        """What the text says about its calls now that it is over."""
        self._end_words()
        found: list[Doubted] = []
        for calls, _, words, failed in reversed(self._said):
            if _ends_reasoning(words) or _ends_reasoning(failed):
                found.append(Doubted(calls, WITHIN_REASONING))
                break
        for calls, closing, words, failed in reversed(self._said):
            if closing and (_holds_closing(words, marks=closing) or _closes_more(failed, marks=closing)):
                found.append(Doubted(calls, CLOSED_BY_A_VALUE))
                break
        return found

    def _end_words(self) -> None:
        if self._pieces or self._failed:
            self._said.append((self._calls, self._closing, "".join(self._pieces), "".join(self._failed)))
            self._pieces, self._failed = [], []


def _ends_reasoning(text: str) -> bool:
    """Whether reasoning ends there that did not begin there."""
    depths = dict.fromkeys(thinking.PAIRS, 0)
    for found in thinking.PAIR_MARKS.finditer(text):
        opens = thinking.PAIRS_BY_CLOSE.get(found.group())
        if opens is None:
            depths[found.group()] += 1
        elif not depths[opens]:
            return True
        else:
            depths[opens] -= 1
    return False


def _holds_closing(text: str, *, marks: frozenset[str]) -> bool:
    """Whether one of the marks stands in the words, but for whole blocks that follow the calls at once."""
    at = _past_space(text, 0)
    while (block := _WHOLE.match(text, at)) is not None:
        at = _past_space(text, block.end())
    return any(text.find(mark, at) >= 0 for mark in marks)


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _closes_more(text: str, *, marks: frozenset[str]) -> bool:
    """Whether a tag is closed there more often than it is opened."""
    return any(text.count(mark) > len(re.findall(rf"<{re.escape(mark[2:-1])}[ =>]", text)) for mark in marks)
