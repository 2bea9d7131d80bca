"""Tags that say of what stands between them that it is not the answer: reasoning, and words that are only shown.

HTML shows code between `<pre>`, `<code>` and their like, and hides what stands in a comment; examples and quotations are shown
too. Upper and lower case are the same to all of them.
"""

import re
from functools import cache

import msgspec

# Reasoning that a model writes into its text, between marks of its own: one table of them, in lower case.
#
# Sources: the chat templates of DeepSeek-R1, Qwen3, GLM-4.5 and MiniMax-M2 (`<think>`), Magistral (`[THINK]`), Seed-OSS
# (`<seed:think>`), Kimi-VL (`◁think▷`), Command A (`<|START_THINKING|>`), Gemma 4 (`<|channel>thought`), MedGemma
# (`<unused94>thought`), Apertus (`<|inner_prefix|>`) and OpenThinker (`<|begin_of_thought|>`); the others are seen from models
# that were told to write them. Harmony's channels are in `harmony`.


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
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
    "<unused94>thought": "<unused95>",
}
MARKS = {**{f"<{tag}>": f"</{tag}>" for tag in TAGS}, **OTHERS}
_LONGEST_MARK = max(map(len, MARKS))
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
    begin = text[:_LONGEST_MARK].lower()
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


# HTML standard, "Text-level semantics", "Grouping content" and "Obsolete features"; the last ones are what models write.
_SHOWING = (
    *("pre", "code", "samp", "kbd", "tt", "xmp", "listing", "plaintext", "script", "style", "textarea", "template"),
    *("blockquote", "q", "example", "examples", "sample"),
)
_SHOWING_OTHERS = {"<!--": "-->", "<![cdata[": "]]>", "[code]": "[/code]", "[quote]": "[/quote]"}
# Where these begin a line, nothing but their own end counts in them (CommonMark, "HTML blocks", kinds 1, 2 and 5).
RAW = frozenset({"pre", "script", "style", "textarea", "<!--", "<![cdata["})
_OTHERS = {**OTHERS, **_SHOWING_OTHERS}
_CLOSED_BY = {close: opens for opens, close in _OTHERS.items()}
_REASONING = frozenset([*TAGS, *OTHERS])


def _one_of(marks: "tuple[str, ...]") -> str:
    return "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))


_TAG = rf"<(?P<slash>/?)(?P<name>{_one_of(TAGS + _SHOWING)})(?=[\s/>])"
# What begins a tag, or may hold one; else no pattern is tried on a text.
BEGIN = ("<", "[", "◁")
_NAMING = r"\[(?:code|quote)(?==)"  # forums name a language or an author behind it
PATTERN = rf"{_TAG}|(?P<other>{_one_of((*_OTHERS, *_CLOSED_BY))}|{_NAMING})"
_FOUND = re.compile(PATTERN, re.IGNORECASE)
# An end of a text that may be cut in the middle of a tag.
_MAY_BE_CUT = re.compile(r"(?:[<\[◁][^\s`~<◁]*|-{1,2}|\]{1,2})\Z")
_LONGEST = 2 + max([len(mark) for mark in (*TAGS, *_SHOWING, *_OTHERS, *_CLOSED_BY)])


class Tag(msgspec.Struct, frozen=True):
    """`name` is the same for both ends of a pair."""

    name: str
    is_closing: bool

    @property
    def is_reasoning(self) -> bool:
        return self.name in _REASONING


def tag_of(found: re.Match[str]) -> Tag:
    """The tag that `PATTERN` has found."""
    if (name := found.group("name")) is not None:
        return Tag(name.lower(), bool(found.group("slash")))
    mark = found.group("other").lower()
    mark = f"{mark}]" if mark in ("[code", "[quote") else mark
    return Tag(_CLOSED_BY.get(mark, mark), mark in _CLOSED_BY)


def is_of_a_program(found: re.Match[str], *, before: str) -> bool:
    """Whether what `PATTERN` has found, directly behind this character, is no tag but an index or a type: `CODES[code]`,
    `List<Example>`. A closing tag is neither."""
    if not (before.isalnum() or before in ("_", "]", ")")):
        return False
    if (name := found.group("name")) is not None:
        return not found.group("slash") and name == name.capitalize() and before not in "])"
    return found.group()[0] == "[" and found.group()[1] != "/"


def tags_in(text: str) -> list[Tag]:
    return [tag_of(found) for found in _FOUND.finditer(text)]


def may_hold(text: str) -> bool:
    return any(begin in text for begin in BEGIN)


