"""Reasoning that a model writes into its text, between marks of its own: one table of them, in lower case.

Sources: the chat templates of DeepSeek-R1, Qwen3, GLM-4.5 and MiniMax-M2 (`<think>`), Magistral (`[THINK]`), Seed-OSS
(`<seed:think>`), Kimi-VL (`◁think▷`), Command A (`<|START_THINKING|>`), Gemma 4 (`<|channel>thought`), MedGemma
(`<unused94>thought`), Apertus (`<|inner_prefix|>`) and OpenThinker (`<|begin_of_thought|>`); the others are seen from models that
were told to write them. Harmony's channels are in `harmony`.
"""

import re
from functools import cache

import msgspec

TAGS = (
    *("think", "thinking", "thought", "thoughts", "reasoning", "analysis", "scratchpad", "reflection"),
    *("mm:think", "seed:think", "antthinking", "chain_of_thought", "cot", "inner_monologue", "internal_monologue"),
    *("inner_thoughts", "internal_thoughts", "monologue", "deliberation"),
)
OTHERS = {
    "[think]": "[/think]",
    "[thinking]": "[/thinking]",
    "[reasoning]": "[/reasoning]",
    "◁think▷": "◁/think▷",
    "<|think|>": "<|/think|>",
    "<|start_thinking|>": "<|end_thinking|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
}
MARKS = {**{f"<{tag}>": f"</{tag}>" for tag in TAGS}, **OTHERS}
_LONGEST = max(map(len, MARKS))
# Blanks that wait for what follows them, at the beginning of a text, between two blocks and at the end of reasoning. Vendors'
# templates write two at most; more would be read again with every piece.
MOST_BLANK = 32


class Closing(msgspec.Struct, frozen=True):
    """What ends reasoning: `ends` is a part of it, the marks in `follows` begin what comes next."""

    ends: tuple[str, ...]
    follows: tuple[str, ...] = ()

    def find(self, text: str) -> tuple[int, int] | None:
        """Where the reasoning ends, and where what comes next begins."""
        found = _pattern(self.ends, self.follows).search(text)
        return None if found is None else found.span()

    def held_from(self, text: str) -> int:
        """Where an end of the text begins that may be the beginning of such a mark."""
        return min([held_from(text, close=mark) for mark in self.ends + self.follows])


@cache
def _pattern(ends: tuple[str, ...], follows: tuple[str, ...]) -> re.Pattern[str]:
    next_ones = "|".join(map(re.escape, follows)) or "(?!)"
    return re.compile(f"{'|'.join(map(re.escape, ends))}|(?={next_ones})", re.IGNORECASE)


def without_blanks(text: str) -> str:
    """The text without what may stand before such a mark: blanks, and the mark of a byte order."""
    return text.lstrip().removeprefix("\ufeff").lstrip()


def opening(text: str) -> str | None:
    """The mark that the text begins with; the empty text where it may yet become one, None where it does not."""
    begin = text[:_LONGEST].lower()
    for mark in MARKS:
        if begin.startswith(mark):
            return mark
    return "" if any(mark.startswith(begin) for mark in MARKS) else None


def held_from(text: str, *, close: str) -> int:
    """Where an end of the text begins that may be the beginning of the closing mark."""
    for at in range(max(0, len(text) - len(close) + 1), len(text)):
        if close.startswith(text[at:].lower()):
            return at
    return len(text)


def without_breaks(text: str) -> str:
    """The text without the line breaks at its end, as far as they wait."""
    bare = text.rstrip("\n")
    return bare if len(text) - len(bare) <= MOST_BLANK else text[:-MOST_BLANK]
