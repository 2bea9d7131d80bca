"""What comes behind the calls of a text, and whether it shows that they were not calls.

A value that closes its own call leaves the call's real closing marks behind. They stand anywhere in the words that follow: in
code and behind other marks too, because all of that may be the rest of the value.

Reasoning whose opening mark stands in the prompt, or behind some words, is not known as such until its closing mark comes.
"""

import re
from collections.abc import Sequence

import msgspec

from turnwise.assembly.text_calls import tags
from turnwise.assembly.text_calls.code import CodeTracker
from turnwise.assembly.text_calls.tagged_calls import DSML, DSML_SPACED, INVOKE, STEP, XTML, Elements

WITHIN_REASONING = (
    "it stands in reasoning, whose closing mark comes behind it; call tools only outside of your reasoning"
)
BEHIND_REASONING = "it stands in reasoning, behind `{tag}`; call tools only outside of your reasoning"
BEHIND_A_TAG = "it stands behind `{tag}`, which is not closed; write a call outside of such tags"
BEHIND_A_BACKTICK = (
    "it stands behind a backtick that has no like in its paragraph; write a call on its own, behind a blank line"
)
TEXTS_MIXED = "the texts of the response came mixed, so that it may stand in code or in reasoning"
CUT_BEHIND = "the response was cut in the words behind it, which may be the rest of a value in it; write it once more"
CLOSED_BY_A_VALUE = "a value in it holds the marks that close it"

# What a value between tags may be, as far as nothing in it looks like a tag.
_VALUE = (
    r"(?:[^<]|<(?!/?(?:tool_call|function|parameter|arg_key|arg_value|invoke|minimax:|｜DSML｜|longcat_|seed:|steptml:"
    r"|｜tool_call|\|open\||\|close\|)))*+"
)


def _elements(outer: str, end: str = "", *, written: Elements = INVOKE) -> str:
    opens, shuts, end_of_tag = map(re.escape, (written.opens, written.shuts, written.head_end))
    rest = rf" [^>\n]*?{end_of_tag}"
    parameter = rf"\s*{opens}{written.parameter}{rest}{_VALUE}{re.escape(written.tags.close)}"
    call = rf"{opens}{written.call}{rest}(?:{parameter})*\s*{shuts}{written.call}{end_of_tag}"
    around = rf"\s*{re.escape(written.before)}{call}\s*{re.escape(written.after)}"
    return rf"{outer}(?:{around})+\s*{end or outer.replace('<', '</', 1)}"


def _pairs(prefix: str = "") -> str:
    pair = rf"<{prefix}arg_key>{_VALUE}</{prefix}arg_key>\s*<{prefix}arg_value>{_VALUE}</{prefix}arg_value>\s*"
    return rf"<{prefix}tool_call>\s*[^\s<{{]+\s*(?:{pair})*</{prefix}tool_call>"


_FUNCTION = rf"<function=[^>\n]*>(?:\s*<parameter=[^>\n]*>{_VALUE}</parameter>)*\s*</function>"
# Blocks that are whole whatever tool they name.
_WHOLE = re.compile(
    "|".join(
        [
            rf"(?:<tool_call>\s*)?{_FUNCTION}(?:\s*</tool_call>)?",
            rf"<seed:tool_call>\s*{_FUNCTION}\s*</seed:tool_call>",
            rf"<tool_call>\s*\{{{_VALUE}</tool_call>",
            *(_pairs(), _pairs("longcat_")),
            *(_elements("<minimax:tool_call>"), _elements("<function_calls>")),
            _elements("<｜DSML｜(?:function|tool)_calls>", written=DSML),
            _elements("<｜DSML｜ calls>", written=DSML_SPACED),
            _elements("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", written=STEP),
            _elements(r"<\|open\|>tools<\|sep\|>", r"<\|close\|>tools<\|sep\|>", written=XTML),
            r'<\|tool_call>call:[^\s{]+\{(?:[^<]|<\|"\|>)*+<tool_call\|>',
            r"<start_function_call>call:[^\s{]+\{(?:[^<]|<escape>)*+<end_function_call>",
        ]
    )
)
_SPACE = re.compile(r"\s*+")
# Harmony whose marks a server has left out: the reasoning before them ends there.
_NEXT_MESSAGE = re.compile("assistant(?:final|commentary)")
_END_OF_REASONING = "</think>"


class Doubted(msgspec.Struct, frozen=True):
    """The first so many calls of one text are in doubt, and none of them may run."""

    calls: int
    why: str


class _Said(msgspec.Struct, frozen=True):
    """What follows the first so many calls of a text; `closing` are the marks that a value in them may have taken for its own."""

    calls: int
    closing: frozenset[str]
    words: str
    failed: str