def cut_from(text: str) -> int:
    """Where an end of the text begins that may be the beginning of a tag; its length where there is none."""
    found = _MAY_BE_CUT.search(text, max(0, len(text) - _LONGEST))
    return len(text) if found is None else found.start()


def written(name: str) -> str:
    """The opening tag, as people write it."""
    return name if name in _OTHERS else f"<{name}>"


class OpenTag(msgspec.Struct, frozen=True):
    """A tag that is not closed yet. `number` tells it from others of its name; `is_raw`: only its own end counts in it."""

    name: str
    number: int
    is_raw: bool

    @property
    def is_reasoning(self) -> bool:
        return self.name in _REASONING


_MOST_OPEN = 64  # what is opened in more is opened there already


class OpenTags(msgspec.Struct, frozen=True):
    """The tags that are open at one place of a text. A closing tag closes those within it as well."""

    all: tuple[OpenTag, ...] = ()
    count: int = 0  # of those that were opened so far

    @property
    def is_raw(self) -> bool:
        return bool(self.all) and self.all[-1].is_raw

    def behind(self, tag: Tag, *, begins_line: bool) -> "OpenTags":
        """Those that are open behind the tag."""
        if self.is_raw and not (tag.is_closing and tag.name == self.all[-1].name):
            return self
        if tag.is_closing:
            at = next((at for at in reversed(range(len(self.all))) if self.all[at].name == tag.name), None)
            return self if at is None else OpenTags(self.all[:at], self.count)
        if len(self.all) >= _MOST_OPEN:
            return self
        opened = OpenTag(tag.name, self.count + 1, begins_line and tag.name in RAW)
        return OpenTags((*self.all, opened), self.count + 1)


# Special tokens of chat templates that end an answer, and that a server has left in its text. They are no part of the answer.
#
# Sources: the chat templates and tokenizers of Qwen, Hermes, Kimi and LFM (`<|im_end|>`), Llama 3 (`<|eot_id|>`, `<|eom_id|>`,
# `<|end_of_text|>`) and 4 (`<|eot|>`, `<|eom|>`, `<|python_end|>`), Mistral (`</s>`), Gemma (`<end_of_turn>`, `<eos>`) and Gemma
# 4 (`<turn|>`), GPT and Qwen (`<|endoftext|>`), DeepSeek (`<｜end▁of▁sentence｜>`), GLM (`<|user|>`, `<|observation|>`), MiniMax
# (`[e~[`), Command (`<|END_OF_TURN_TOKEN|>`) and Seed-OSS (`<seed:eos>`). Those of harmony are in `harmony`.


TOKENS = (
    *(
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<|python_end|>",
        "<|end_of_text|>",
        "<|endoftext|>",
    ),
    *("</s>", "<eos>", "<end_of_turn>", "<turn|>", "<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "[e~["),
    *("<|END_OF_TURN_TOKEN|>", "<seed:eos>", "<|end_of_msg|>", "<|tool_response>", "<start_function_response>"),
    "<|assistant_end|>",
)
MOST = 64  # characters of such tokens, and of blanks around them, that wait for the end of the text
_ANY = "|".join(map(re.escape, TOKENS))
_BEGINNINGS = sorted({token[:length] for token in TOKENS for length in range(1, len(token))}, key=len, reverse=True)
ANY = re.compile(_ANY)
_BEGIN = re.compile(r"[<\[]")
_OPEN_RUN = re.compile(rf"(?:(?:{_ANY})\s*+)*+(?:{'|'.join(map(re.escape, _BEGINNINGS))})?\Z")
_RUN = re.compile(rf"\s*+(?:(?:{_ANY})\s*+)*+\Z")
_FIRST = re.compile(rf"(?:{_ANY})\s*+(?:(?:{_ANY})\s*+)*+\Z")


def ending_from(text: str) -> int:
    """Where the tokens begin that the text ends with, the last one perhaps not whole; its length where there are none."""
    begins = (found.start() for found in _BEGIN.finditer(text, max(0, len(text) - MOST)))
    return next((at for at in begins if _OPEN_RUN.match(text, at) is not None), len(text))


def may_end(text: str) -> bool:
    """Whether the text is nothing but blanks and such tokens, or may become so."""
    bare = text.lstrip()
    return len(bare) <= MOST and _OPEN_RUN.match(bare) is not None


def is_end(text: str) -> bool:
    """Whether the text is nothing but blanks and such tokens."""
    return _RUN.match(text) is not None


def is_token(text: str) -> bool:
    """Whether the text is such tokens, and blanks behind them."""
    return _FIRST.match(text) is not None