class Aftermath:
    """A text's calls and all that comes behind the first one, in order. `is_watched`: there may be calls in a text before."""

    __slots__ = ("_calls", "_closing", "_failed", "_markup", "_pieces", "_said", "is_watched")

    def __init__(self, *, is_watched: bool = False) -> None:
        self._calls = 0
        self._closing: frozenset[str] = frozenset()
        self._pieces: list[str] = []  # words behind the last call
        self._failed: list[str] = []  # blocks behind it that are no whole calls
        self._said: list[_Said] = []  # the same behind the calls before it
        self.is_watched = is_watched  # words have to be told
        self._markup: tuple[str, ...] | None = None  # the marks that end a block of calls which is words now

    def add_calls(self, count: int, *, closing: Sequence[str]) -> None:
        """So many calls were read; `closing` are the marks that a value in them may have taken for its own."""
        self._end_words()
        self._calls += count
        self._closing |= frozenset(closing)
        self.is_watched = True

    def add_markup(self, ends: tuple[str, ...]) -> None:
        """A block that looks like calls is words. Nobody but a reader of markup can use it if nothing follows."""
        self._end_words()
        self._markup, self.is_watched = ends, True

    @property
    def ends_in_markup(self) -> bool:
        """Whether the text ends with such a block."""
        words = "".join(self._pieces).rstrip()
        return self._markup is not None and not self._failed and (not words or words.endswith(self._markup))

    def add_words(self, text: str) -> None:
        if self.is_watched:
            self._pieces.append(text)

    def add_end_of_reasoning(self) -> None:
        """The first message of the text ends, and what it was is not known."""
        self.add_words(_END_OF_REASONING)

    def add_failed(self, block: str) -> None:
        """A block that is no whole call, and that nobody is shown."""
        if self.is_watched:
            self._failed.append(block)

    def said(self) -> list[_Said]:
        self._end_words()
        return self._said

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def closing(self) -> frozenset[str]:
        return self._closing

    def _end_words(self) -> None:
        if self._pieces or self._failed:
            self._said.append(_Said(self._calls, self._closing, "".join(self._pieces), "".join(self._failed)))
            self._pieces, self._failed = [], []


def doubts_of(texts: Sequence[Aftermath], *, is_cut: bool) -> list[list[Doubted]]:
    """What the texts of a response say about the calls before, now that all are over; a list for each text. `is_cut`: the
    response did not end by itself, so that closing marks which would come behind the words are missing."""
    found: list[list[Doubted]] = [[] for _ in texts]
    closing: frozenset[str] = frozenset()
    for at, text in enumerate(texts):
        for said in text.said():
            marks = closing | said.closing
            whys: list[str] = []
            if _ends_reasoning(said.words) or _ends_reasoning(said.failed):
                whys.append(WITHIN_REASONING)
            if marks and (_holds_closing(said.words, marks=marks) or _closes_more(said.failed, marks=marks)):
                whys.append(CLOSED_BY_A_VALUE)
            elif is_cut and marks and said.words.strip():
                whys.append(CUT_BEHIND)
            for why in whys:
                for before in range(at):
                    found[before].append(Doubted(texts[before].calls, why))
                found[at].append(Doubted(said.calls, why))
        closing |= text.closing
    return [_last_of_each(doubts) for doubts in found]


def _last_of_each(doubts: Sequence[Doubted]) -> list[Doubted]:
    """Of each kind the doubt about most calls, which is the last."""
    last = {doubt.why: doubt for doubt in doubts if doubt.calls}
    return [last[why] for why in (WITHIN_REASONING, CLOSED_BY_A_VALUE, CUT_BEHIND) if why in last]


def _ends_reasoning(text: str) -> bool:
    """Whether reasoning ends there that did not begin there."""
    if _NEXT_MESSAGE.search(text) is not None:
        return True
    depths: dict[str, int] = {}
    for tag in tags.tags_in(text):
        if not tag.is_reasoning:
            continue
        depth = depths.get(tag.name, 0)
        if tag.is_closing and not depth:
            return True
        depths[tag.name] = depth - 1 if tag.is_closing else depth + 1
    return False


# Templates put only these opening marks into the prompt: Qwen3, DeepSeek and GLM; Magistral; Seed-OSS; Command A; Kimi K3.
_LONE = ("</think>", "[/THINK]", "</seed:think>", "<|END_THINKING|>", "<|close|>think<|sep|>")
_BEFORE_A_MENTION = frozenset(" \t\"'`(“‘«")
_BEHIND_A_MENTION = frozenset(" \t\"'`.,;:!?)…”’»")


def split_at_lone_mark(text: str) -> tuple[str, str] | None:
    """The reasoning that a text begins with, if the mark that closes it has no opening one, and the words behind; None where the
    mark is code, or what the words are about."""
    ends = [(at, mark) for mark in _LONE if (at := text.find(mark)) >= 0]
    if not ends:
        return None
    at, mark = min(ends)
    before, behind = text[:at], text[at + len(mark) :]
    if before[-1:] in _BEFORE_A_MENTION or behind[:1] in _BEHIND_A_MENTION:
        return None
    if not _ends_reasoning(before + mark):
        return None
    code = CodeTracker()
    code.feed(before)
    return None if code.is_in_code() else (tags.without_breaks(before).lstrip("\n"), behind.lstrip("\n"))


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
    return any(
        text.count(mark) > len(re.findall(rf"<{re.escape(mark[2:-1])}[ =>]", text))
        for mark in marks
        if mark.startswith("</")
    )
